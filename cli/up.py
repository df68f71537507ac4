"""`muster node up` and `muster validator up`: look at chain and files, take the next step, run the process.

`cli.steps` decides what is next. What a key lacks comes from a local chain's faucet, or the shell says what to send
where and waits for it.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from chain.client import ChainClient
from chain.indexer.records import Seat, Status
from chain.indexer.state import State, standing_of
from chain.suite import Suite
from chain.transactions import Receipt
from cli.diagnose import unserved_pools
from cli.hardware import gpus
from cli.init import make_profile
from cli.output import counted, fields, seconds
from cli.pool_document import fetch_pool_config
from cli.process import UpProcess, isolation_words, joined_config
from cli.profile import Profile, ProfileKey, Role, load_profile, profile_path
from cli.session import Session, ask_access, check_access, open_session
from cli.steps import NodeFacts, UpDo, UpStep, ValidatorFacts, next_node_step, next_validator_step
from cli.views import open_rounds
from protocol.config import PoolConfig
from protocol.encoding import show_tokens
from protocol.errors import ConfigError, MusterError
from protocol.files import write_atomic
from protocol.waits import WAITS
from runtime.diagnose import ServiceView, WatchLimits
from runtime.keystore import address_of, ensure_key, open_key
from validator.config import READY, UNSERVED

if TYPE_CHECKING:
    from chain.contracts import ContractCall
    from cli.authorisations import Invite
    from protocol.accounts import LocalAccount

ETHER = 10**18
ONBOARDING_GAS = 700_000
"""Registering, staking and joining, with room."""
WORKING_GAS = 5_000_000
"""Some eighty files of a node, or forty lanes of a voter."""
BONDING_GAS = 500_000
"""Approving and bonding a seat, with room; for each voting key."""
_LOCAL_CHAINS = frozenset({31337})
_ETHER_FAUCETS = {84532: "https://docs.base.org/base-chain/tools/network-faucets"}
_CONSENT_SECONDS = 3600
_FUNDS_SECONDS, _PAUSED_SECONDS, _WARM_SECONDS, _REMIND_SECONDS, _REPORT_SECONDS = 3.0, 5.0, 1.0, 60.0, 10.0


class LocalFaucet:
    """A development chain (anvil) lets anybody set balances and send as anybody."""

    def __init__(self, suite: "Suite") -> None:
        self._suite = suite
        self._ask = suite.client.request

    @classmethod
    def of(cls, suite: "Suite") -> "LocalFaucet | None":
        """That of the suite's chain; None on a chain where ether or tokens could be worth anything."""
        if suite.client.chain_id not in _LOCAL_CHAINS or not suite.deployment.token.ours:
            return None
        version = str(suite.client.w3.client_version)
        return cls(suite) if version.startswith("anvil/") else None

    def ether(self, address: str, wei: int) -> None:
        self._ask("anvil_setBalance", [address, hex(wei)])

    def tokens(self, address: str, base_units: int) -> None:
        """Mint as the token's owner."""
        token = self._suite.token
        owner, call = token.read("owner"), token.mint(address, base_units)
        self.ether(owner, 10**18)
        self._ask("anvil_impersonateAccount", [owner])
        try:
            sent = self._ask("eth_sendTransaction", [dict(call.fields(owner))])
            self._suite.client.w3.eth.wait_for_transaction_receipt(sent, timeout=60)
        finally:
            self._ask("anvil_stopImpersonatingAccount", [owner])


def ether_hint(chain_id: int) -> str:
    """Where ether for gas comes from."""
    faucet = _ETHER_FAUCETS.get(chain_id)
    return f"free from {faucet}" if faucet else "from whoever has some on that chain"


def get_ether(suite: Suite, address: str, missing: int, why: str) -> None:
    """Return once the address has `missing` wei more than now."""
    have = suite.client.balance(address)
    if (faucet := LocalFaucet.of(suite)) is not None:
        faucet.ether(address, max(have + 3 * missing, ETHER))
        typer.echo(f"gas for {address}: from the local chain")
        return
    what = f"{missing / ETHER:.6f} ETH on chain {suite.client.chain_id}"
    _ask(f"{why}: send {what} to {address} ({ether_hint(suite.client.chain_id)})")
    _wait(f"{what} at {address}", lambda: suite.client.balance(address) >= have + missing)


def get_tokens(suite: Suite, address: str, missing: int, why: str) -> None:
    """Return once the address has `missing` base units more than now."""
    have = suite.token.balance_of(address)
    if (faucet := LocalFaucet.of(suite)) is not None:
        faucet.tokens(address, missing)
        typer.echo(f"{show_tokens(missing)} tokens for {address}: from the local chain")
        return
    what, amount = f"{show_tokens(missing)} tokens", show_tokens(missing)
    source = f"whoever has some runs `muster keys send --to {address} --amount {amount}`"
    _ask(f"{why}: send {what} (contract {suite.token.address}) to {address}; {source}")
    _wait(f"{what} at {address}", lambda: suite.token.balance_of(address) >= have + missing)


def _ask(line: str) -> None:
    typer.echo(f"{line}\nThis goes on by itself once it is there; Ctrl-C stops it, and it can be run again.")


def _wait(what: str, there: Callable[[], bool]) -> None:
    with WAITS.on(what):
        while not there():
            time.sleep(_FUNDS_SECONDS)


def take_shared(step: UpStep, suite: Suite, keys: Iterable[tuple[str, ProfileKey]]) -> bool:
    """Take the step if it is one of these: make `keys` (what for → key), get ether or tokens. Raises ConfigError for
    STOP: only a person can change that."""
    if step.do is UpDo.STOP:
        raise ConfigError(*_split(step.why))
    if step.do is UpDo.MAKE_KEYS:
        for what, key in keys:
            typer.echo(f"{what}'s key: {ensure_key(key.keystore, key.password_file)} in {key.keystore}")
    elif step.do is UpDo.ETHER:
        get_ether(suite, step.address, step.amount, step.why)
    elif step.do is UpDo.TOKENS:
        get_tokens(suite, step.address, step.amount, step.why)
    else:
        return False
    return True


def _split(why: str) -> tuple[str, str]:
    for mark in (": ", "; "):
        what, found, hint = why.partition(mark)
        if found:
            return what, hint
    return why, ""


def earned_line(state: State, pool: int, node: str, now: int, said: str = "") -> str:
    """A node's files and pay so far, before the first file what its worker `said` last; `now` is chain time."""
    account, files = state.accounts.get((pool, node)), state.submissions_of(pool, node)
    if account is None or not files:
        return "no file handed in yet" + (f"; the worker says: {said}" if said else "")
    count, rate = Counter(file.status for file in files), state.pools[pool].terms.rate
    waiting, accepted = count[Status.PENDING], count[Status.ACCEPTED]
    refused = len(files) - waiting - accepted
    claimable = state.claimable_units(pool, node, now) * rate
    return (
        f"files: {accepted} accepted, {refused} refused, {waiting} being checked · earned "
        f"{show_tokens(account.units_awarded * rate)} tokens, paid {show_tokens(account.paid)}, "
        f"claimable {show_tokens(claimable)}"
    )


def seats_line(state: State, owner: str) -> str:
    """What the seats of an owner earned and lost so far, losses not hidden behind earnings."""
    seats = [seat for seat in state.seats.values() if seat.owner == owner]
    earned, lost = sum(seat.earned for seat in seats), sum(seat.penalised for seat in seats)
    active = sum(seat.active for seat in seats)
    return f"{counted(active, 'seat')} active · fees {show_tokens(earned)} tokens, penalties {show_tokens(lost)} tokens"


def open_up_profile(role: Role, url: str | None, rpc: str | None) -> Profile:
    """Raises ConfigError if there is neither a profile nor a URL, or the profile is of another role or pool;
    IntegrityError if the chain does not bear out what the service says."""
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
    """Raise ConfigError for what would keep the process from working, before any money moves: a GPU that is not there,
    or a clock that the pool's service would refuse."""
    if profile.engine.device.startswith("cuda") and not gpus():
        what = f"the profile computes on {profile.engine.device}, and no NVIDIA driver answers"
        raise ConfigError(what, 'install the driver, or set device = "cpu" under [engine] in the profile')
    if not profile.service:
        return
    try:
        view = ServiceView(profile.service, allow_private=True)
        try:
            offset = view.look().clock_offset
        finally:
            view.close()
    except MusterError:
        return  # the service is down: the process waits for it
    if abs(offset) > WatchLimits().clock_seconds:
        raise ConfigError(f"this machine's clock is {offset:+.0f} s off the service's", "timedatectl set-ntp true")


def check_scoring(config: PoolConfig) -> None:
    """Raise ConfigError where this machine scores otherwise than the pool, whose honest node would then be slashed."""
    from environments.conformance import quick_check
    from environments.registry import check_versions

    check_versions(config.environments, config.scoring_versions)
    quick_check()


# ---- A node


@dataclass
class NodeUp:
    """One node on its way into its profile's pool. `wanted`: the stake that was asked for, in base units (0: the pool's
    least)."""

    profile: Profile
    wanted: int = 0
    invite: "Invite | None" = None
    yes: bool = False
    session: Session = field(init=False)

    def __post_init__(self) -> None:
        self.session = open_session(self.profile.deployment, self.profile.rpc)

    @property
    def pool(self) -> int:
        assert self.profile.pool is not None, "open_up_profile checked it"
        return self.profile.pool

    @property
    def node_key(self) -> ProfileKey:
        if self.profile.node is None:
            raise ConfigError("the profile names no key of the node", "add a table [node], or: muster init operator")
        return self.profile.node

    # ---- Looking

    def facts(self) -> NodeFacts:
        """What chain and files say now."""
        if not (self.profile.key.keystore.exists() and self.node_key.keystore.exists()):
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
            step = next_node_step(facts)
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
            time.sleep(_PAUSED_SECONDS)
        else:
            self._send(facts, step)

    def pool_config(self) -> PoolConfig:
        """The pool's configuration document. Raises UnreachableError, IntegrityError."""
        pool = self.session.state().pools[self.pool]
        return fetch_pool_config(self.profile.service or pool.service_url, pool.config_hash)

    def _ask(self, stake: int) -> None:
        from cli.plan import confirm
        from cli.views import terms_for_node

        state, now = self.session.state(), self.session.client.now()
        pool = state.pools[self.pool]
        config = self.pool_config()
        check_scoring(config)
        typer.echo(terms_for_node(state, pool, config, stake, now))
        confirm("Register, stake and join under these terms?")
        write_atomic(self._agreement(pool.config_hash), f"{int(time.time())}\n".encode())

    def _send(self, facts: NodeFacts, step: UpStep) -> None:
        operator = self._as(open_key(self.profile.key.keystore, self.profile.key.password_file, "operator key"))
        call: ContractCall[Receipt]
        if step.do is UpDo.REGISTER:
            expiry = operator.client.now() + _CONSENT_SECONDS
            node = open_key(self.node_key.keystore, self.node_key.password_file, "node key")
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

    def work(self) -> int:
        """Run the worker until it ends, and report when something changes or is missing; return its exit code."""
        path = joined_config(self.profile, unattended=True)
        typer.echo(isolation_words(path))
        process, shown = UpProcess("worker", self.profile, path), [""]

        def report() -> None:
            from runtime.presence import last_line

            try:
                facts = self.facts()
                step = next_node_step(facts)
                state, now = self.session.state(), self.session.client.now()
                lines = [earned_line(state, self.pool, facts.node, now, last_line(process.log_path))]
                if step.do not in (UpDo.RUN, UpDo.STOP):
                    lines.append(f"to do: {step.why}; run `muster node up` again to see to it")
            except MusterError as error:
                lines = [f"trouble: {error}; the worker goes on by itself"]
            if lines != shown:
                shown[:] = lines
                typer.echo("\n".join(lines))

        process.start()
        return process.run(report, _REPORT_SECONDS)


def load_invite(path: Path | None, up: NodeUp) -> "Invite | None":
    """The invite in a file, checked against pool and owner. Raises ConfigError, IntegrityError."""
    from cli.authorisations import Invite
    from protocol.encoding import load_document

    if path is None:
        return None
    if not up.node_key.keystore.exists():
        raise MusterError("an invite is for a node that has a key", "run this without --invite first")
    given, session = load_document(path, Invite), up.session
    pools, node = session.suite.pools.address, address_of(up.node_key.keystore)
    now, owner = session.client.now(), session.pool(up.pool).owner
    wanted = Invite(chain_id=session.client.chain_id, contract=pools, pool=up.pool, node=node, expiry=now)
    given.check(wanted, owner, path)
    return given


# ---- A validator


@dataclass
class ValidatorUp:
    """One validator on its way to judging its profile's pool. The process is started as soon as it is to become
    warm."""

    profile: Profile
    yes: bool = False
    session: Session = field(init=False)
    process: UpProcess | None = None
    _since: str = ""
    _said: tuple[str, float] = ("", 0.0)

    def __post_init__(self) -> None:
        self.session = open_session(self.profile.deployment, self.profile.rpc)
        if not self.profile.voters:
            raise ConfigError("the profile names no voting key", "add a table [[voters]], or: muster init validator")

    @property
    def pool(self) -> int:
        assert self.profile.pool is not None, "open_up_profile checked it"
        return self.profile.pool

    # ---- Looking

    def facts(self) -> ValidatorFacts:
        """What chain, files and process say now."""
        if not all(key.keystore.exists() for key in (self.profile.key, *self.profile.voters)):
            return ValidatorFacts(self.pool)
        owner = address_of(self.profile.key.keystore)
        voters = [address_of(one.keystore) for one in self.profile.voters]
        client, state = self.session.client, self.session.state()
        pool = state.pools.get(self.pool)
        if pool is None:
            raise ConfigError(f"there is no pool {self.pool} on this deployment", "correct `pool` in the profile")
        price, seats = client.gas_price(), [seat for seat in state.seats.values() if seat.active]
        ours = {seat.voter: seat for seat in seats if seat.owner == owner}
        return ValidatorFacts(
            self.pool,
            owner,
            tuple((voter, client.balance(voter)) for voter in voters),
            agreed=self.yes or self._agreement.exists(),
            owner_wei=client.balance(owner),
            owner_needs=BONDING_GAS * len(voters) * price,
            voter_needs=WORKING_GAS * price,
            tokens=self.session.suite.token.balance_of(owner),
            bond=self.session.suite.seats.bond(),
            seated=frozenset(voter for voter in voters if _judges(ours.get(voter), pool.validator_group)),
            idle=frozenset(v for v in voters if v in ours and not _judges(ours[v], pool.validator_group)),
            foreign=frozenset(seat.voter for seat in seats if seat.voter in voters and seat.owner != owner),
            warm=self.process is not None and self.ready.exists(),
            pool_status=pool.status,
        )

    @property
    def ready(self) -> Path:
        """Appears once the process can judge."""
        return self.profile.home / READY

    @property
    def _agreement(self) -> Path:
        return self.profile.home / f"agreed-{self.pool}"

    # ---- Acting

    def prepare(self) -> None:
        """Take every step until all seats judge. Raises ConfigError if that cannot be."""
        while (step := next_validator_step(facts := self.facts())).do is not UpDo.RUN:
            self.take(facts, step)

    def take(self, facts: ValidatorFacts, step: UpStep) -> None:
        """One step. Raises ConfigError for what only a person can change, ContractError for a refusal."""
        voters = ((f"voter {number}", key) for number, key in enumerate(self.profile.voters, 1))
        if take_shared(step, self.session.suite, (("owner", self.profile.key), *voters)):
            return
        if step.do is UpDo.ASK:
            self._ask(facts, step.amount)
        elif step.do is UpDo.WARM:
            self._warm(step)
        else:
            self._bond(step)

    def _ask(self, facts: ValidatorFacts, bonds: int) -> None:
        from cli.plan import confirm

        pool, values = self.session.state().pools[self.pool], self.session.suite.params.values()
        terms = {
            "pool": self.pool,
            "bond": f"{show_tokens(bonds)} tokens for {len(facts.voters)} seats",
            "fee": f"{show_tokens(pool.terms.fee)} tokens per file and seat that votes with the outcome",
            "a vote against the outcome": f"costs {show_tokens(values['minorityPenalty'])} tokens",
            "a vote that is missing": f"costs {show_tokens(values['withheldPenalty'])} tokens: keep it running",
            "a planted file let pass": f"costs {show_tokens(values['canarySlash'])} tokens",
            "a vote is due": f"within {seconds(pool.terms.commitWindow)}",
        }
        typer.echo(fields(terms))
        confirm("Bond under these terms, once the process can judge?")
        write_atomic(self._agreement, f"{int(time.time())}\n".encode())

    def start(self) -> None:
        """Start the process, which becomes warm by itself."""
        path = joined_config(self.profile, unattended=True)
        for told in (self.ready, self.profile.home / UNSERVED):
            told.unlink(missing_ok=True)
        self.process = UpProcess("validator", self.profile, path)
        self.process.start()

    def _warm(self, step: UpStep) -> None:
        if self.process is None:
            typer.echo(f"{step.why}; seats are bonded after that")
            self._since, self._said = time.strftime("%H:%M:%S"), ("", time.monotonic())
            self.start()
        else:
            self.process.check()
            self._say_why()
            time.sleep(_WARM_SECONDS)

    def _say_why(self) -> None:
        """What the process, which tries again by itself, says of why it is not ready: when that changes, and every
        minute."""
        why, (said, when) = unserved_pools(self.profile.home).get(str(self.pool), ""), self._said
        if why != said or time.monotonic() >= when + _REMIND_SECONDS:
            self._said = why, time.monotonic()
            typer.echo(f"waiting for the process to be ready since {self._since}" + (f": {why}" if why else ""))

    def _bond(self, step: UpStep) -> None:
        client = ChainClient(
            self.session.client.provider.urls,
            self.session.client.chain_id,
            open_key(self.profile.key.keystore, self.profile.key.password_file, "owner key"),
        )
        seats, state = Suite(client, self.session.deployment, check=False).seats, self.session.state()
        wanted = state.pools[self.pool].validator_group
        if step.do is UpDo.BOND:
            number = seats.open_seat(step.address, [wanted]).send()
        else:
            number = next(seat.seat for seat in state.seats.values() if seat.active and seat.voter == step.address)
            seats.opt_in(number, wanted).send()
        typer.echo(f"{step.why}: seat {number}, from the next epoch on")
        client.close()

    def work(self) -> int:
        """Run the process until it ends, and report what the seats earned whenever that changes; return its exit code.
        Asked to stop, it first opens the votes that are due."""
        if self.process is None:
            self.start()
        process, shown = self.process, [""]

        def report() -> None:
            try:
                line = seats_line(self.session.state(), self.facts().owner)
            except MusterError as error:
                line = f"trouble: {error}; the process goes on by itself"
            if line != shown[0]:
                shown[0] = line
                typer.echo(line)

        assert process is not None
        return process.run(report, _REPORT_SECONDS, self.votes_due)

    def votes_due(self) -> str:
        """Return which votes of this owner's seats are not opened yet, in words; empty when none is."""
        state, owner = self.session.state(), address_of(self.profile.key.keystore)
        seats = [seat.seat for seat in state.seats.values() if seat.owner == owner and not seat.closed]
        due = [one for seat in seats for one in open_rounds(state, seat) if not one["revealed"]]
        if not due:
            return ""
        lost = show_tokens(self.session.suite.params.values()["withheldPenalty"])
        return f"{counted(len(due), 'vote')} not opened yet; each that is missing costs {lost} tokens"


def _judges(seat: Seat | None, wanted: int) -> bool:
    return seat is not None and wanted in seat.groups
