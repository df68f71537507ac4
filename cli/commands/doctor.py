"""`muster doctor`: every prerequisite, one line each, with what to do about those that are missing."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import DeploymentOption, JsonOption, RpcOption
from cli.output import emit

PortsOption = Annotated[list[int] | None, typer.Option("--port", min=1, max=65535, help="Port that must be free.")]
DataOption = Annotated[Path, typer.Option("--data", help="Folder where a local network would keep its files.")]
S3Option = Annotated[Path | None, typer.Option("--s3", help="JSON file: endpoint, bucket, region, credentials.")]
KeysOption = Annotated[list[Path] | None, typer.Option("--keystore", help="Key file to look at.")]
CachesOption = Annotated[list[Path] | None, typer.Option("--cache", help="Cache of weights to read through.")]
PoolsOption = Annotated[list[Path] | None, typer.Option("--pool-config", help="Pool configuration to read.")]
UrlOption = Annotated[str | None, typer.Option("--orchestrator", help="URL of a pool's orchestrator.")]
ChainOption = Annotated[int | None, typer.Option("--chain-id", help="Chain id that the RPC must have.")]


def doctor(
    deployment: DeploymentOption = None,
    rpc: RpcOption = None,
    chain_id: ChainOption = None,
    s3: S3Option = None,
    orchestrator: UrlOption = None,
    keystore: KeysOption = None,
    cache: CachesOption = None,
    pool_config: PoolsOption = None,
    port: PortsOption = None,
    data: DataOption = Path("runs"),
    json: JsonOption = False,
) -> None:
    """Check this machine, and the services and files that are named. Exit code 1 if anything is missing or damaged."""
    from cli.doctor import chain, files, machine, services

    prerequisites = list(machine.look(data, port or []))
    if deployment is not None:
        found, named_rpc, named_chain = chain.look(deployment)
        prerequisites.append(found)
        rpc, chain_id = rpc or named_rpc, chain_id or named_chain
    prerequisites += services.look(rpc, chain_id, s3, orchestrator)
    prerequisites += files.look(keystore or [], cache or [], pool_config or [])
    emit([p.document() for p in prerequisites], json, lambda: "\n".join(p.line() for p in prerequisites))
    if any(p.state == "failed" for p in prerequisites):
        raise typer.Exit(1)
