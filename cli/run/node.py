"""`muster node`: what a node's operator does, from trying the machine to taking the stake back."""

import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from cli import options
from cli.hardware import device_files, driver_answers
from cli.options import Commands
from cli.output import clock, emit, seconds
from cli.plan import PlannedTransaction, act, confirm
from cli.profile import find_profile
from protocol.encoding import load_document, show_tokens
from protocol.errors import ConfigError
from protocol.files import user_cache

if TYPE_CHECKING:
    from chain.contracts import ContractCall
    from cli.pool.authorisations import Consent
    from cli.session import Session
    from protocol.accounts import LocalAccount

app = Commands(help="Run a node: try it, join, earn, leave.", no_args_is_help=True)
_CONSENT_SECONDS, _PAPER_SECONDS = 3600, 86_400
_LEAVE_SECONDS = 120.0


# Working


@app.command("up", "muster node up --pool https://pool.example")
def up(
    by: options.UpOptions,
    stake: Annotated[
        int | None, options.tokens_option("--stake", "Tokens to stake; the pool's least if missing.")
    ] = None,
    invite: options.InviteOption = None,
    config: options.OwnConfigOption = None,
) -> None:
    """Take whatever steps are missing, then work.

    Profile, keys, gas, tokens, registration, stake, joining, worker: it shows the pool's terms and asks once. What the
    operator lacks, the pool's service lends, if its owner allows it. It can be stopped and run again at any point. Exit
    code 3: the node was ejected."""
    if config is not None:
        from worker.main import run

        run(config)
        return
    from cli.run.up import NodeUp, open_up_profile

    profile = open_up_profile("operator", by.url, by.rpc)
    NodeUp(profile, stake or 0, by.yes, invite).run(by.dry_run, by.json)


@app.command("check", "muster node check --pool https://pool.example")
def check(pool: options.PoolOption = None, json: options.JsonOption = False) -> None:
    """Say what this machine can serve of a pool's model, from the pool's documents alone.

    It looks at cards, memory, torch's build and the precision of float32. Exit code 1 if the machine cannot serve."""
    from cli.diagnose.checks import hardware, serving

    profile = find_profile("operator")
    url = pool.url if pool and pool.url else profile.service if profile else None
    if not url:
        raise ConfigError("no pool's service is named", "pass --pool URL")
    device = profile.engine.device if profile else "cuda" if driver_answers() or device_files() else "cpu"
    checks = [*hardware(device), serving(url)]
    sound = all(check.state != "failed" for check in checks)
    emit([asdict(check) for check in checks], json, lambda: "\n".join(check.line() for check in checks), sound)


@app.command("dry-run", "muster node dry-run --worker vllm:bfloat16:cuda")
def dry_run(
    look: options.PoolReading,
    worker: Annotated[
        str | None, Option(metavar="ENGINE:DTYPE:DEVICE", help="What makes it; else the profile's.")
    ] = None,
    cache: options.CacheOption = None,
    allow_private_sources: options.PrivateOption = False,
) -> None:
    """Make one file from the pool's weights and judge it as validators would, without key, stake or sending.

    Exit code 1 if it would be refused."""
    from cli.run.dry_run import dry_run_text, make_and_judge
    from runtime.process import EngineConfig

    profile = find_profile("operator")
    folder = cache or (profile.cache if profile else user_cache("weights"))
    private = allow_private_sources or bool(profile and profile.allow_private_sources)
    observer = look.observer(EngineConfig(), user_cache("dry-run"), folder, private)
    view = make_and_judge(observer, profile, worker)
    emit(view, look.json, lambda: dry_run_text(view), sound=view["accepted"])


# Membership


@dataclass(frozen=True)
class NodeKeyOptions:
    """The key of a node that is not registered yet, or its consent."""

    node_keystore: Annotated[Path | None, Option(help="Key file of a node that is not registered yet.")] = None
    node_password_file: Annotated[Path | None, Option(help="Password of the node's key.")] = None
    consent: Annotated[Path | None, Option(help="Instead of its key: the node's consent (--consent-to).")] = None

    def open(self) -> "LocalAccount":
        from runtime.keystore import open_key

        return open_key(options.key_path(self.node_keystore), self.node_password_file, "node key")


StakeOption = Annotated[int | None, options.tokens_option("--stake", "Tokens to stake, besides what is at stake.")]
ConsentToOption = Annotated[
    str | None, options.address_option("--consent-to", "Just write a day's consent to this operator, to --consent.")
]


@app.command("join", "muster node join --pool 1 --node-keystore node.json --stake 250 --dry-run")
def join(
    by: options.PoolPaying,
    key: NodeKeyOptions,
    node: Annotated[str | None, options.address_option("--node", "Address of a node that is registered.")] = None,
    stake: StakeOption = None,
    consent_to: ConsentToOption = None,
    invite: options.InviteOption = None,
) -> None:
    """Register a node, stake for it and join a pool, as its operator: whatever of this is missing."""
    from cli.diagnose.views import judging_seats, seats_line
    from cli.pool.authorisations import Consent
    from cli.run.steps import node_refusal
    from cli.run.up import load_invite, node_facts
    from runtime.keystore import address_of

    if consent_to is not None:
        return write_consent(by, key, consent_to)
    session = by.open()
    number, state, operator = by.number(session), session.state(), session.client.address
    paper = load_document(key.consent, Consent) if key.consent else None
    name = node or (address_of(key.node_keystore) if key.node_keystore else paper.node if paper else None)
    if name is None:
        raise ConfigError("no node is named", "pass --node, --node-keystore or --consent")
    pool, record = state.pools[number], state.nodes.get(name)
    given = load_invite(invite, session, number, name) if invite else None
    # The refusals of the last transaction come before the first locks a stake.
    facts = node_facts(state, pool, operator, name, invited=invite is not None)
    if refusal := node_refusal(facts):
        raise ConfigError(refusal.why)
    joins, planned, suite = record is None or record.pool != number, [], session.suite
    if record is None:
        signed = _node_consent(session, key, paper)
        amount = stake or pool.terms.minStake
        terms = signed.node, operator, 0, amount, signed.expiry, signed.signature
        call: ContractCall[Any] = suite.stakes.register_node(*terms)
        planned.append(PlannedTransaction(f"register node {name} and stake {show_tokens(amount)} tokens", call))
    elif stake:
        call = suite.stakes.deposit(name, stake)
        planned.append(PlannedTransaction(f"add {show_tokens(stake)} tokens to the stake of node {name}", call))
    if joins:
        invited: dict[str, Any] = {"expiry": given.expiry, "invite": given.signature} if given else {}
        call = suite.pools.join(number, name, **invited)
        planned.append(PlannedTransaction(f"node {name} joins pool {number}", call, after=bool(planned)))
    elif stake:
        refresh = suite.pools.refresh(number, name)
        planned.append(PlannedTransaction(f"raise its limit in pool {number}", refresh, after=True))
    if not planned:
        raise ConfigError(f"node {name} is in pool {number} already", "pass --stake to add to its stake")
    if not by.json:
        pay, after = show_tokens(pool.terms.rate), seconds(pool.terms.challengeWindow)
        typer.echo(f"pool {number} pays {pay} tokens per verified output token, {after} after acceptance")
        typer.echo(f"configuration SHA-256 {pool.config_hash.hex()}; {seats_line(judging_seats(state, pool))}")
    act(session, planned, by, pool=number, node=name, operator=operator, added=stake or 0)


def _node_consent(session: "Session", key: NodeKeyOptions, paper: "Consent | None") -> "Consent":
    """Return the node's consent to this operator: that `paper`, or one signed now with the node's key."""
    from cli.pool.authorisations import Consent

    if (key.node_keystore is None) == (paper is None):
        what = "the node is not registered, and its consent is missing or given twice"
        raise ConfigError(what, "pass --node-keystore or --consent")
    stakes, now = session.suite.stakes.address, session.client.now()
    consents = partial(Consent, chain_id=session.client.chain_id, contract=stakes, operator=session.client.address)
    if paper is not None and key.consent is not None:
        paper.check(consents(node=paper.node, expiry=now), paper.node, key.consent)
        return paper
    account = key.open()
    return consents(node=str(account.address), expiry=now + _CONSENT_SECONDS).signed(account)


def write_consent(by: options.PoolPaying, key: NodeKeyOptions, operator: str) -> None:
    """Let an operator register this machine's node key, by a signed file; works offline."""
    from cli.pool.authorisations import Consent
    from cli.session import load_deployment

    if key.consent is None:
        raise ConfigError("no file for the consent is named", "pass --consent FILE")
    suite, account, expiry = load_deployment(by.deployment), key.open(), int(time.time()) + _PAPER_SECONDS
    node, stakes = str(account.address), suite.address("Stakes")
    consent = Consent(chain_id=suite.chain_id, contract=stakes, node=node, operator=operator, expiry=expiry)
    consent.signed(account).write(key.consent)
    text = f"{key.consent}: node {node} consents to operator {operator} until {clock(expiry)}"
    emit({"node": node, "operator": operator, "expiry": expiry, "file": str(key.consent)}, by.json, lambda: text)


@app.command("leave", "muster node leave")
def leave(
    node: options.NodeOption,
    by: options.Paying,
    sponsor: Annotated[bool, Option("--sponsor", help="Let the pool's service pay.")] = False,
) -> None:
    """Leave the pool, or take the stake back once it is unlocked: run it again after each waiting time.

    With --sponsor the key is the node's own, and the pool's service sends what it signs."""
    session = by.open()
    if sponsor:
        return leave_by_service(session, node, by)
    record = session.suite.stakes.node_of(node)
    pool, stake, frozen = record["pool"], record["stake"], record["frozen"]
    if pool:
        unbonding = session.pool(pool)["unbonding"]
        title = f"node {node} leaves pool {pool}; its stake unlocks {seconds(unbonding)} later"
        call = session.suite.pools.leave_pool(pool, node)
        facts: dict[str, Any] = {"pool": pool, "unbonding": unbonding}
    elif stake and not frozen and session.client.now() >= record["releaseAt"]:
        title, call = f"withdraw {show_tokens(stake)} tokens", session.suite.stakes.withdraw(node, stake)
        facts = {"base_units": stake}
    else:
        what = f"{show_tokens(stake)} tokens of {node} are locked" if stake else f"{node} has no stake"
        if frozen:
            raise ConfigError(what, f"wait until {frozen} rejected files are final")
        when = f"the stake unlocks at {clock(record['releaseAt'])}; run this again then"
        raise ConfigError(what, when if stake else "nothing has to be done")
    act(session, [PlannedTransaction(title, call)], by, node=node, **facts)


def leave_by_service(session: "Session", node: str, by: options.Paying) -> None:
    """Ask the service of the node's pool to let it leave, and wait until it did."""
    from cli.run.up import sponsor_of
    from protocol.waits import wait_for
    from runtime.orchestrator_client import leave_request

    account, number = session.client.account, session.suite.stakes.node_of(node)["pool"]
    if account is None or account.address != node:
        raise ConfigError(f"{session.client.address} is not the key of node {node}", "pass the node's --keystore")
    if not number:
        raise ConfigError(f"node {node} is in no pool", "its loan comes back by itself once the stake is unlocked")
    pool = session.state().pools[number]
    if not by.yes:
        confirm(f"Leave pool {number}? The stake unlocks {seconds(pool.unbonding)} later.")
    wish = leave_request(session.suite, account, number)
    with sponsor_of(session, pool, account) as service:
        wait_for(f"node {node} to leave", lambda: not service.leave(wish).member, _LEAVE_SECONDS, poll=1.0)
    emit({"node": node, "pool": number}, by.json, lambda: f"node {node} left pool {number}")


# Pay and disputes


@app.command("claim", "muster node claim --pool 1")
def claim(node: options.NodeOption, by: options.PoolActing) -> None:
    """Pay out everything that has vested, to the node's operator; any key may send it."""
    session = by.open()
    pool, state, now = by.number(session), session.state(), session.client.now()
    hint, account = state.claim_hint(pool, node, now), state.accounts.get((pool, node))
    if hint is None or account is None:
        spent = account.units_spent if account else 0
        vesting = [sub.final_time for sub in state.submissions_of(pool, node) if sub.cumulative > spent]
        when = f"the next pay vests at {clock(min(vesting))}" if vesting else "see: muster node status"
        raise ConfigError(f"nothing of {node} in pool {pool} can be claimed now", when)
    units = hint.cumulative - account.units_spent
    base_units = units * state.pools[pool].terms.rate
    title = f"claim {show_tokens(base_units)} tokens for {units} output tokens"
    planned = PlannedTransaction(title, session.suite.pools.claim(hint))
    act(session, [planned], by, pool=pool, node=node, units=units, base_units=base_units)


@app.command("dispute", "muster node dispute --pool 1 --file 17")
def dispute(
    file: Annotated[int, Option("--file", min=0, help="Number of the file in the pool.")], by: options.PoolPaying
) -> None:
    """Bring an outcome before a jury, or its verdict before a second one; the deposit returns to who is right."""
    session = by.open()
    pool, state, suite = by.number(session), session.state(), session.suite
    sub, dispute = state.submissions.get((pool, file)), state.disputes.get((pool, file))
    if sub is None:
        raise ConfigError(f"there is no file {file} in pool {pool}", "see: muster node status")
    call = suite.juries.appeal(dispute.trial) if dispute else suite.appeals.dispute(sub)
    does = "appeal against the jury's verdict on" if dispute else "dispute"
    title = f"{does} file {file} of pool {pool} with a deposit of {show_tokens(call.base_units)} tokens"
    act(session, [PlannedTransaction(title, call)], by, pool=pool, file=file, deposit=call.base_units)


# Status


@app.command("status", "muster node status --pool https://pool.example")
def status(
    node: options.NodeOption,
    look: options.PoolReading,
    last: Annotated[int, Option(min=0, help="Show that many files; 0 for all.")] = 20,
) -> None:
    """Answer whether the network sees the node, what it does, earned, was refused, and what to do next.

    It answers what it can when chain, service or process are down, and says which is, since when."""
    from cli.diagnose.status import node_status

    document, text = node_status(look, node, last)
    emit(document, look.json, lambda: text)
