"""`muster doctor`, `watch` and `why`: what is missing, what goes wrong, what became of a file."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import DeploymentOption, JsonOption, PoolOption, PoolReading, RpcOption
from cli.output import emit
from protocol.errors import ConfigError, MusterError

if TYPE_CHECKING:
    from cli.diagnose.checks import Check
    from cli.profile import Profile


def examine(
    deployment: Path | None = None,
    rpc: str | None = None,
    url: str | None = None,
    s3: Path | None = None,
    keystores: Sequence[Path] = (),
    ports: Sequence[int] = (),
    data: Path = Path("runs"),
    isolation_image: str = "",
) -> "Iterator[Check]":
    """Yield every check, in order. `url`: the service's; `data`: where a local network would keep its files."""
    from cli.diagnose import checks
    from cli.profile import find_profile
    from protocol.http.signing import service_url

    profile: Profile | None = None
    yield from checks.machine(data, ports)
    yield checks.isolation(isolation_image)
    try:
        profile = find_profile(None)
        if profile and profile.service:
            service_url(profile.service)
    except MusterError as error:
        yield checks.failed("profile", error.what, error.hint)
    yield checks.disk(profile.home if profile else data)
    yield from checks.hardware(profile.engine.device if profile else "cpu")
    chain_id = None
    if deployment is not None:
        found, named_rpc, chain_id = checks.deployment(deployment)
        yield found
        rpc = rpc or named_rpc
    lines, block = checks.rpc_checks(rpc, chain_id)
    yield from lines
    lines, service = checks.service_checks(url)
    yield from lines
    yield checks.judge_clock(block, service.clock_offset if service else None)
    yield checks.judged("s3", partial(checks.bucket, s3)) if s3 else checks.note("s3", "none named (--s3)")
    if url:
        yield checks.storage(url)
        yield checks.serving(url)
    named = {key.keystore for _, key in profile.named_keys()} if profile else set()
    yield from (checks.keystore(path) for path in keystores if path not in named)
    if profile is not None:
        yield from checks.profile_keys(profile)
        yield checks.cached_weights(profile.cache)
        if path := profile.pool_config:
            yield checks.judged("pool config", partial(checks.pool_config, path))
        yield from checks.validator_checks(profile)
        if profile.deployment and block is not None:
            yield from checks.money(profile)


def doctor(
    deployment: DeploymentOption = None,
    rpc: RpcOption = None,
    pool: PoolOption = None,
    s3: Annotated[Path | None, typer.Option(help="JSON file {endpoint, bucket, region, credentials}.")] = None,
    keystore: Annotated[list[Path] | None, typer.Option(help="Key file to look at; can be repeated.")] = None,
    port: Annotated[list[int] | None, typer.Option(min=1, max=65535, help="Port that must be free.")] = None,
    isolation_image: Annotated[str, typer.Option(help="Image that a worker's container runs, by its digest.")] = "",
    data: Annotated[Path, typer.Option(help="Folder where a local network would keep its files.")] = Path("runs"),
    bundle: Annotated[
        Path | None, typer.Option(help="Write findings, status and logs without secrets to this .tar.gz, for a helper.")
    ] = None,
    lines: Annotated[int, typer.Option(min=0, max=100_000, help="With --bundle: newest lines of each log.")] = 2000,
    json: JsonOption = False,
) -> None:
    """Check this machine, the profile, and the services and files that are named.

    Exit code 1 if anything is missing or damaged."""
    url = pool.url if pool else None
    found = list(examine(deployment, rpc, url, s3, keystore or [], port or [], data, isolation_image))
    documents = [asdict(check) for check in found]
    if bundle is not None:
        write_bundle(bundle, documents, lines)
        typer.echo(f"{bundle} is written; look through it before you send it", err=True)
    sound = all(check.state != "failed" for check in found)
    emit(documents, json, lambda: "\n".join(check.line() for check in found), sound)


def write_bundle(path: Path, findings: list[dict[str, str]], lines: int) -> None:
    """Put versions, profile, findings, status and the newest log lines into one file. Keys, passwords, signatures of
    URLs and keystores are taken out; if one is found after that, nothing is written."""
    from cli.diagnose.bundle import cleaned, gather, pack
    from cli.profile import find_profile

    if not path.name.endswith(".tar.gz"):
        raise ConfigError(f"{path} does not end in .tar.gz", "choose another --bundle")
    if path.exists():
        raise ConfigError(f"{path} exists", "choose another --bundle")
    profile = find_profile(None)
    secret = [key.password_file for _, key in profile.named_keys() if key.password_file] if profile else []
    pack(path, cleaned(gather(profile, findings, lines), os.environ, secret))


def watch(
    config: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="Configuration file, JSON or TOML.")],
) -> None:
    """Watch one participant from outside of its process, for Prometheus and webhooks."""
    from runtime.watch import run

    run(config)


def why(file: Annotated[int, typer.Argument(min=0, help="Number of the file in its pool.")], look: PoolReading) -> None:
    """Explain what happened to a file, who decided it by which findings, and what can be done."""
    from cli.diagnose.look import explain
    from cli.diagnose.views import why_text, why_view

    session = look.open()
    pool, state = look.number(session), session.state()
    sub = state.submissions.get((pool, file))
    if sub is None:
        have = len(state.submissions_of(pool))
        raise ConfigError(f"there is no file {file} in pool {pool}", f"it has {have} files; see: muster pool status")
    view, service = why_view(state, sub, session.client.now()), look.service(session)
    evidence = explain(state, sub, service) if service and view["votes"] else []
    emit(view | {"evidence": evidence}, look.json, lambda: why_text(view, evidence))
