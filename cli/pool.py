"""`muster pool check`: can a pool with this configuration and these terms work, and what does it cost?"""

import json as json_module
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import (
    Acting,
    AmountOption,
    Commands,
    DeploymentOption,
    JsonOption,
    KeyOptions,
    NodeOption,
    OutFileOption,
    Paying,
    PoolOption,
    Reading,
    RpcOption,
    address_option,
    key_path,
    tokens_option,
)
from cli.output import clock, emit, fields, seconds
from cli.plan import PlannedTransaction, act
from protocol.amounts import show_tokens
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from chain.contracts.base import ContractCall
    from chain.contracts.pools import Pools
    from chain.records import Terms
    from chain.transactions import Receipt
    from cli.session import Session
    from protocol.config import ModelConfig, PoolConfig
    from trainer.bench import BenchReport


ConfigFile = Annotated[Path, typer.Option(help="Pool configuration (TOML or JSON). [see: muster pool init]")]
TermsFileOption = Annotated[Path, typer.Option(help="Terms (TOML), or a network that muster has terms for.")]


def check(
    config: ConfigFile,
    terms: TermsFileOption,
    budget: Annotated[int, tokens_option("--budget", 'Tokens to escrow, such as "1000".')],
    json: JsonOption = False,
) -> None:
    """Look for what would keep a pool from working, and say what its files cost; needs no chain and no key. Exit code 1
    if it could not work; warnings do not count."""
    from cli.pool_config import contradictions, costs, curriculum_lines, load_terms, warnings, world_problems
    from protocol.config import PoolConfig

    document = PoolConfig.load(config)
    values = load_terms(terms, document.digest)
    found = [*contradictions(document, values, budget), *world_problems(document)]
    cost = costs(document, values, budget)
    shown = {**vars(cost), "file": cost.file, "files": cost.files, "problems": [one.line for one in found]}
    shown["warnings"] = [one.line for one in warnings(document, values)]
    lines = [cost.text(), *curriculum_lines(document), *(f"WARNING  {line}" for line in shown["warnings"])]
    lines += [f"PROBLEM  {one.line}" for one in found]
    emit(shown, json, lambda: "\n".join(lines if found else [*lines, "this pool can work"]))
    if found:
        raise typer.Exit(1)


def refuse_what_cannot_work(document: "PoolConfig", values: "Terms", budget: int) -> None:
    """Raise ConfigError for the first problem: money that is in a pool that cannot work comes back only at its end."""
    from cli.pool_config import contradictions, world_problems

    for problem in [*contradictions(document, values, budget), *world_problems(document)]:
        raise ConfigError(problem.what, f"{problem.hint} (see: muster pool check)")


# ~ `muster pool init`: a pool's configuration with every field explained, for a model folder and a task.


_MAX_BYTES = 1 << 20


def init(
    model: Annotated[Path, typer.Option(help="Folder of the model to train.")],
    task: Annotated[str, typer.Option(help="Task, such as reasoning_gym/chain_sum.")],
    param: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Parameter of the task; can be repeated.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the pool; the folder's if missing.")] = None,
    rollouts: Annotated[
        int | None, typer.Option(min=1, help="Make it a data pool, which buys so many rollouts and trains nothing.")
    ] = None,
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("pool.toml"),
    force: Annotated[bool, typer.Option("--force", help="Write the file anew.")] = False,
    json: JsonOption = False,
) -> None:
    """Write a pool's configuration: everything has its default and is explained, model and task are looked at. It needs
    no chain and no key."""
    from cli.pool_config import pool_file, world_problems
    from protocol.config import DataConfig
    from protocol.files import explained, write_atomic

    if out.suffix != ".toml":
        raise ConfigError(f"{out} does not end in .toml", "comments need TOML; choose another --out")
    if out.exists() and not force:
        raise ConfigError(f"{out} exists", "choose another --out, or pass --force")
    config = pool_config(model.expanduser(), task, dict(map(parameter, param or ())), name)
    if rollouts is not None:
        config = config.model_copy(update={"data": DataConfig(rollouts=rollouts)})
    for problem in world_problems(config):
        raise ConfigError(problem.what, problem.hint)
    with explained(f"write {out}", "check the folder"):
        write_atomic(out, pool_file(config, task_parameters(task)).encode())
    shown = {"file": str(out), "config_hash": config.digest.hex(), "dtype": config.model.dtype}
    lines = [
        f"{out}: {config.name}, {config.model.dtype}, {config.work.rows} rollouts in a file",
        f"next: muster pool check --config {out} --terms base-sepolia --budget 1000",
    ]
    emit(shown, json, lambda: "\n".join(lines))


def pool_config(folder: Path, task: str, params: dict[str, Any], name: str | None) -> "PoolConfig":
    """The configuration with defaults for everything else. Raises ConfigError for what is no model folder."""
    from protocol.config import BF16_CHECKS, ChecksConfig, PoolConfig
    from protocol.environments import EnvironmentConfig

    model = model_config(folder)
    checks = BF16_CHECKS if model.dtype == "bfloat16" else ChecksConfig()
    chosen = EnvironmentConfig(name=task, params=params)
    return PoolConfig(name=name or folder.resolve().name, model=model, environments=(chosen,), checks=checks)


def model_config(folder: Path) -> "ModelConfig":
    """What a model folder says of itself: its dtype, and whether it has a chat template. Raises ConfigError."""
    from protocol.config import ModelConfig

    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}", "name the model's folder in --model")
    said = _document(folder / "config.json")
    dtype = said.get("dtype") or said.get("torch_dtype") or "float32"
    half = dtype in ("bfloat16", "float16")
    tokenizer = folder / "tokenizer_config.json"
    chats = (folder / "chat_template.jinja").is_file() or (
        tokenizer.is_file() and bool(_document(tokenizer).get("chat_template"))
    )
    return ModelConfig(source=str(folder.resolve()), dtype="bfloat16" if half else "float32", chat_template=chats)


def _document(path: Path) -> dict[str, Any]:
    from protocol.encoding import parse_json
    from protocol.files import read_bounded

    try:
        said = parse_json(read_bounded(path, _MAX_BYTES))
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}", "name the folder of a model") from None
    if not isinstance(said, dict):
        raise ConfigError(f"{path} is not a JSON object", "name the folder of a model")
    return said


def parameter(text: str) -> tuple[str, Any]:
    """`min_terms=3` as a name and a value, which is JSON, or else text. Raises ConfigError."""
    name, given, value = text.partition("=")
    if not given or not name.strip().isidentifier():
        raise ConfigError(f"--param {text!r} is not NAME=VALUE", "write it like min_terms=3")
    try:
        return name.strip(), json_module.loads(value)
    except ValueError:
        return name.strip(), value


def task_parameters(task: str) -> dict[str, Any]:
    """Name → default of the parameters that a task takes, where TOML can say the default."""
    import dataclasses

    from reasoning_gym.factory import DATASETS

    from environments.gym.environment import RESERVED, THRESHOLD

    _, config = DATASETS[task.partition("/")[2]]
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = field.default_factory() if callable(field.default_factory) else field.default
        if field.name not in RESERVED and isinstance(value, bool | int | float | str | tuple | list):
            found[field.name] = value
    return found | {THRESHOLD: 1.0}


# ~ `muster pool status`: five answers, whatever is down; then money, nodes and what files wait for.


_SHOWN = 10


def status(
    pool: PoolOption,
    look: Reading,
    orchestrator: Annotated[
        str | None, typer.Option(help="URL of the pool's service, if not where its owner announced it.")
    ] = None,
) -> None:
    """Is the pool seen, what is it doing, what was paid, what was refused, what must its owner do? It answers what it
    can when chain or service are down, and says which is, since when."""
    from cli.answers import PoolLook, pool_answers
    from cli.diagnose import Around, look_around, look_at_chain, look_at_process, look_at_service
    from cli.pool_document import lawless_pool
    from cli.views import pool_text
    from protocol.api.endpoints import STATUS

    chain = look_at_chain(look, (pool,), lambda session: chain_facts(session, pool))
    known = chain.facts or {}
    url = orchestrator or (known["view"]["service"]["url"] if known else None)
    service = look_at_service(url, STATUS)
    home = home_of(pool)
    around = look_around(Around(url, owner=True, config_hash=known.get("config", ""), home=home), service.part)
    looks = {role: look_at_process(home / role, role) for role in ("orchestrator", "trainer")} if home else {}
    down = {role: one.part.down for role, one in looks.items() if one.part.down and one.part.seen}
    parts = (chain.part, service.part)
    lawless = "" if service.part.down else lawless_pool(url, known)
    found = PoolLook(pool, time.time(), parts, chain.facts, service.facts, around, down, lawless)
    answers = pool_answers(found)
    view = known["view"] | {"free": known["free"]} if known else {}
    details = [pool_text(view)] if known else []
    view |= {"lawless": lawless} if lawless else {}
    emit(view | answers.document(), look.json, lambda: "\n\n".join([answers.text(), *details]))


def chain_facts(session: "Session", pool: int) -> dict[str, Any]:
    """What `PoolLook` wants of the chain. Raises ConfigError if there is no such pool."""
    from cli.views import picked, pool_view, reason

    state, now = session.state(), session.client.now()
    view = pool_view(state, pool, now)
    if view is None:
        raise ConfigError(f"there is no pool {pool} on this deployment", "check --pool")
    onchain, terms = session.suite.pools.pool_of(pool), state.pools[pool].terms
    slashes = [one for one in state.slashes if one.pool == pool and one.kind == "node"]
    refused = [(sub, why) for sub in state.submissions_of(pool) if (why := reason(state, sub))]
    return {
        "view": view,
        "free": onchain.free,
        "file": terms.maxUnits * terms.rate + terms.committee * terms.fee,
        "now": now,
        "settle_at": onchain.settle_at if view["status"] == "closing" else 0,
        "refused": [{"sequence": s.sequence, "node": s.node, "reason": why} for s, why in refused[-_SHOWN:]],
        "slashed": [picked(one, "sequence", "who", "amount") for one in slashes[-_SHOWN:]],
        "config": state.pools[pool].config_hash.hex(),
        "audit_rate": terms.auditRate,
    }


def home_of(pool: int) -> Path | None:
    """The home of the owner's processes, if the profile is about this pool."""
    from cli.profile import find_profile

    profile = find_profile("owner")
    return profile.home if profile and profile.pool == pool else None


# ~ `muster pool`: what a pool's owner does with money and membership. The trainer publishes the steps.


ServiceOption = Annotated[
    str | None, address_option("--service", "Address of the key that attests uploads: the orchestrator's.")
]
UrlOption = Annotated[str | None, typer.Option("--url", help="Where the pool's service answers, for everybody to see.")]

app = Commands(help="Own a pool: budget, invites, life cycle.", no_args_is_help=True)
app.command()(init)
app.command()(check)
app.command()(status)
_ETHER = 10**18
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@app.command()
def create(
    config: ConfigFile,
    terms: TermsFileOption,
    budget: Annotated[int, tokens_option("--budget", 'Tokens to escrow, such as "1000".')],
    by: Paying,
    service: ServiceOption = None,
    url: UrlOption = None,
) -> None:
    """Create a pool and escrow its budget. Configuration and terms can never change. Its service's key can be named at
    once or with `set-service`; it takes work once enough seats judge it."""
    from cli.pool_config import costs, load_terms, warnings
    from protocol.config import PoolConfig

    document = PoolConfig.load(config)
    values = load_terms(terms, document.digest)
    session = by.open()
    session.client.simulate(session.suite.params.call("checkTerms", values.as_tuple()))
    refuse_what_cannot_work(document, values, budget)
    unbonding = session.suite.params.unbonding_of(values.as_tuple())
    call = session.suite.pools.create_pool(values, budget)
    title = f"create pool “{document.name}” and escrow {show_tokens(budget)} tokens"
    number = session.suite.pools.pool_count() + 1  # another's pool, if one is made meanwhile, takes no service of ours
    planned = [PlannedTransaction(title, call), *_service_calls(session, number, service, url, after=True)]
    if not by.json:
        typer.echo(_terms_text(document, values, unbonding))
        typer.echo(costs(document, values, budget).text())
    warned = [one.line for one in warnings(document, values)]
    for line in warned:
        typer.echo(f"WARNING  {line}", err=True)

    def outcome(receipts: list["Receipt"]) -> tuple[dict[str, Any], str]:
        number = call.result(receipts[0])
        remember_pool(number)
        hint = f"its seats: muster pool status --pool {number}"
        return {"pool": number}, f"pool {number}; {hint if service else 'next: muster pool set-service'}"

    facts = {"config_hash": document.digest.hex(), "budget": budget, "unbonding": unbonding, "warnings": warned}
    if not by.dry_run:
        take_from_local_chain(session, budget, service)
    act(session, planned, by, outcome, **facts)


def take_from_local_chain(session: "Session", budget: int, service: str | None) -> None:
    """What owner and service lack of tokens and gas, where that costs nothing; elsewhere the plan says what is
    missing."""
    from cli.joining import LocalFaucet

    faucet, owner = LocalFaucet.of(session.suite), session.account.address
    if faucet is None:
        return
    for address in filter(None, (owner, service)):
        if session.client.balance(address) < _ETHER:
            faucet.ether(address, _ETHER)
    if (lacks := budget - session.suite.token.balance_of(owner)) > 0:
        faucet.tokens(owner, lacks)


def remember_pool(pool: int) -> None:
    """In the owner's profile, if that names none yet."""
    from cli.profile import find_profile, name_pool, profile_path

    profile = find_profile("owner")
    if profile is not None and profile.pool is None:
        name_pool(profile_path("owner"), pool)


def _service_calls(
    session: "Session", pool: int, service: str | None, url: str | None, after: bool = False
) -> list[PlannedTransaction]:
    """What names a pool's service and announces where it answers. Raises ConfigError for what is no URL."""
    from protocol.http.signing import service_url

    court, planned = session.suite.court, []
    if service is not None:
        call = court.set_service(pool, service)
        planned.append(PlannedTransaction(f"pool {pool}'s service attests with key {service}", call, after))
    if url is not None:
        call = court.announce_service(pool, service_url(url))
        planned.append(PlannedTransaction(f"pool {pool}'s service answers at {service_url(url)}", call, after))
    return planned


@app.command("set-service")
def set_service(pool: PoolOption, by: Acting, service: ServiceOption = None, url: UrlOption = None) -> None:
    """Name the key of the pool's service, announce where it answers. A former key stays valid for the receipt window;
    until that is over it cannot be replaced again."""
    session = by.open()
    session.pool(pool)
    planned = _service_calls(session, pool, service, url)
    if not planned:
        raise ConfigError("nothing to set is named", "pass --service ADDRESS, --url URL, or both")
    act(session, planned, by, pool=pool, service=service, url=url)


@app.command()
def review(pool: PoolOption, by: Acting) -> None:
    """Count the seats that judge a pool, as they are in this epoch: it takes work once they are enough."""
    _change(lambda pools: pools.review_seats(pool), f"count the seats that judge pool {pool}", by, pool=pool)


def _terms_text(config: "PoolConfig", terms: "Terms", unbonding: int) -> str:
    from chain.seat_classes import describe, needed

    judges = describe(terms.class_) if terms.class_ else "this pool alone"
    return fields(
        {
            "model": f"{config.model.source}, licence {config.model.license}",
            "pay": f"{show_tokens(terms.rate)} tokens per verified output token",
            "fees": f"{show_tokens(terms.fee)} per seat and file, {show_tokens(terms.juryFee)} per juror",
            "stake": f"{show_tokens(terms.minStake)} tokens at least; work in flight up to {terms.leverage} times it",
            "committee": f"{terms.committee} seats; juries of {terms.jury}, then {terms.appealJury or 'none'}",
            "judges": f"seats that chose {judges}, {needed(terms)} at least",
            "uploads": f"attested within {terms.attestBlocks} blocks; receipts hold {seconds(terms.receiptWindow)}",
            "audit": f"{terms.audit_fraction:.0%} of rollouts",
            "windows": f"commit {seconds(terms.commitWindow)}, reveal {seconds(terms.revealWindow)}, "
            f"challenge {seconds(terms.challengeWindow)}",
            "unbonding": f"{seconds(unbonding)} after a node leaves",
            "membership": "by invite" if terms.inviteOnly else "open to every staked node",
            "config": terms.configHash.hex(),
        }
    )


@app.command()
def fund(pool: PoolOption, amount: AmountOption, by: Paying) -> None:
    """Add to a pool's budget."""
    title = f"add {show_tokens(amount)} tokens to pool {pool}"
    _change(lambda pools: pools.fund(pool, amount), title, by, pool=pool, added=amount)


@app.command()
def invite(
    pool: PoolOption,
    node: NodeOption,
    out: OutFileOption,
    key: KeyOptions,
    deployment: DeploymentOption = None,
    rpc: RpcOption = None,
    valid: Annotated[str, typer.Option("--for", help="How long it can be used: 30m, 12h, 7d.")] = "7d",
) -> None:
    """Sign an invite for a node into a file; costs nothing, sends nothing. Hand the file to the node's operator."""
    from cli.authorisations import Invite
    from cli.session import open_session

    period = parse_period(valid, "--for")
    session = open_session(deployment, rpc, key_path(key.keystore), key.password_file)
    owner = session.pool(pool).owner
    if owner != session.client.address:
        raise ConfigError(f"pool {pool} is owned by {owner}, not by {session.client.address}", "use the owner's key")
    pools, chain, expiry = session.suite.pools.address, session.client.chain_id, session.client.now() + period
    invite = Invite(chain_id=chain, contract=pools, pool=pool, node=node, expiry=expiry)
    invite.signed(session.account).write(out)
    emit(
        {"pool": pool, "node": node, "expiry": expiry, "file": str(out)},
        key.json,
        lambda: f"{out}: invites {node} to pool {pool} until {clock(expiry)}",
    )


def parse_period(text: str, what: str) -> int:
    """Seconds of `30m`, `12h`, `7d`. Raises ConfigError."""
    match = re.fullmatch(r"([1-9]\d{0,6})([smhd])", text.strip(), re.ASCII)
    if match is None:
        raise ConfigError(f"{what} {text!r} is not a period", "write it like 30m, 12h or 7d")
    return int(match[1]) * _UNITS[match[2]]


@app.command()
def pause(pool: PoolOption, by: Acting) -> None:
    """No new joins or submissions until resumed; votes, pay and disputes go on."""
    _change(lambda pools: pools.pause_pool(pool), f"pause pool {pool}", by, pool=pool)


@app.command()
def resume(pool: PoolOption, by: Acting) -> None:
    """Open a paused pool again."""
    _change(lambda pools: pools.resume_pool(pool), f"resume pool {pool}", by, pool=pool)


@app.command()
def close(pool: PoolOption, by: Paying) -> None:
    """Close a pool for good: no more joins, steps or submissions. The rest of the budget follows with `settle`."""
    _change(lambda pools: pools.close_pool(pool), f"close for good pool {pool}", by, pool=pool)


@app.command()
def settle(pool: PoolOption, by: Acting) -> None:
    """After a closed pool's last window: take the free budget back."""
    from cli.session import open_session

    session = open_session(by.deployment, by.rpc)
    view, now = session.pool(pool), session.client.now()
    if view.settle_at > now:
        raise ConfigError(f"pool {pool} can be settled at {clock(view.settle_at)}", "run this again then")
    _change(lambda pools: pools.settle_pool(pool), f"take the leftovers of pool {pool}", by, pool=pool)


@app.command("remove-node")
def remove_node(pool: PoolOption, node: NodeOption, by: Paying) -> None:
    """Keep a node from any later submission; its stake and its work so far are untouched."""
    title = f"remove node {node} from pool {pool} for good"
    _change(lambda pools: pools.remove_node(pool, node), title, by, pool=pool, node=node)


def _change(change: "Callable[[Pools], ContractCall[Any]]", title: str, by: Acting, *, pool: int, **facts: Any) -> None:
    """One call of a pool's owner."""
    session = by.open()
    session.pool(pool)
    act(session, [PlannedTransaction(title, change(session.suite.pools))], by, pool=pool, **facts)


# ~ `muster run report`: a run's record as one page that opens anywhere, without a service or a network.


app_report = Commands(help="A pool's run, as its service tells it.", no_args_is_help=True)
app_report.callback()(lambda: None)


@app_report.command()
def report(
    out: Annotated[Path, typer.Option(help="Page to write; the record is written beside it.")] = Path("report.html"),
    orchestrator: Annotated[str | None, typer.Option(help="URL of the pool's service.")] = None,
    run: Annotated[
        Path | None, typer.Option("--run", help="Or the folder of a run, such as `muster demo` leaves.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Keep a run as one page: rewards, training, nodes, files with verdicts and completions, money."""
    from orchestrator.page import report_page
    from orchestrator.report import documents
    from orchestrator.results import fetch_details, fetch_record, read_results
    from protocol.files import explained

    if (orchestrator is None) == (run is None):
        raise ConfigError("one source is needed", "pass --orchestrator URL or --run FOLDER")
    if run is not None:
        summary, record, details = read_results(run)
    else:
        summary, record = None, fetch_record(str(orchestrator))
        details = fetch_details(str(orchestrator), record)
    with explained(f"write {out}", "check the folder"):
        out.write_text(report_page(documents(summary, record, details)), encoding="utf-8")
        if run is None:
            out.with_suffix(".json").write_text(record.model_dump_json(indent=1), encoding="utf-8")
    shown = {"report": str(out), "pool": record.pool, "step": record.step, "steps": record.steps}
    emit(shown, json, lambda: f"{out}: {record.name}, policy step {record.step} of {record.steps}")


# ~ `muster trainer`: what a pool's owner can ask of a machine before and beside `muster trainer run`.


app_trainer = Commands(help="The trainer process.", no_args_is_help=True)
app_trainer.callback()(lambda: None)


@app_trainer.command("bench")
def bench(
    config: Annotated[
        Path,
        typer.Option(
            exists=True, dir_okay=False, help="The trainer's configuration; engine, parallel, memory are used."
        ),
    ],
    pool_config: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="Pool configuration: model, work.")],
    weights: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Folder of the model instead of its source.")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, max=4096, help="Packed rows of each rank in a step.")] = 4,
    steps: Annotated[int, typer.Option(min=1, max=1000, help="Measured steps, after one that is not.")] = 3,
    json: JsonOption = False,
) -> None:
    """Train on made-up rollouts: tokens per second, utilisation, peak memory, and what fits. Needs no chain, no bucket
    and no key."""
    from trainer.main import run_bench

    report = run_bench(config, pool_config, weights, rows, steps, lambda line: typer.echo(line, err=True))
    if report is not None:
        emit(vars(report), json, lambda: _lines(report))


def _lines(report: "BenchReport") -> str:
    gib = 1 << 30
    peak = f"{report.peak_flops / 1e9:,.0f} GFLOP/s" + (", measured" if report.peak_measured else "")
    fit = f"{report.row_tokens_fit}" if report.row_tokens_fit else "unknown"
    return fields(
        {
            "device": f"{report.ranks} × {report.device}, {report.dtype}",
            "model": f"{report.parameters / 1e6:.1f} million parameters",
            "step": f"{report.rollouts} rollouts, {report.tokens} tokens, {report.seconds:.2f} s",
            "tokens per second": f"{report.tokens_per_second:.0f}",
            "utilisation (MFU)": f"{report.mfu:.1%} of {peak}",
            "ranks wait": f"{report.idle_share:.1%}",
            "peak memory": f"{report.peak_bytes / gib:.2f} GiB with memory.row_tokens {report.row_tokens}",
            "a token in a row": f"{report.bytes_per_token / 1024:.1f} KiB",
            "row_tokens that fit": fit,
        }
    )
