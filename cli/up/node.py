"""The shell of `muster node up`: looks at chain and files, takes the next step, runs the worker."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from chain.indexer.state import standing_of
from chain.suite import Suite
from chain.transactions import Receipt
from cli.profile import Profile, ProfileKey
from cli.session import Session, open_session
from cli.up.keys import exists, open_profile_key
from cli.up.node_steps import NodeFacts, next_step
from cli.up.pool_document import fetch_pool_config
from cli.up.steps import UpDo, UpStep
from cli.up.taking import take_shared
from protocol.config import PoolConfig
from protocol.errors import ConfigError, MusterError
from protocol.files import write_atomic
from runtime.keystore import address_of

if TYPE_CHECKING:
    from chain.contracts import ContractCall
    from cli.authorisations import Invite
    from protocol.accounts import LocalAccount

ONBOARDING_GAS = 700_000
"""Registering, staking and joining, with room."""
WORKING_GAS = 5_000_000
"""Some eighty files."""
_CONSENT_SECONDS = 3600
_LOOK_SECONDS = 5.0


@dataclass
class NodeUp:
    """One node's way into one pool. `wanted`: the stake that was asked for, in base units (0: the pool's least)."""

    profile: Profile
    pool: int
    wanted: int = 0
    invite: "Invite | None" = None
    yes: bool = False
    session: Session = field(init=False)

    def __post_init__(self) -> None:
        self.session = open_session(self.profile.deployment, self.profile.rpc)

    @property
    def node_key(self) -> ProfileKey:
        if self.profile.node is None:
            raise ConfigError("the profile names no key of the node", "add a table [node], or: muster init operator")
        return self.profile.node

    # ---- Looking

    def facts(self) -> NodeFacts:
        """What chain and files say now."""
        if not (exists(self.profile.key) and exists(self.node_key)):
            return NodeFacts(self.pool)
        operator, node = address_of(self.profile.key.keystore), address_of(self.node_key.keystore)
        client, state = self.session.client, self.session.state()
        pool = state.pools.get(self.pool)
        if pool is None:
            raise ConfigError(f"there is no pool {self.pool} on this deployment", "correct `pool` in the profile")
        known, price = state.nodes.get(node), client.gas_price()
        return NodeFacts(
            self.pool,
            operator,
            node,
            agreed=self.yes or self._agreement(pool.config_hash).exists(),
            operator_wei=client.balance(operator),
            operator_needs=ONBOARDING_GAS * price,
            node_wei=client.balance(node),
            node_needs=WORKING_GAS * price,
            tokens=self.session.suite.token.balance_of(operator),
            registered_to=known.operator if known else "",
            stake=known.stake if known else 0,
            least=pool.terms.minStake,
            wanted=self.wanted,
            standing=standing_of(state.accounts.get((self.pool, node))),
            pool_status=pool.status,
            invite_only=pool.terms.inviteOnly,
            invited=self.invite is not None,
            elsewhere=known.pool if known and known.pool not in (0, self.pool) else 0,
        )

    def _agreement(self, config_hash: bytes) -> Path:
        return self.profile.home / f"agreed-{self.pool}-{config_hash.hex()[:16]}"

    # ---- Acting

    def prepare(self) -> NodeFacts:
        """Take every step until the node can work; the facts then. Raises ConfigError if it cannot be."""
        while True:
            facts = self.facts()
            step = next_step(facts)
            if step.do is UpDo.RUN:
                return facts
            self.take(facts, step)

    def take(self, facts: NodeFacts, step: UpStep) -> None:
        """One step. Raises ConfigError for what only a person can change, ContractError for a refusal."""
        keys = (("operator", self.profile.key), ("node", self.node_key))
        if take_shared(step, self.session.suite, keys):
            return
        if step.do is UpDo.ASK:
            self._ask(step.amount)
        elif step.do is UpDo.WAIT:
            typer.echo(step.why)
            time.sleep(_LOOK_SECONDS)
        else:
            self._send(facts, step)

    def pool_config(self) -> PoolConfig:
        """The pool's configuration document. Raises UnreachableError, IntegrityError."""
        pool = self.session.state().pools[self.pool]
        return fetch_pool_config(self.profile.service or pool.service_url, pool.config_hash)

    def _ask(self, stake: int) -> None:
        from cli.plan import confirm
        from cli.views.terms import terms_for_node

        state, now = self.session.state(), self.session.client.now()
        pool = state.pools[self.pool]
        typer.echo(terms_for_node(state, pool, self.pool_config(), stake, now))
        confirm("Register, stake and join under these terms?")
        write_atomic(self._agreement(pool.config_hash), f"{int(time.time())}\n".encode())

    def _send(self, facts: NodeFacts, step: UpStep) -> None:
        operator = self._as(open_profile_key(self.profile.key, "operator key"))
        call: ContractCall[Receipt]
        if step.do is UpDo.REGISTER:
            expiry = operator.client.now() + _CONSENT_SECONDS
            node = open_profile_key(self.node_key, "node key")
            consent = operator.stakes.sign_consent(node, facts.operator, expiry)
            call = operator.stakes.register_node(facts.node, step.amount, expiry, consent)
        elif step.do is UpDo.DEPOSIT:
            call = operator.stakes.deposit(facts.node, step.amount)
        elif self.invite is not None and facts.invite_only:
            call = operator.pools.join_with_invite(self.pool, facts.node, self.invite.expiry, self.invite.signature)
        else:
            call = operator.pools.join(self.pool, facts.node)
        receipt = call.send()
        typer.echo(f"{step.why}: block {receipt.block}, gas {receipt.gas_used}, {receipt.tx_hash}")
        operator.client.close()

    def _as(self, account: "LocalAccount") -> Suite:
        from chain.client import ChainClient

        client = ChainClient(self.session.client.provider.urls, self.session.client.chain_id, account)
        return Suite(client, self.session.deployment, check=False)


def load_invite(path: Path | None, up: NodeUp) -> "Invite | None":
    """The invite in a file, checked against pool and owner. Raises ConfigError, IntegrityError."""
    from cli.authorisations import Invite
    from protocol.encoding import load_document

    if path is None:
        return None
    if not exists(up.node_key):
        raise MusterError("an invite is for a node that has a key", "run this without --invite first")
    given, session = load_document(path, Invite), up.session
    pools, node = session.suite.pools.address, address_of(up.node_key.keystore)
    now, owner = session.client.now(), session.pool(up.pool).owner
    wanted = Invite(chain_id=session.client.chain_id, contract=pools, pool=up.pool, node=node, expiry=now)
    given.check(wanted, owner, path)
    return given
