"""`muster doctor`: every prerequisite, one line each, with what to do about those that are missing."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import DeploymentOption, JsonOption, RpcOption
from cli.output import emit


def doctor(
    deployment: DeploymentOption = None,
    rpc: RpcOption = None,
    chain_id: Annotated[int | None, typer.Option(help="Chain id that the RPC must have.")] = None,
    s3: Annotated[Path | None, typer.Option(help="JSON file: endpoint, bucket, region, credentials.")] = None,
    orchestrator: Annotated[str | None, typer.Option(help="URL of a pool's orchestrator.")] = None,
    keystore: Annotated[list[Path] | None, typer.Option(help="Key file to look at.")] = None,
    cache: Annotated[list[Path] | None, typer.Option(help="Cache of weights to read through.")] = None,
    pool_config: Annotated[list[Path] | None, typer.Option(help="Pool configuration to read.")] = None,
    port: Annotated[list[int] | None, typer.Option(min=1, max=65535, help="Port that must be free.")] = None,
    isolation_image: Annotated[str, typer.Option(help="Image that a worker's container runs, by its digest.")] = "",
    data: Annotated[Path, typer.Option(help="Folder where a local network would keep its files.")] = Path("runs"),
    json: JsonOption = False,
) -> None:
    """Check this machine, and the services and files that are named or stand in the profile: what was found, what it is
    needed for, what to do. Exit code 1 if anything is missing or damaged."""
    from cli.doctor.examine import Examination, examine

    asked = Examination(
        deployment, rpc, chain_id, s3, orchestrator, keystore or [], cache or [], pool_config or [], port or [], data,
        isolation_image,
    )  # fmt: skip
    prerequisites = list(examine(asked))
    emit([p.document() for p in prerequisites], json, lambda: "\n".join(p.line() for p in prerequisites))
    if any(p.state == "failed" for p in prerequisites):
        raise typer.Exit(1)
