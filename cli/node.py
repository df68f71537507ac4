"""`muster node`: what a node's operator does, from trying the machine to taking the stake back."""

import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import (
    Commands,
    DeploymentOption,
    DryRunOption,
    EngineOptions,
    JsonOption,
    KeyOptions,
    NodeOption,
    OutFileOption,
    Paying,
    PoolActing,
    PoolOption,
    PoolPaying,
    PoolReading,
    YesOption,
    address_option,
    key_path,
    tokens_option,
)
from cli.output import clock, emit, seconds
from cli.plan import PlannedTransaction, act
from protocol.encoding import show_tokens
from protocol.errors import ConfigError, MusterError, UnreachableError, printable

if TYPE_CHECKING:
    from chain.indexer.records import Submission
    from chain.indexer.state import State
    from cli.authorisations import Consent
    from cli.profile import Profile
    from cli.session import Session
    from protocol.config import PoolConfig
    from protocol.seeds import Work
    from runtime.pool_client import PoolClient
    from runtime.process import EngineConfig

app = Commands(help="Run a node: try it, join, earn, leave.", no_args_is_help=True)
FileOption = Annotated[int, typer.Option("--file", min=0, help="Number of the file in the pool.")]
_CONSENT_SECONDS = 3600


# ---- Working


@app.command("up", "muster node up --pool https://pool.example")
def up(
    pool: PoolOption = None,
    stake: Annotated[int | None, tokens_option("--stake", "Tokens to stake; the pool's least if missing.")] = None,
    invite: Annotated[Path | None, typer.Option(help="Invite of the pool's owner, where one is needed.")] = None,
    rpc: Annotated[str | None, typer.Option("--rpc", help="RPC URL instead of the one that the service names.")] = None,
    isolation: Annotated[
        str | None, typer.Option(help="How the worker is kept apart: auto, container, bubblewrap or none.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Just run a worker with this file.")
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Take whatever steps are missing, then work.

    Profile, keys, gas, tokens, registration, stake, joining, worker: it shows the pool's terms and asks once. It can be
    stopped and run again at any point. Exit code 3: the node was ejected."""
    if config is not None:
        from worker.main import run

        run(config)
        return
    from cli.process import with_isolation
    from cli.steps import next_node_step
    from cli.up import NodeUp, check_machine, load_invite, open_up_profile

    profile = with_isolation(open_up_profile("operator", pool.url if pool else None, rpc), isolation)
    node = NodeUp(profile, stake or 0, yes=yes)
    node.invite = load_invite(invite, node)
    if dry_run:
        step = next_node_step(node.facts())
        shown = {"dry_run": True, "next": step.do.value, "why": step.why, "amount": step.amount}
        emit(shown, json, lambda: f"next: {step.do.value}: {step.why}\ndry run: nothing was done")
        return
    check_machine(profile)
    node.prepare()
    if code := node.work():
        raise typer.Exit(code)


@app.command("dry-run", "muster node dry-run --worker vllm:bfloat16:cuda")
def dry_run(
    look: PoolReading,
    worker: Annotated[
        str | None, typer.Option(metavar="ENGINE:DTYPE:DEVICE", help="What makes the file; the profile's if missing.")
    ] = None,
    verifier: Annotated[
        str | None, typer.Option(metavar="ENGINE:DTYPE:DEVICE", help="What judges it; transformers if missing.")
    ] = None,
    address: Annotated[
        str | None, address_option("--address", "Node whose problems to draw; a made-up one if missing.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="Threads that compute.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, max=65536, help="Rollouts in one pass of the model.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Folder for weights; the profile's if missing.")] = None,
    allow_private_sources: Annotated[
        bool, typer.Option("--allow-private-sources", help="Follow URLs that others chose into private networks too.")
    ] = False,
) -> None:
    """Make one file from the pool's weights and judge it as validators would, without key, stake or sending.

    Exit code 1 if it would be refused."""
    from cli.dry_run import Draw, dry_run_text, dry_run_view, judge_alone, make_alone
    from cli.profile import find_profile
    from cli.up import check_scoring
    from protocol.files import user_cache
    from runtime.pool_client import PoolClient
    from runtime.process import EngineConfig

    profile = find_profile("operator")
    folder = cache or (profile.cache if profile else user_cache("weights"))
    private = allow_private_sources or bool(profile and profile.allow_private_sources)
    client = PoolClient(look.observer(EngineConfig(), user_cache("dry-run"), folder, private), None)
    try:
        work = next_work(client, address)
        pool = client.config.pool
        terms = client.state.pools[pool].terms
        config = client.pool_config(20.0)
        check_scoring(config)
        maker, judge = engines(config, profile, worker, verifier, threads, batch)
        typer.echo("fetching the pool's current weights", err=True)
        weights = client.weights(work)
        draw = Draw(len(client.state.submissions_of(pool)), secrets.token_bytes(32), terms.auditRate)
    finally:
        client.close()
    typer.echo(f"making {config.work.rows} rollouts with {maker.name}, {maker.dtype} on {maker.device}", err=True)
    made = make_alone(config, maker, weights, work)
    typer.echo(f"judging them with {judge.name}, {judge.dtype} on {judge.device}", err=True)
    judged = judge_alone(config, judge, weights, work, made, draw)
    view = dry_run_view(work, made, judged, terms, config.checks)
    emit(view, look.json, lambda: dry_run_text(view))
    if not view["accepted"]:
        raise typer.Exit(1)


def next_work(client: "PoolClient", node: str | None) -> "Work":
    """The file that `node` (or one that was made up now) would make next. Raises ConfigError if the pool has no
    weights, MusterError while no step's seed is confirmed."""
    from eth_utils.address import to_checksum_address

    from protocol.identity import WorkId
    from protocol.seeds import Work

    state, pool = client.refresh(), client.pool()
    if pool is None:
        have = f"pools are 1 to {max(state.pools)}" if state.pools else "there is no pool yet"
        raise ConfigError(f"there is no pool {client.config.pool} on this deployment", f"{have}; check --pool")
    if not pool.steps:
        what = f"pool {pool.pool} has published no weights yet"
        raise ConfigError(what, "run this again once its trainer has published policy step 0")
    seeds = client.seeds(pool.terms.maxLag)
    if not seeds:
        raise MusterError(f"no policy step of pool {pool.pool} has a confirmed seed yet", "try again in a few blocks")
    step = max(seeds)
    node = node or to_checksum_address(secrets.token_bytes(20))
    account = state.accounts.get((pool.pool, node))
    work_id = WorkId(client.pool_id, node, step, account.counter if account else 0)
    return Work(work_id, seeds[step], pool.steps[step].manifest)


def engines(
    config: "PoolConfig",
    profile: "Profile | None",
    worker: str | None,
    verifier: str | None,
    threads: int | None,
    batch: int | None,
) -> tuple["EngineConfig", "EngineConfig"]:
    """(the one that makes the file, the one that judges it): the pool's dtype unless another is written; what is not
    named is the profile's, and sets the environment that both are started in. Raises ConfigError."""
    from calibration.dry_run import usual_verifier
    from calibration.plan import EngineSpec
    from cli.profile import ProfileEngine
    from engines.runtime import vllm_installed
    from runtime.process import EngineConfig

    own, dtype = profile.engine if profile else ProfileEngine(), config.model.dtype
    name = own.name if own.name != "auto" else "vllm" if vllm_installed() else "transformers"
    given = EngineSpec.parse(worker or f"{name}:{dtype}:{own.device}", dtype, "--worker")
    threads, batch = threads or own.threads, batch or own.batch
    EngineOptions(threads=threads).set_threads()
    made = EngineConfig.model_validate(vars(given) | {"threads": threads, "batch": batch})
    if verifier is None:
        return made, usual_verifier(made, dtype)
    other = EngineSpec.parse(verifier, dtype, "--verifier")
    return made, EngineConfig.model_validate(vars(other) | {"threads": threads, "batch": batch})


# ---- Membership


@app.command("join", "muster node join --pool 1 --node-keystore node.json --stake 250 --dry-run")
def join(
    by: PoolPaying,
    node: Annotated[str | None, address_option("--node", "Address of a node that is registered.")] = None,
    stake: Annotated[int | None, tokens_option("--stake", "Tokens to stake, in addition to what is at stake.")] = None,
    node_keystore: Annotated[Path | None, typer.Option(help="Key file of a node that is not registered yet.")] = None,
    node_password_file: Annotated[Path | None, typer.Option(help="Password of the node's key.")] = None,
    consent: Annotated[
        Path | None, typer.Option(help="Instead of its key: the node's consent (muster node consent).")
    ] = None,
    invite: Annotated[Path | None, typer.Option(help="Invite of the pool's owner, where one is needed.")] = None,
) -> None:
    """Register a node, stake for it and join a pool, as its operator: whatever of this is missing."""
    from cli.views import judging_seats, seats_line
    from runtime.keystore import address_of

    session = by.open()
    pool, state = by.number(session), session.state()
    name = node or (address_of(node_keystore) if node_keystore else load_consent(consent).node if consent else None)
    if name is None:
        raise ConfigError("no node is named", "pass --node, --node-keystore or --consent")
    known, terms = state.nodes.get(name), session.suite.court.terms_of(pool)
    planned = []
    if known is None:
        signed = _node_consent(session, node_keystore, node_password_file, consent)
        amount = stake or terms.minStake
        call = session.suite.stakes.register_node(signed.node, amount, signed.expiry, signed.signature)
        planned.append(PlannedTransaction(f"register node {name} and stake {show_tokens(amount)} tokens", call))
    elif stake:
        call = session.suite.stakes.deposit(name, stake)
        planned.append(PlannedTransaction(f"add {show_tokens(stake)} tokens to the stake of node {name}", call))
    if known is None or known.pool != pool:
        call = _join_call(session, pool, name, invite)
        planned.append(PlannedTransaction(f"node {name} joins pool {pool}", call, after=bool(planned)))
    elif stake:
        refresh = session.suite.pools.refresh(pool, name)
        planned.append(PlannedTransaction(f"raise its limit in pool {pool}", refresh, after=True))
    if not planned:
        raise ConfigError(f"node {name} is in pool {pool} already", "pass --stake to add to its stake")
    if not by.json:
        typer.echo(
            f"pool {pool} pays {show_tokens(terms.rate)} tokens per verified output token, wants a stake of "
            f"{show_tokens(terms.minStake)}, pays {seconds(terms.challengeWindow)} after acceptance; configuration "
            f"SHA-256 {terms.configHash.hex()}; {seats_line(judging_seats(state, state.pools[pool]))}"
        )
    act(session, planned, by, pool=pool, node=name, operator=session.client.address, added=stake or 0)


def _join_call(session: "Session", pool: int, node: str, invite: Path | None) -> Any:
    from cli.authorisations import Invite
    from protocol.encoding import load_document

    pools = session.suite.pools
    if invite is None:
        return pools.join(pool, node)
    chain, now, owner = session.client.chain_id, session.client.now(), session.pool(pool).owner
    given = load_document(invite, Invite)
    given.check(Invite(chain_id=chain, contract=pools.address, pool=pool, node=node, expiry=now), owner, invite)
    return pools.join_with_invite(pool, node, given.expiry, given.signature)


def load_consent(path: Path) -> "Consent":
    from cli.authorisations import Consent
    from protocol.encoding import load_document

    return load_document(path, Consent)


def _node_consent(
    session: "Session", node_keystore: Path | None, node_password_file: Path | None, consent: Path | None
) -> "Consent":
    """Return the node's consent to this operator: from a file, or signed now with the node's key."""
    from cli.authorisations import Consent
    from runtime.keystore import open_key

    if (node_keystore is None) == (consent is None):
        what = "the node is not registered, and its consent is missing or given twice"
        raise ConfigError(what, "pass --node-keystore or --consent")
    now = session.client.now()
    chain, stakes, operator = session.client.chain_id, session.suite.stakes.address, session.client.address
    if consent is not None:
        given = load_consent(consent)
        expected = Consent(chain_id=chain, contract=stakes, node=given.node, operator=operator, expiry=now)
        given.check(expected, given.node, consent)
        return given
    account = open_key(key_path(node_keystore), node_password_file, "node key")
    node, expiry = str(account.address), now + _CONSENT_SECONDS
    return Consent(chain_id=chain, contract=stakes, node=node, operator=operator, expiry=expiry).signed(account)


@app.command("consent", "muster node consent --operator ADDRESS --keystore node.json --out consent.json", hidden=True)
def consent(
    operator: Annotated[str, address_option("--operator", "Address of the operator.")],
    out: OutFileOption,
    key: KeyOptions,
    deployment: DeploymentOption = None,
    hours: Annotated[int, typer.Option(min=1, max=8760, help="How long it is valid.")] = 24,
) -> None:
    """Let an operator register this machine's node key, by a signed file; works offline."""
    from cli.authorisations import Consent
    from cli.session import load_deployment
    from runtime.keystore import open_key

    suite = load_deployment(deployment)
    account = open_key(key_path(key.keystore), key.password_file, "node key")
    node, expiry = str(account.address), int(time.time()) + hours * 3600
    stakes = suite.address("Stakes")
    consent = Consent(chain_id=suite.chain_id, contract=stakes, node=node, operator=operator, expiry=expiry)
    consent.signed(account).write(out)
    emit(
        {"node": node, "operator": operator, "expiry": expiry, "file": str(out)},
        key.json,
        lambda: f"{out}: node {node} consents to operator {operator} until {clock(expiry)}",
    )


@app.command("leave", "muster node leave")
def leave(node: NodeOption, by: Paying) -> None:
    """Leave the pool, or take the stake back once it is unlocked: run it again after each waiting time."""
    session = by.open()
    stakes = session.suite.stakes
    known, free = stakes.node_of(node), stakes.withdrawable(node)
    if known.pool:
        unbonding = session.pool(known.pool).unbonding
        title = f"node {node} leaves pool {known.pool}; its stake unlocks {seconds(unbonding)} later"
        call = session.suite.pools.leave_pool(known.pool, node)
        facts: dict[str, Any] = {"pool": known.pool, "unbonding": unbonding}
    elif free:
        title, call = f"withdraw {show_tokens(free)} tokens", stakes.withdraw(node, free)
        facts = {"base_units": free}
    else:
        what = f"{show_tokens(known.stake)} tokens of {node} are locked" if known.stake else f"{node} has no stake"
        if known.frozen:
            raise ConfigError(what, f"wait until {known.frozen} rejected files are final")
        when = f"the stake unlocks at {clock(known.release_at)}; run this again then"
        raise ConfigError(what, when if known.stake else "nothing has to be done")
    act(session, [PlannedTransaction(title, call)], by, node=node, **facts)


# ---- Pay and disputes


@app.command("claim", "muster node claim --pool 1")
def claim(node: NodeOption, by: PoolActing) -> None:
    """Pay out everything that has vested, to the node's operator; any key may send it."""
    session = by.open()
    pool, state, now = by.number(session), session.state(), session.client.now()
    hint = state.claim_hint(pool, node, now)
    if hint is None:
        raise ConfigError(f"nothing of {node} in pool {pool} can be claimed now", _next_vesting(state, pool, node))
    units = hint.cumulative - state.accounts[pool, node].units_spent
    base_units = units * state.pools[pool].terms.rate
    title = f"claim {show_tokens(base_units)} tokens for {units} output tokens"
    planned = PlannedTransaction(title, session.suite.pools.claim(hint))
    act(session, [planned], by, pool=pool, node=node, units=units, base_units=base_units)


def _next_vesting(state: "State", pool: int, node: str) -> str:
    account = state.accounts.get((pool, node))
    if account is None:
        return "check --pool and --node"
    times = [s.final_time for s in state.submissions_of(pool, node) if s.cumulative > account.units_spent]
    return f"the next pay vests at {clock(min(times))}" if times else "see: muster node status"


@app.command("dispute", "muster node dispute --pool 1 --file 17")
def dispute(file: FileOption, by: PoolPaying) -> None:
    """Bring a committee's outcome before a jury; the deposit returns to who is right."""
    session = by.open()
    pool = by.number(session)
    sub = _submission(session, pool, file)
    call = session.suite.appeals.dispute(sub)
    title = f"dispute file {file} of pool {pool} with a deposit of {show_tokens(call.base_units)} tokens"
    act(session, [PlannedTransaction(title, call)], by, pool=pool, file=file, deposit=call.base_units)


@app.command("announce", "muster node announce --pool 1 --file 17 --url https://files.example/17", hidden=True)
def announce(
    file: FileOption,
    url: Annotated[str, typer.Option(help="Public http(s) URL that serves exactly the file's bytes.")],
    by: PoolActing,
) -> None:
    """Tell validators where else a file is, as its node, when the pool's own storage does not serve it."""
    from chain.indexer.records import MAX_MIRROR
    from storage.transfers import check_url

    session = by.open()
    pool = by.number(session)
    sub = _submission(session, pool, file)
    if sub.node != session.client.address:
        raise ConfigError(f"file {file} is of node {sub.node}, not of {session.client.address}", "use that node's key")
    if len(check_url(url)) > MAX_MIRROR:
        raise ConfigError(f"--url has more than {MAX_MIRROR} characters", "use a shorter one")
    call = session.suite.pools.announce_mirror(pool, file, url)
    planned = PlannedTransaction(f"announce {url} for file {file}", call)
    act(session, [planned], by, pool=pool, file=file, url=url, sha256=sub.sha256.hex())


def _submission(session: "Session", pool: int, file: int) -> "Submission":
    sub = session.state().submissions.get((pool, file))
    if sub is None:
        raise ConfigError(f"there is no file {file} in pool {pool}", "see: muster node status")
    return sub


# ---- Status


@app.command("status", "muster node status --pool https://pool.example")
def status(
    node: NodeOption,
    look: PoolReading,
    last: Annotated[int, typer.Option(min=0, help="Show that many files; 0 for all.")] = 20,
    evidence: Annotated[
        bool, typer.Option("--evidence", help="Add up what judges published of all files, by the pool's null model.")
    ] = False,
) -> None:
    """Answer whether the network sees the node, what it does, earned, was refused, and what to do next.

    It answers what it can when chain, service or process are down, and says which is, since when."""
    from cli.answers import NodeLook, node_answers
    from cli.diagnose import Around, look_around, look_at_chain, look_at_process, look_at_service, version_of
    from cli.views import node_text
    from protocol.api.endpoints import NODE

    states: list[State] = []

    def facts(session: "Session") -> dict[str, Any]:
        states.append(session.state())
        try:
            number = look.number(session) if look.pool else None
        except UnreachableError:  # the service is down: the chain knows the node's pool
            number = None
        return chain_facts(session, states[0], node, number)

    chain = look_at_chain(look, (node, look.pool), facts)
    known = chain.facts or {}
    url = (look.pool.url if look.pool else None) or known.get("service")
    service = look_at_service(url, NODE, node)
    if states and url and known.get("view"):
        add_evidence(known["view"], states[0], last, url, service.part.down)
    challenge = own_challenge(states, known["pool"], node, url) if evidence and states else {}
    home = home_of(node)
    process = look_at_process(home, "worker")
    around = look_around(Around(url, node, config_hash=known.get("config", ""), home=home), service.part)
    answers = node_answers(
        NodeLook(
            node,
            time.time(),
            (chain.part, service.part, process.part),
            chain.facts,
            service.facts,
            process.facts,
            version_of(url, service.part),
            around.alarms,
            around.finished,
        )
    )
    view = known.get("view")
    details = [node_text(view, last)] if view else []
    details += [challenge_lines(challenge)] if challenge else []
    emit(
        (view or {}) | answers.document() | ({"challenge": challenge} if challenge else {}),
        look.json,
        lambda: "\n\n".join([answers.text(), *details]),
    )


def chain_facts(session: "Session", state: "State", node: str, pool: int | None) -> dict[str, Any]:
    """What `NodeLook` wants of the chain; `pool`: the one that is meant, else the node's."""
    from cli.views import node_view

    now = session.client.now()
    view = node_view(state, node, now, pool)
    meant = state.pools.get(pool or (view["pool"] if view else 0))
    wei = session.client.balance(node)
    return {
        "view": view | {"wei": wei} if view else None,
        "now": now,
        "wei": wei,
        "gas_price": session.client.gas_price(),
        "pool": meant.pool if meant else 0,
        "status": meant.status if meant else "",
        "least": meant.terms.minStake if meant else 0,
        "service": meant.service_url if meant else "",
        "config": meant.config_hash.hex() if meant else "",
    }


def add_evidence(view: dict[str, Any], state: "State", last: int, url: str, down: str) -> None:
    """What judges published of each refused file that is shown; `down`: why the service cannot be asked, if so."""
    from cli.diagnose import explain

    for account in view["accounts"]:
        for shown in account["submissions"][-last:]:
            if shown["reason"]:
                sub = state.submissions[account["pool"], shown["sequence"]]
                shown["evidence"] = [f"no evidence: {down}"] if down else explain(state, sub, url)


def own_challenge(states: "list[State]", pool: int, node: str, url: str | None) -> dict[str, Any]:
    """Return the evidence of the node's own files in the pool that is meant, or {"unknown": why it cannot be had}."""
    from cli.verify import published_history

    if not pool or not url:
        return {"unknown": "no pool, or nobody knows its service"}
    try:
        return published_history(states[0], pool, node, url)
    except MusterError as error:
        return {"unknown": f"{error.what}: {error.hint}"}


def challenge_lines(challenge: dict[str, Any]) -> str:
    from cli.verify import history_text

    if "unknown" in challenge:
        return f"evidence: {printable(challenge['unknown'], 300)}"
    return history_text(challenge)


def home_of(node: str) -> Path | None:
    """The home of the worker's process, if the operator's profile is about this node."""
    from cli.profile import find_profile
    from runtime.keystore import address_of

    profile = find_profile("operator")
    if profile is None or profile.node is None:
        return None
    try:
        return profile.home if address_of(profile.node.keystore) == node else None
    except MusterError:
        return None
