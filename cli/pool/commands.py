"""`muster pool`: what a pool's owner does, from writing its configuration to taking the rest of its budget back."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from cli import options
from cli.options import Commands
from cli.output import clock, emit, fields, seconds, table
from cli.plan import PlannedTransaction, act, act_on_pool
from cli.pool.calibrate import calibrate
from cli.profile import find_profile, name_model_folder, name_pool, profile_path
from protocol.encoding import show_tokens
from protocol.errors import ConfigError, printable
from protocol.files import explained, write_file

if TYPE_CHECKING:
    from chain.contracts import ContractCall
    from chain.indexer.records import Terms
    from chain.transactions import Receipt
    from cli.session import Session
    from protocol.config import PoolConfig

app = Commands(help="Own a pool: configure, create, serve, train, close.", no_args_is_help=True)
_ETHER = 10**18
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

ServiceKeyOption = Annotated[
    str | None, options.address_option("--service-key", "Address of the key that relays files: the orchestrator's.")
]
UrlOption = Annotated[str | None, Option("--url", help="Where the pool's service answers, for everybody to see.")]
ConfigFile = Annotated[Path, Option(help="Pool configuration, TOML or JSON (muster pool init).")]
TermsFileOption = Annotated[Path, Option(help="Terms (TOML), or a network that muster has terms for.")]
SpeedOption = Annotated[
    float,
    Option("--validator-speed", min=0, help="10^12 operations a second of validators; 0: 100 in bf16, 25 in fp32."),
]
BudgetOption = Annotated[int, options.tokens_option("--budget", 'Tokens to escrow, such as "1000".')]


# Making a pool


@app.command("init", "muster pool init --model my-model --env reasoning_gym/chain_sum --param min_terms=3")
def init(
    model: Annotated[Path, Option(help="Folder of the model to train.")],
    env: Annotated[str, Option(help="Environment, such as reasoning_gym/chain_sum.")],
    param: Annotated[
        list[str] | None, Option(metavar="NAME=VALUE", help="Environment's parameter; can be repeated.")
    ] = None,
    name: Annotated[str | None, Option(help="Name of the pool; the folder's if missing.")] = None,
    rollouts: Annotated[int | None, Option(min=1, help="A data pool that buys so many and trains nothing.")] = None,
    out: Annotated[Path, Option(help="File to write.")] = Path("pool.toml"),
    force: Annotated[bool, Option("--force", help="Replace the file.")] = False,
    json: options.JsonOption = False,
) -> None:
    """Write a pool's configuration in which every field is explained; needs no chain and no key."""
    from cli.pool.config import environment_parameters, parameter, pool_config, pool_file, world_problems
    from protocol.config import DataConfig

    if out.suffix != ".toml":
        raise ConfigError(f"{out} does not end in .toml", "comments need TOML; choose another --out")
    if out.exists() and not force:
        raise ConfigError(f"{out} exists", "choose another --out, or pass --force")
    config = pool_config(model.expanduser(), env, dict(map(parameter, param or ())), name)
    if rollouts is not None:
        config = config.model_copy(update={"data": DataConfig(rollouts=rollouts)})
    for problem in world_problems(config, model.expanduser()):
        raise problem
    write_file(out, pool_file(config, environment_parameters(env)).encode())
    folder, remembered = model.expanduser().resolve(), "the profile says where the trainer finds it"
    if find_profile("owner") is None:
        remembered = f'the trainer finds it by `base = "{folder}"` in its configuration'
    else:
        name_model_folder(profile_path("owner"), folder)
    shown = {"file": str(out), "config_hash": config.digest.hex(), "dtype": config.model.dtype}
    lines = [
        f"{out}: {config.name}, {config.model.dtype}, {config.work.rows} rollouts in a file",
        f"nodes see the model as {config.model.source!r}; {remembered}",
        f"next: muster pool check --config {out} --terms base-sepolia --budget 1000",
    ]
    emit(shown, json, lambda: "\n".join(lines))


@app.command("check", "muster pool check --config pool.toml --terms base-sepolia --budget 1000")
def check(
    config: ConfigFile,
    terms: TermsFileOption,
    budget: BudgetOption,
    speed: SpeedOption = 0.0,
    json: options.JsonOption = False,
) -> None:
    """Find what would keep a pool from working, and what its files cost; needs no chain and no key.

    Exit code 1 if it could not work; warnings do not count."""
    from cli.pool.config import costs, costs_text, warnings

    document, values, judged, problems = _checked(config, terms, budget, speed)
    cost = costs(document, values, budget)
    warned = list(map(str, warnings(document, values)))
    shown = {**cost, "judging": judged, "problems": list(map(str, problems)), "warnings": warned}
    lines = [costs_text(cost), fields({"judging": judged}), *(f"WARNING  {line}" for line in warned)]
    lines += [f"PROBLEM  {problem}" for problem in problems] or ["this pool can work"]
    emit(shown, json, lambda: "\n".join(lines), not problems)


def _checked(
    config: Path, terms: Path, budget: int, speed: float
) -> "tuple[PoolConfig, Terms, str, list[ConfigError]]":
    """Read configuration and terms; also return what judging costs, and what would keep the pool from working."""
    from cli.pool.config import contradictions, judging, load_terms, model_document, world_problems
    from protocol.config import PoolConfig

    document = PoolConfig.load(config)
    values = load_terms(terms, document.digest, document.work.units)
    profile = find_profile("owner")
    base = profile.trainer.get("base") if profile is not None else None
    folder = Path(base) if base else None
    judged, slow = judging(document, values, model_document(document, folder), speed)
    problems = [*contradictions(document, values, budget), *world_problems(document, folder), *slow]
    return document, values, judged, problems


@app.command("create", "muster pool create --config pool.toml --terms terms.toml --budget 1000 --dry-run")
def create(
    config: ConfigFile,
    terms: TermsFileOption,
    budget: BudgetOption,
    by: options.Paying,
    service_key: ServiceKeyOption = None,
    url: UrlOption = None,
    speed: SpeedOption = 0.0,
) -> None:
    """Create a pool and escrow its budget; configuration and terms can never change.

    It takes work once enough seats judge it. On a local chain, missing tokens and gas come from its faucet."""
    from cli.pool.config import costs, costs_text, warnings

    document, values, _, problems = _checked(config, terms, budget, speed)
    session = by.open()
    session.client.simulate(session.suite.params.call("checkTerms", values.as_tuple()))
    for problem in problems:
        raise ConfigError(problem.what, f"{problem.hint} (see: muster pool check)")
    unbonding = session.suite.params.check_terms(values.as_tuple())
    call = session.suite.pools.create_pool(values, budget)
    title = f"create pool “{document.name}” and escrow {show_tokens(budget)} tokens"
    number = session.suite.pools.pool_count() + 1  # another's pool, if one is made meanwhile, takes no service of ours
    planned = [PlannedTransaction(title, call), *_service_calls(session, number, service_key, url, after=True)]
    if not by.json:
        typer.echo(_terms_text(document, values, unbonding))
        typer.echo(costs_text(costs(document, values, budget)))
    warned = list(map(str, warnings(document, values)))
    for line in warned:
        typer.echo(f"WARNING  {line}", err=True)

    def outcome(receipts: list["Receipt"]) -> tuple[dict[str, Any], str]:
        number = call.result(receipts[0])
        hint = "its seats: muster pool status" if service_key else "next: muster pool set-service"
        hint += f" --pool {number}"
        return {"pool": number}, f"pool {number}; {_remember(number)}{hint}"

    facts = {"config_hash": document.digest.hex(), "budget": budget, "unbonding": unbonding, "warnings": warned}
    take_from_local_chain(session, budget, service_key, by.dry_run)
    act(session, planned, by, outcome, **facts)


def _remember(pool: int) -> str:
    """Write the pool's number into the owner's profile if that names none; else say whose the profile is."""
    profile = find_profile("owner")
    if profile is not None and profile.pool is None:
        name_pool(profile_path("owner"), pool)
    elif profile is not None and profile.pool != pool:
        return (
            f"the profile stays pool {profile.pool}'s: commands about this one need --pool {pool}, or a profile of its "
            "own (MUSTER_PROFILE). "
        )
    return ""


def take_from_local_chain(session: "Session", budget: int, service_key: str | None, dry_run: bool) -> None:
    """Give owner (also in a dry run) and service the tokens and gas they lack, where that costs nothing."""
    from cli.run.up import LocalFaucet

    faucet, owner = LocalFaucet.of(session.suite), session.account.address
    if faucet is None:
        return
    for address in filter(None, (owner, None if dry_run else service_key)):
        if session.client.balance(address) < _ETHER:
            faucet.ether(address, _ETHER)
    if (lacks := budget - session.suite.token.balance_of(owner)) > 0:
        faucet.tokens(owner, lacks)


def _terms_text(config: "PoolConfig", terms: "Terms", unbonding: int) -> str:
    from chain.indexer.state import describe, needed

    judges = describe(terms.group) if terms.group else "this pool alone"
    return fields(
        {
            "model": f"{config.model.source}, licence {config.model.license}",
            "pay": f"{show_tokens(terms.rate)} tokens per verified output token",
            "stake": f"{show_tokens(terms.minStake)} tokens at least, locked {seconds(unbonding)} after a node leaves",
            "judges": f"{needed(terms)} seats at least that chose {judges}; they audit {terms.audit_fraction:.0%}",
            "membership": "by invite" if terms.inviteOnly else "open to every staked node",
            "config": terms.configHash.hex(),
        }
    )


def _service_calls(
    session: "Session", pool: int, service_key: str | None, url: str | None, after: bool = False
) -> list[PlannedTransaction]:
    """Plan what names a pool's service key and announces where it answers. Raises ConfigError for what is no URL."""
    from protocol.http.signing import service_url

    court, planned = session.suite.court, []
    if service_key is not None:
        call = court.set_service(pool, service_key)
        planned.append(PlannedTransaction(f"pool {pool}'s service relays with key {service_key}", call, after))
    if url is not None:
        call = court.announce_service(pool, service_url(url))
        planned.append(PlannedTransaction(f"pool {pool}'s service answers at {service_url(url)}", call, after))
    return planned


_CALIBRATE = "muster pool calibrate --pool-config pool.json --weights model --keystore key.json --out out.json"
app.command("calibrate", _CALIBRATE)(calibrate)
# Running it


@app.command("serve", "muster pool serve")
def serve(config: options.OwnConfigOption = None) -> None:
    """Run the pool's service: leases, upload tickets, relaying files, the dashboard."""
    from cli.run.process import profile_config
    from orchestrator.main import run

    run(config or profile_config("orchestrator"))


@app.command("train", "muster pool train --config trainer.json --bench pool.toml --weights model")
def train(
    config: options.OwnConfigOption = None,
    sft: Annotated[Path | None, Option(exists=True, dir_okay=False, help="Instead: fine-tune by this file.")] = None,
    bench: Annotated[
        Path | None,
        Option(exists=True, dir_okay=False, help="Instead: measure made-up steps of this pool configuration."),
    ] = None,
    plan: Annotated[
        Path | None,
        Option(exists=True, dir_okay=False, help="Instead: compute the memory that this pool configuration takes."),
    ] = None,
    weights: Annotated[
        Path | None, Option(exists=True, file_okay=False, help="The model's folder, for --bench or --plan.")
    ] = None,
    gpus: Annotated[list[int], Option(min=1, max=4096, help="With --plan: GPUs; repeat it.")] = [1, 8, 16],  # noqa: B006
    gib: Annotated[float, Option(min=1, help="With --plan: GiB of each.")] = 80.0,
    rows: Annotated[int, Option(min=1, max=4096, help="With --bench: packed rows of each rank in a step.")] = 4,
    steps: Annotated[int, Option(min=1, max=1000, help="With --bench: measured steps, after a first one.")] = 3,
    json: options.JsonOption = False,
) -> None:
    """Train the pool's model on accepted rollouts and publish every policy step.

    Exit codes: 3 a rank died, 4 stopped before the last step, 5 training became unstable. With --bench, report tokens
    per second, utilisation and peak memory instead; that needs no chain and no key. --plan needs no GPU
    and of the model only config.json."""
    from cli.run.process import profile_config
    from trainer.main import run, run_bench, run_plan, run_sft

    if sft is not None:
        run_sft(sft)
    elif plan is not None:
        emit(run_plan(config, plan, weights, gpus, gib), json)
    elif bench is None:
        run(config or profile_config("trainer"))
    elif config is None:
        raise ConfigError("--bench needs the trainer's configuration", "pass --config FILE")
    elif report := run_bench(config, bench, weights, rows, steps, lambda line: typer.echo(line, err=True)):
        emit(report, json)


@app.command("report", "muster pool report --pool https://pool.example --out report.html")
def report(
    out: Annotated[Path, Option(help="Page to write; the record is written beside it.")] = Path("report.html"),
    pool: options.PoolOption = None,
    run: Annotated[Path | None, Option(help="Or the folder of a run, such as `muster demo` leaves.")] = None,
    json: options.JsonOption = False,
) -> None:
    """Write a run's record as one page that opens anywhere: rewards, training, nodes, files, money."""
    from orchestrator.dashboard.page import report_page
    from orchestrator.dashboard.results import documents, fetch_details, fetch_record, read_results

    url = pool.url if pool else None
    if url is None and run is None:
        raise ConfigError("no run is named", "pass --pool URL or --run FOLDER")
    if run is not None:
        summary, record, details = read_results(run)
    else:
        summary, record = None, fetch_record(str(url))
        details = fetch_details(str(url), record)
    with explained(f"write {out}", "check the folder"):
        out.write_text(report_page(documents(summary, record, details)), encoding="utf-8")
        if run is None:
            out.with_suffix(".json").write_text(record.model_dump_json(indent=1), encoding="utf-8")
    shown = {"report": str(out), "pool": record.pool, "step": record.step, "steps": record.steps}
    emit(shown, json, lambda: f"{out}: {record.name}, policy step {record.step} of {record.steps}")


# Owning it


@app.command("list", "muster pool list")
def list_pools(look: options.Reading) -> None:
    """List every pool of the deployment: phase, step, seats, nodes, and where its service answers."""
    from cli.diagnose.views import pool_phase, pool_view

    session = look.open()
    state, now = session.state(), session.client.now()
    views = [view for number in sorted(state.pools) if (view := pool_view(state, number, now))]
    rows = [
        (
            view["pool"],
            pool_phase(view),
            view["step"] if view["step"] >= 0 else "-",
            f"{view['seats']['count']}/{view['seats']['needed']}",
            sum(node["standing"] == "member" for node in view["nodes"]),
            printable(view["service"]["url"], 80) or "-",
        )
        for view in views
    ]
    document = {
        "network": session.deployment.network,
        "chain_id": session.client.chain_id,
        "paused": state.paused_until > now,
        "pools": views,
    }
    head = ["pool", "phase", "step", "seats", "nodes", "service"]
    emit(document, look.json, lambda: table(head, rows, empty="no pool yet"))


@app.command("status", "muster pool status --pool 1")
def status(look: options.PoolReading) -> None:
    """Answer whether the pool is seen, what it does, what was paid and refused, and what to do next.

    It answers what it can when chain or service are down, and says which is, since when."""
    from cli.diagnose.status import pool_status

    document, text = pool_status(look)
    emit(document, look.json, lambda: text)


@app.command("set-service", "muster pool set-service --pool 1 --service-key ADDRESS --url https://pool.example")
def set_service(
    by: options.PoolActing,
    service_key: ServiceKeyOption = None,
    url: UrlOption = None,
    count_seats: Annotated[
        bool,
        Option("--count-seats", help="Also count the seats that judge the pool: it takes work if enough do."),
    ] = False,
) -> None:
    """Name the service's key, announce where it answers, or count the seats that judge the pool.

    A former key stays valid for the receipt window; until that is over it cannot be replaced again."""
    session = by.open()
    pool = by.number(session)
    planned = [] if count_seats and url is None else _service_calls(session, pool, service_key, url)
    if count_seats:
        call = session.suite.pools.review_seats(pool)
        planned.append(PlannedTransaction(f"count the seats that judge pool {pool}", call))
    if not planned:
        raise ConfigError("nothing to set is named", "pass --service-key ADDRESS, --url URL or --count-seats")
    act(session, planned, by, pool=pool, service_key=service_key, url=url)


@app.command("fund", "muster pool fund --pool 1 --amount 100")
def fund(amount: options.AmountOption, by: options.PoolPaying) -> None:
    """Add to a pool's budget."""
    act_on_pool(
        by,
        lambda suite, pool: (f"add {show_tokens(amount)} tokens to pool {pool}", suite.pools.fund(pool, amount)),
        added=amount,
    )


@app.command("invite", "muster pool invite --pool 1 --node ADDRESS --out invite.json --for 7d")
def invite(
    node: options.NodeOption,
    out: options.OutFileOption,
    key: options.KeyOptions,
    look: options.PoolReading,
    valid: Annotated[str, Option("--for", help="How long it can be used: 30m, 12h, 7d.")] = "7d",
) -> None:
    """Sign an invite for a node into a file for its operator; sends nothing."""
    from cli.pool.authorisations import Invite
    from cli.session import open_session

    period = parse_period(valid, "--for")
    session = open_session(look.deployment, look.rpc, options.key_path(key.keystore), key.password_file)
    number = look.number(session)
    owner = session.pool(number)["owner"]
    if owner != session.client.address:
        raise ConfigError(f"pool {number} is owned by {owner}, not by {session.client.address}", "use the owner's key")
    pools, chain, expiry = session.suite.pools.address, session.client.chain_id, session.client.now() + period
    invite = Invite(chain_id=chain, contract=pools, pool=number, node=node, expiry=expiry)
    invite.signed(session.account).write(out)
    emit(
        {"pool": number, "node": node, "expiry": expiry, "file": str(out)},
        key.json,
        lambda: f"{out}: invites {node} to pool {number} until {clock(expiry)}",
    )


def parse_period(text: str, what: str) -> int:
    """Return the seconds of `30m`, `12h` or `7d`. Raises ConfigError."""
    match = re.fullmatch(r"([1-9]\d{0,6})([smhd])", text.strip(), re.ASCII)
    if match is None:
        raise ConfigError(f"{what} {text!r} is not a period", "write it like 30m, 12h or 7d")
    return int(match[1]) * _UNITS[match[2]]


@app.command("remove-node", "muster pool remove-node --pool 1 --node ADDRESS")
def remove_node(node: options.NodeOption, by: options.PoolPaying) -> None:
    """Keep a node from any later submission; its stake and its work so far are untouched."""
    act_on_pool(
        by,
        lambda suite, pool: (f"remove node {node} from pool {pool} for good", suite.pools.remove_node(pool, node)),
        node=node,
    )


@app.command("pause", "muster pool pause --pool 1")
def pause(
    by: options.PoolActing, end: Annotated[bool, Option("--end", help="Open the pool again instead.")] = False
) -> None:
    """Take no new members or files until the pause is ended; votes, pay and disputes go on."""
    if end:
        act_on_pool(by, lambda suite, pool: (f"resume pool {pool}", suite.pools.resume_pool(pool)))
    else:
        act_on_pool(by, lambda suite, pool: (f"pause pool {pool}", suite.pools.pause_pool(pool)))


@app.command("close", "muster pool close --pool 1")
def close(by: options.PoolPaying) -> None:
    """Close a pool for good, or take the rest of its budget back once its last window is over: run it again then."""
    session = by.open()
    pool = by.number(session)
    view, now, pools = session.pool(pool), session.client.now(), session.suite.pools
    status = session.state().pools[pool].status
    if status == "settled":
        raise ConfigError(f"pool {pool} is settled", "nothing has to be done")
    call: ContractCall[Any]
    if status != "closing":
        title, call = f"close pool {pool} for good: no more members, steps or files", pools.close_pool(pool)
    elif view["settleAt"] > now:
        raise ConfigError(f"pool {pool} can be settled at {clock(view['settleAt'])}", "run this again then")
    else:
        title, call = f"take the rest of the budget of pool {pool}", pools.settle_pool(pool)
    act(session, [PlannedTransaction(title, call)], by, pool=pool)
