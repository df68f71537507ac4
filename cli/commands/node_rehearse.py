"""`muster node rehearse`: would this machine's files be accepted? One file, judged before any stake."""

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import EngineOptions, PoolOption, Reading, address_option
from cli.output import emit
from protocol.errors import ConfigError, MusterError

if TYPE_CHECKING:
    from cli.profile import Profile
    from protocol.config import PoolConfig
    from protocol.seeds import Work
    from runtime.pool_client import PoolClient
    from runtime.process import EngineConfig

EngineOption = Annotated[
    str | None, typer.Option(metavar="ENGINE:DTYPE:DEVICE", help="What makes the file; the profile's if missing.")
]
VerifierOption = Annotated[
    str | None, typer.Option(metavar="ENGINE:DTYPE:DEVICE", help="What judges it; transformers if missing.")
]


def rehearse(
    look: Reading,
    pool: PoolOption = 1,
    orchestrator: Annotated[str | None, typer.Option(help="The pool's service, or another source of files.")] = None,
    worker: EngineOption = None,
    verifier: VerifierOption = None,
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
    """Make one file from the pool's current weights as the worker would, and judge it as validators would. Needs no key
    and no stake, sends nothing. Exit code 1 if it would be refused."""
    from cli.observer import observer_config
    from cli.profile import find_profile
    from cli.rehearsal import Draw, judge_alone, make_alone
    from cli.views.rehearsal import rehearsal_text, rehearsal_view
    from protocol.files import user_cache
    from runtime.pool_client import PoolClient
    from runtime.process import EngineConfig

    if orchestrator is None:
        raise ConfigError("no service is named", "pass --orchestrator URL, or: muster init operator")
    profile = find_profile("operator")
    home, kept = user_cache("rehearse"), cache or (profile.cache if profile else user_cache("weights"))
    private = allow_private_sources or bool(profile and profile.allow_private_sources)
    client = PoolClient(observer_config(look, pool, orchestrator, EngineConfig(), home, kept, private), None)
    try:
        work = next_work(client, address)
        terms = client.state.pools[pool].terms
        config = client.pool_config(20.0)
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
    view = rehearsal_view(work, made, judged, terms, config.checks)
    emit(view, look.json, lambda: rehearsal_text(view))
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
