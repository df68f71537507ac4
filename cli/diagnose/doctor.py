"""`muster doctor`, `watch` and `why`: what is missing, what goes wrong, what became of a file."""

import os
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from cli.options import ConfigFileOption, DeploymentOption, JsonOption, PoolOption, PoolReading, RpcOption
from cli.output import emit
from cli.profile import Profile, find_profile
from protocol.errors import ConfigError, MusterError

if TYPE_CHECKING:
    from cli.diagnose.checks import Check


def examine(deployment: Path | None, rpc: str | None, url: str | None) -> "Iterator[Check]":
    """Yield every check, in order. `url`: the pool's service."""
    from cli.diagnose import checks
    from protocol.config import PoolConfig
    from protocol.http.signing import service_url

    profile: Profile | None = None
    yield from checks.machine()
    try:
        profile = find_profile(None)
        if profile and profile.service:
            service_url(profile.service)
    except MusterError as error:
        yield checks.failed("profile", error.what, error.hint)
    home = profile.home if profile else Path()
    yield checks.isolation(profile.isolation_image if profile else "")
    yield checks.disk(home)
    yield from checks.hardware(profile.engine.device if profile else "cpu")
    chain_results, block = checks.chain_checks(deployment, rpc)
    yield from chain_results
    yield from checks.service_checks(url)
    if url:
        yield checks.serving(url)
    if profile is not None:
        yield from checks.profile_keys(profile)
        yield checks.cached_weights(profile.cache)
        if path := profile.pool_config:
            yield checks.judged("pool config", partial(PoolConfig.load, path), f"{path} is one")
        if profile.s3:
            yield checks.judged("s3", partial(checks.bucket, profile.s3))
        if profile.deployment and block is not None:
            yield from checks.money(profile)


def doctor(
    deployment: DeploymentOption = None,
    rpc: RpcOption = None,
    pool: PoolOption = None,
    bundle: Annotated[Path | None, Option(help="Write findings, status and logs, no secrets, to this .tar.gz.")] = None,
    json: JsonOption = False,
) -> None:
    """Check this machine, the profile, and the services and files that are named.

    Exit code 1 if anything is missing or damaged."""
    results = list(examine(deployment, rpc, pool.url if pool else None))
    documents = [asdict(check) for check in results]
    if bundle is not None:
        write_bundle(bundle, documents)
        typer.echo(f"{bundle} is written; look through it before you send it", err=True)
    sound = all(check.state != "failed" for check in results)
    emit(documents, json, lambda: "\n".join(check.line() for check in results), sound)


def write_bundle(path: Path, findings: list[dict[str, str]]) -> None:
    """Put versions, profile, findings, status and the newest log lines into one file. Keys, passwords, signatures of
    URLs and keystores are taken out; if one is found after that, nothing is written."""
    from cli.diagnose.bundle import cleaned, gather, pack

    if not path.name.endswith(".tar.gz"):
        raise ConfigError(f"{path} does not end in .tar.gz", "choose another --bundle")
    if path.exists():
        raise ConfigError(f"{path} exists", "choose another --bundle")
    profile = find_profile(None)
    secret = [key.password_file for _, key in profile.named_keys() if key.password_file] if profile else []
    pack(path, cleaned(gather(profile, findings), os.environ, secret))


def watch(config: ConfigFileOption) -> None:
    """Watch one participant from outside of its process, for Prometheus and webhooks."""
    from runtime.watch import run

    run(config)


def why(file: Annotated[int, Argument(min=0, help="Number of the file in its pool.")], look: PoolReading) -> None:
    """Explain what happened to a file, who decided it by which findings, and what can be done."""
    from cli.diagnose.status import explain
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
