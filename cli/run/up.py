"""`muster node up` and `muster validator up`: look at chain and files, take the next step, run the process.

`cli.run.steps` decides what is next. What a key lacks comes from a local chain's faucet, or the shell says what to
send where and waits for it.
"""

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

import typer

from chain.client import ChainClient
from chain.indexer.records import Pool, Status
from chain.indexer.state import State, standing_of
from chain.suite import Suite
from cli.diagnose.status import unserved_pools
from cli.diagnose.views import open_rounds, terms_for_node
from cli.hardware import driver_answers
from cli.output import counted, emit, fields, seconds
from cli.plan import confirm
from cli.pool.authorisations import Invite
from cli.pool.document import fetch_pool_config
from cli.profile import Profile, ProfileKey, Role, load_profile, profile_path
from cli.run.init import make_profile
from cli.run.process import GOES_ON, UpProcess, isolation_words, write_config
from cli.run.steps import NodeFacts, UpDo, UpStep, ValidatorFacts, next_node_step, next_validator_step
from cli.session import Session, ask_access, ask_service, check_access, open_session
from environments.conformance import quick_check
from environments.registry import check_versions
from protocol.accounts import LocalAccount
from protocol.api.endpoints import POOL
from protocol.api.work import JoinRequest
from protocol.config import PoolConfig
from protocol.encoding import load_document, show_tokens
from protocol.errors import ConfigError, MusterError, UnreachableError
from protocol.files import write_atomic
from protocol.identity import PoolId
from protocol.waits import WAITS, wait_for
from runtime.diagnose import WatchLimits, look_at_service
from runtime.home_status import last_line
from runtime.keystore import address_of, ensure_key, open_key
from runtime.orchestrator_client import OrchestratorClient, join_request
from validator.config import READY, UNSERVED, ValidatorConfig
from worker.config import WorkerConfig

F = TypeVar("F", NodeFacts, ValidatorFacts)
ETHER = 10**18
# Gas with room: registering, staking and joining; approving and bonding a seat, for each voting key; some forty lanes
# of a voter.
ONBOARDING_GAS, BONDING_GAS, WORKING_GAS = 700_000, 500_000, 5_000_000
_LOCAL_CHAIN = 31337
_ETHER_FAUCETS = {84532: "https://docs.base.org/base-chain/tools/network-faucets"}
_CONSENT_SECONDS = 3600
_FUNDS_SECONDS, _WARM_SECONDS = 3.0, 1.0


class LocalFaucet:
    """A development chain (anvil) lets anybody set balances and send as anybody."""

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self._ask = suite.client.request

    @classmethod
    def of(cls, suite: Suite) -> "LocalFaucet | None":
        """Return that of the suite's chain; None on a chain where ether or tokens could be worth anything."""
        local = suite.client.chain_id == _LOCAL_CHAIN and suite.deployment.token.ours
        return cls(suite) if local and str(suite.client.request("web3_clientVersion")).startswith("anvil/") else None

    def ether(self, address: str, wei: int) -> None:
        self._ask("anvil_setBalance", [address, hex(wei)])

    def tokens(self, address: str, base_units: int) -> None:
        """Mint as the token's owner."""
        token = self._suite.token
        owner, call = token.read("owner"), token.mint(address, base_units)
        self.ether(owner, 10**18)
        self._ask("anvil_impersonateAccount", [owner])
        try:
            sent: str = self._ask("eth_sendTransaction", [call.fields(owner)])
            wait_for("tokens to be minted", lambda: self._ask("eth_getTransactionReceipt", [sent]), 60.0, poll=0.1)
        finally:
            self._ask("anvil_stopImpersonatingAccount", [owner])


def get_funds(suite: Suite, step: UpStep, is_due: Callable[[], bool] = lambda: True) -> None:
    """Return once the key has the ether or tokens that a step says it lacks, or the step `is_due` no more."""
    chain, address, missing, local = suite.client.chain_id, step.address, step.amount, LocalFaucet.of(suite)
    balance: Callable[[str], int] = suite.token.balance_of if step.do is UpDo.TOKENS else suite.client.balance
    have = balance(address)
    if step.do is UpDo.TOKENS:
        what, where = f"{show_tokens(missing)} tokens", f" (contract {suite.token.address})"
        source = f"; a holder sends some by `muster keys send --to {address} --amount {show_tokens(missing)}`"
        if local is not None:
            local.tokens(address, missing)
    else:
        what, where = f"{missing / ETHER:.6f} ETH on chain {chain}", ""
        faucet = _ETHER_FAUCETS.get(chain)
        source = f" (free from {faucet})" if faucet else " (from any holder on that chain)"
        if local is not None:
            local.ether(address, max(have + 3 * missing, ETHER))
    if local is not None:
        typer.echo(f"{what} for {address}: from the local chain")
        return
    typer.echo(f"{step.why}: send {what}{where} to {address}{source}")
    typer.echo("This goes on by itself once it is there; Ctrl-C stops it, and it can be run again.")
    with WAITS.on(f"{what} at {address}"):
        there = have
        while there < have + missing:
            time.sleep(_FUNDS_SECONDS)
            with suppress(UnreachableError):
                if not is_due():
                    return
                there = balance(address)


# Before anything else


def open_up_profile(role: Role, url: str | None, rpc: str | None) -> Profile:
    """Return the profile of a role; without one, write that of the pool whose service is at `url`. Raises ConfigError
    for another role or pool, IntegrityError if the chain does not bear out what the service says."""
    path = profile_path(role)
    if not path.exists():
        if url is None:
            raise ConfigError("it is not known which pool to join", "pass --pool URL, the address of its service")
        access = ask_access(url, rpc)
        path.parent.mkdir(parents=True, exist_ok=True)
        access.save_deployment(path.parent / "deployment.json")
        session = open_session(path.parent / "deployment.json", ",".join(access.rpc))
        check_access(access, session.state())
        make_profile(role, access, rpc)
        typer.echo(f"profile: {path}")
    profile = load_profile(path)
    if profile.role != role:
        raise ConfigError(f"{path} is a profile of an {profile.role}", f"name that of an {role} with MUSTER_PROFILE")
    if url is not None and profile.service and url.rstrip("/") != profile.service.rstrip("/"):
        what = f"the profile {path} is for {profile.service}, not for {url}"
        raise ConfigError(what, "leave --pool out, or set MUSTER_PROFILE to another file for another pool")
    if profile.pool is None:
        raise ConfigError(f"the profile {path} names no pool", "set `pool` in it, or pass --pool URL")
    return profile


def check_machine(profile: Profile) -> None:
    """Raise ConfigError for a missing GPU, an isolation that was asked for by name and does not work, or a clock that
    the service would refuse, before any money moves."""
    if profile.engine.device.startswith("cuda") and not driver_answers():
        what = f"the profile computes on {profile.engine.device}, and no NVIDIA driver answers"
        raise ConfigError(what, 'install the driver, or set device = "cpu" under [engine] in the profile')
    own = profile.validator if profile.role == "validator" else profile.worker
    asked = {"isolation": profile.isolation, "isolation_image": profile.isolation_image} | own
    if asked["isolation"] in ("container", "bubblewrap"):
        from sandbox.launch import choose

        choose(asked["isolation"], asked["isolation_image"])
    if not profile.service:
        return
    try:
        offset = look_at_service(profile.service, allow_private=True).clock_offset
    except MusterError:
        return  # the service is down: the process waits for it
    if abs(offset) > WatchLimits().clock_seconds:
        raise ConfigError(f"this machine's clock is {offset:+.0f} s off the service's", "timedatectl set-ntp true")


def check_scoring(config: PoolConfig) -> None:
    """Raise ConfigError where this machine scores otherwise than the pool, whose honest node would then be slashed."""
    check_versions(config.environments, config.scoring_versions)
    quick_check()


def load_invite(path: Path, session: Session, pool: int, node: str) -> Invite:
    """Return the invite in a file. Raises ConfigError, IntegrityError unless the pool's owner signed it for `node`."""
    given, chain, now = load_document(path, Invite), session.client.chain_id, session.client.now()
    wanted = Invite(chain_id=chain, contract=session.suite.pools.address, pool=pool, node=node, expiry=now)
    given.check(wanted, session.pool(pool)["owner"], path)
    return given


# Step by step


class Up(ABC, Generic[F]):
    """Somebody on the way to working for its profile's pool. `process` runs once it can."""

    def __init__(self, profile: Profile, yes: bool = False) -> None:
        assert profile.pool is not None, "open_up_profile checked it"
        self.profile, self.yes, self.pool = profile, yes, profile.pool
        self.session = open_session(profile.deployment, profile.rpc)
        self.process: UpProcess | None = None

    next_step: Callable[[F], UpStep]

    @abstractmethod
    def facts(self) -> F:
        """Return what chain and files say now."""

    @abstractmethod
    def keys(self) -> dict[str, ProfileKey]:
        """Return the keys that it needs, the one with the money first, by what each is for."""

    @abstractmethod
    def terms(self, facts: F, amount: int) -> tuple[str, str]:
        """Return what somebody who stakes or bonds `amount` agrees to, and the question."""

    @abstractmethod
    def send(self, facts: F, step: UpStep, suite: Suite) -> str:
        """Take a step on chain as the key with the money; return what came of it."""

    @abstractmethod
    def work(self) -> int:
        """Run the process until it ends, and report when something changes; return its exit code."""

    def prepare(self) -> F:
        """Take every step until the process can work; return the facts then. Raises ConfigError if it cannot be."""
        while (step := self.next_step(facts := self.facts())).do is not UpDo.RUN:
            self.take(facts, step)
        return facts

    def take(self, facts: F, step: UpStep) -> None:
        """Take one step. Raises ConfigError for what only a person can change, ContractError for a refusal."""
        if step.do is UpDo.STOP:
            raise ConfigError(step.why)
        if step.do is UpDo.MAKE_KEYS:
            for what, key in self.keys().items():
                typer.echo(f"{what}'s key: {ensure_key(key.keystore, key.password_file)} in {key.keystore}")
        elif step.do in (UpDo.ETHER, UpDo.TOKENS):
            get_funds(self.session.suite, step, lambda: self.next_step(self.facts()).do is step.do)
        elif step.do is UpDo.ASK:
            terms, question = self.terms(facts, step.amount)
            typer.echo(terms)
            confirm(question)
            write_atomic(self.agreement, f"{int(time.time())}\n".encode())
        else:
            what, key = next(iter(self.keys().items()))
            account = open_key(key.keystore, key.password_file, f"{what} key")
            client = ChainClient(self.session.client.provider.urls, self.session.client.chain_id, account)
            typer.echo(f"{step.why}: {self.send(facts, step, Suite(client, self.session.deployment, check=False))}")
            client.close()

    @property
    def agreement(self) -> Path:
        """A file that says that the pool's terms were agreed to."""
        return self.profile.home / f"agreed-{self.pool}-{self.pool_of(self.session.state()).config_hash.hex()[:16]}"

    def pool_of(self, state: State) -> Pool:
        if self.pool not in state.pools:
            raise ConfigError(f"there is no pool {self.pool} on this deployment", "correct `pool` in the profile")
        return state.pools[self.pool]

    def run(self, dry_run: bool, as_json: bool) -> None:
        """Do all of it, or say what is next. Exits with the process's code unless that is 0."""
        if dry_run:
            step = self.next_step(self.facts())
            shown = {"dry_run": True, "next": step.do.value, "why": step.why, "amount": step.amount}
            emit(shown, as_json, lambda: f"next: {step.do.value}: {step.why}\ndry run: nothing was done")
            return
        check_machine(self.profile)
        try:
            self.prepare()
            code = self.work()
        except KeyboardInterrupt:
            typer.echo(f"stopped; {GOES_ON}", err=True)
            raise
        finally:
            if self.process is not None:
                self.process.supervisor.stop()
        if code:
            raise typer.Exit(code)


class NodeUp(Up[NodeFacts]):
    """One node. `wanted`: the stake that was asked for, in base units (0: the pool's least)."""

    next_step = staticmethod(next_node_step)

    def __init__(self, profile: Profile, wanted: int = 0, yes: bool = False, invite: Path | None = None) -> None:
        super().__init__(profile, yes)
        self._told = ""
        self._lends: bool | None = None
        self._wish: JoinRequest | None = None
        if profile.node is None:
            raise ConfigError("the profile names no key of the node", "add a table [node], or: muster init operator")
        self.wanted, self.node_key, self.invite = wanted, profile.node, None
        if invite is not None and not self.node_key.keystore.exists():
            raise MusterError("an invite is for a node that has a key", "run this without --invite first")
        if invite is not None:
            self.invite = load_invite(invite, self.session, self.pool, address_of(self.node_key.keystore))

    def keys(self) -> dict[str, ProfileKey]:
        return {"operator": self.profile.key, "node": self.node_key}

    def facts(self) -> NodeFacts:
        if not (self.profile.key.keystore.exists() and self.node_key.keystore.exists()):
            return NodeFacts(self.pool)
        operator, node = address_of(self.profile.key.keystore), address_of(self.node_key.keystore)
        client, state = self.session.client, self.session.state()
        price = client.gas_price()
        return node_facts(
            state,
            self.pool_of(state),
            operator,
            node,
            agreed=self.yes or self.agreement.exists(),
            operator_wei=client.balance(operator),
            operator_needs=ONBOARDING_GAS * price,
            tokens=self.session.suite.token.balance_of(operator),
            wanted=self.wanted,
            sponsored=self.lent(),
            invited=self.invite is not None,
        )

    def lent(self) -> bool:
        """Return whether the pool's service lends, asked until it answers; what it lends is the pool's least stake."""
        url = self.profile.service or self.pool_of(self.session.state()).service_url
        if self._lends is None and url and not self.wanted:
            with suppress(MusterError):
                self._lends = ask_service(url, POOL).lends
        return bool(self._lends)

    def pool_config(self) -> PoolConfig:
        """Return the pool's configuration document. Raises UnreachableError, IntegrityError."""
        pool = self.session.state().pools[self.pool]
        return fetch_pool_config(self.profile.service or pool.service_url, pool.config_hash)

    def terms(self, facts: NodeFacts, amount: int) -> tuple[str, str]:
        state, now, config = self.session.state(), self.session.client.now(), self.pool_config()
        check_scoring(config)
        terms = terms_for_node(state, state.pools[self.pool], config, amount, now)
        return terms, "Register, stake and join under these terms?"

    def take(self, facts: NodeFacts, step: UpStep) -> None:
        """To be sponsored, ask the pool's service, and say once why it cannot lend now."""
        if step.do is not UpDo.SPONSOR:
            return super().take(facts, step)
        pool, suite = self.pool_of(self.session.state()), self.session.suite
        node = open_key(self.node_key.keystore, self.node_key.password_file, "node key")
        if self._wish is None or self._wish.expiry < suite.client.now() + 60:
            self._wish = join_request(suite, node, facts.operator, pool.service, self.pool)
        with sponsor_of(self.session, pool, node, self.profile.service) as service:
            why = service.join(self._wish).reason
        why = f"{why}. Or send {facts.operator} what it takes to join by itself" if why else step.why
        if why != self._told:
            self._told = why
            typer.echo(why)
        time.sleep(_FUNDS_SECONDS)

    def send(self, facts: NodeFacts, step: UpStep, suite: Suite) -> str:
        if step.do is UpDo.REGISTER:
            expiry = suite.client.now() + _CONSENT_SECONDS
            node = open_key(self.node_key.keystore, self.node_key.password_file, "node key")
            consent = suite.stakes.sign_consent(node, facts.operator, expiry)
            call = suite.stakes.register_node(facts.node, facts.operator, 0, step.amount, expiry, consent)
        elif step.do is UpDo.DEPOSIT:
            call = suite.stakes.deposit(facts.node, step.amount)
        elif self.invite is not None and facts.invite_only:
            invite = self.invite
            call = suite.pools.join(self.pool, facts.node, invite.expiry, invite=invite.signature)
        else:
            call = suite.pools.join(self.pool, facts.node)
        receipt = call.send()
        return f"block {receipt.block}, gas {receipt.gas_used}, {receipt.tx_hash}"

    def work(self) -> int:
        path = write_config(self.profile, "worker", unattended=True)
        typer.echo(isolation_words(path, WorkerConfig))
        process = self.process = UpProcess("worker", self.profile, path)

        def report() -> str:
            facts, state, now = self.facts(), self.session.state(), self.session.client.now()
            step = next_node_step(facts)
            line = earned_line(state, self.pool, facts.node, now, last_line(process.log_path))
            if step.do in (UpDo.RUN, UpDo.STOP):
                return line
            return f"{line}\nto do: {step.why}; run `muster node up` again to see to it"

        process.start()
        return process.run(report)


@contextmanager
def sponsor_of(
    session: Session, pool: Pool, node: LocalAccount, url: str | None = None
) -> Iterator[OrchestratorClient]:
    """Open the service of a pool, asked by a node. Raises ConfigError where the pool announced none."""
    if not (url or pool.service_url) or not pool.service:
        raise ConfigError(f"the owner of pool {pool.pool} announced no service", "join as its operator, with a stake")
    named = PoolId(session.client.chain_id, session.suite.pools.address, pool.pool)
    with closing(OrchestratorClient(url or pool.service_url, node, named)) as service:
        yield service


def node_facts(state: State, pool: Pool, operator: str, node: str, **more: Any) -> NodeFacts:
    """Return what the chain's state says of a node and the pool that it is to join; `more`: other fields."""
    record = state.nodes.get(node)
    return NodeFacts(
        pool.pool,
        operator,
        node,
        registered_to=record.operator if record else "",
        stake=record.stake if record else 0,
        least=pool.terms.minStake,
        standing=standing_of(state.accounts.get((pool.pool, node))),
        pool_status=pool.status,
        invite_only=pool.terms.inviteOnly,
        elsewhere=record.pool if record and record.pool not in (0, pool.pool) else 0,
        **more,
    )


def earned_line(state: State, pool: int, node: str, now: int, newest: str = "") -> str:
    """Return a node's files and pay so far; before the first file the `newest` line of its worker's log."""
    account, files = state.accounts.get((pool, node)), state.submissions_of(pool, node)
    if account is None or not files:
        return "no file handed in yet" + (f"; the worker says: {newest}" if newest else "")
    count, rate = Counter(file.status for file in files), state.pools[pool].terms.rate
    waiting, accepted = count[Status.PENDING], count[Status.ACCEPTED]
    earned, claimable = account.units_awarded * rate, state.claimable_units(pool, node, now) * rate
    return (
        f"files: {accepted} accepted, {len(files) - waiting - accepted} refused, {waiting} being checked · earned "
        f"{show_tokens(earned)} tokens, paid {show_tokens(account.paid)}, claimable {show_tokens(claimable)}"
    )


class ValidatorUp(Up[ValidatorFacts]):
    """One validator. Its process is started as soon as it is to become warm."""

    next_step = staticmethod(next_validator_step)

    def __init__(self, profile: Profile, yes: bool = False) -> None:
        super().__init__(profile, yes)
        self._told = ""
        if not profile.voters:
            raise ConfigError("the profile names no voting key", "add a table [[voters]], or: muster init validator")

    def keys(self) -> dict[str, ProfileKey]:
        return {"owner": self.profile.key} | {f"voter {n}": key for n, key in enumerate(self.profile.voters, 1)}

    @property
    def ready(self) -> Path:
        """The file that appears once the process can judge."""
        return self.profile.home / "validator" / READY

    def facts(self) -> ValidatorFacts:
        if not all(key.keystore.exists() for key in self.keys().values()):
            return ValidatorFacts(self.pool)
        owner, *voters = (address_of(key.keystore) for key in self.keys().values())
        client, state = self.session.client, self.session.state()
        pool, price = self.pool_of(state), client.gas_price()
        seats = {seat.voter: seat for seat in state.seats.values() if seat.active and seat.voter in voters}
        ours = {voter: seat.groups for voter, seat in seats.items() if seat.owner == owner}
        seated = frozenset(voter for voter, groups in ours.items() if pool.validator_group in groups)
        return ValidatorFacts(
            self.pool,
            owner,
            tuple((voter, client.balance(voter)) for voter in voters),
            agreed=self.yes or self.agreement.exists(),
            owner_wei=client.balance(owner),
            owner_needs=BONDING_GAS * len(voters) * price,
            voter_needs=WORKING_GAS * price,
            tokens=self.session.suite.token.balance_of(owner),
            bond=self.session.suite.seats.bond(),
            seated=seated,
            idle=frozenset(ours) - seated,
            foreign=frozenset(seats) - frozenset(ours),
            warm=self.process is not None and self.ready.exists(),
            pool_status=pool.status,
        )

    def terms(self, facts: ValidatorFacts, amount: int) -> tuple[str, str]:
        pool, values = self.pool_of(self.session.state()), self.session.suite.params.values()
        terms = {
            "pool": self.pool,
            "bond": f"{show_tokens(amount)} tokens for {counted(len(facts.voters), 'seat')}",
            "fee": f"{show_tokens(pool.terms.fee)} tokens per file and seat that votes with the outcome",
            "a vote against the outcome": f"costs {show_tokens(values['minorityPenalty'])} tokens",
            "a vote that is missing": f"costs {show_tokens(values['withheldPenalty'])} tokens: keep it running",
            "a planted file let pass": f"costs {show_tokens(values['canarySlash'])} tokens",
            "a vote is due": f"within {seconds(pool.terms.commitWindow)}",
        }
        return fields(terms), "Bond under these terms, once the process can judge?"

    def start(self) -> None:
        """Start the process, which becomes warm by itself."""
        path = write_config(self.profile, "validator", unattended=True)
        for path_of_before in (self.ready, self.ready.with_name(UNSERVED)):
            path_of_before.unlink(missing_ok=True)
        typer.echo(isolation_words(path, ValidatorConfig))
        self.process = UpProcess("validator", self.profile, path)
        self.process.start()

    def take(self, facts: ValidatorFacts, step: UpStep) -> None:
        """To become warm, start the process or wait for it, and say why it is not ready when that changes."""
        if step.do is not UpDo.WARM:
            return super().take(facts, step)
        if self.process is None:
            typer.echo(f"{step.why}; seats are bonded after that")
            self.start()
            return
        self.process.supervisor.check()
        why = unserved_pools(self.ready.parent).get(str(self.pool), "")
        if why != self._told:
            self._told = why
            typer.echo(f"the process is not ready yet: {why}" if why else "the process gets ready")
        time.sleep(_WARM_SECONDS)

    def send(self, facts: ValidatorFacts, step: UpStep, suite: Suite) -> str:
        state = self.session.state()
        group = state.pools[self.pool].validator_group
        if step.do is UpDo.BOND:
            number = suite.seats.open_seat(step.address, [group]).send()
        else:
            number = next(seat.seat for seat in state.seats.values() if seat.active and seat.voter == step.address)
            suite.seats.opt_in(number, group).send()
        return f"seat {number}, from the next epoch on"

    def work(self) -> int:
        """Asked to stop, the process first opens the votes that are due."""
        if self.process is None:
            self.start()
        assert self.process is not None

        def report() -> str:
            owner = address_of(self.profile.key.keystore)
            seats = [seat for seat in self.session.state().seats.values() if seat.owner == owner]
            fees, lost = (show_tokens(sum(getattr(seat, name) for seat in seats)) for name in ("earned", "penalised"))
            active = counted(sum(seat.active for seat in seats), "seat")
            return f"{active} active · fees {fees} tokens, penalties {lost} tokens"

        return self.process.run(report, self.votes_due)

    def votes_due(self) -> str:
        """Return which votes of this owner's seats are not opened yet, in words; empty when none is."""
        state, owner = self.session.state(), address_of(self.profile.key.keystore)
        seats = [seat.seat for seat in state.seats.values() if seat.owner == owner and not seat.closed]
        due = [vote for seat in seats for vote in open_rounds(state, seat) if not vote["revealed"]]
        if not due:
            return ""
        lost = show_tokens(self.session.suite.params.values()["withheldPenalty"])
        return f"{counted(len(due), 'vote')} not opened yet; each that is missing costs {lost} tokens"
