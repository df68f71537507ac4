"""`muster deploy`: bring the contracts to a chain, or finish doing so."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import DryRunOption, KeyOptions, RpcOption, YesOption, address_option, key_path
from cli.output import emit
from cli.plan import confirm
from protocol.errors import ConfigError


def deploy(
    key: KeyOptions,
    network: Annotated[str, typer.Option(help="local, base-sepolia, or a TOML file.")] = "local",
    rpc: RpcOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the deployment file.")] = None,
    governance: Annotated[
        str | None, address_option("--governance", "Who proposes to the timelock; your key if missing.")
    ] = None,
    guardian: Annotated[
        str | None, address_option("--guardian", "Who may pause new entries at once; governance if missing.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over with new addresses.")] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Deploy the contract suite. Run it again after any interruption: it finishes what is missing, or does nothing."""
    from chain import deploy as work
    from chain.client import ChainClient
    from chain.deployment import NetworkConfig
    from cli.session import rpc_urls
    from runtime.keystore import open_key

    config = NetworkConfig.load(network).governed_by(governance, guardian)
    path = key_path(key.keystore)
    folder = out or Path("deployments") / config.name
    urls = rpc_urls(network, rpc)
    if config.name == "local" and rpc:
        config = config.model_copy(update={"rpc_urls": tuple(urls)})
    ChainClient(urls, config.chain_id, patience=8.0).close()
    client = ChainClient(urls, config.chain_id, open_key(path, key.password_file))
    todo = work.plan(client, config, folder, fresh=fresh)
    if not key.json:
        typer.echo("\n".join(todo.lines()))
    if dry_run:
        steps = [
            {"contract": s.contract, "address": s.address, "exists": s.exists, "gas": s.gas} for s in todo.creations
        ]
        document = {"dry_run": True, "complete": todo.complete, "gas": todo.gas, "cost_wei": todo.cost, "plan": steps}
        emit(document, key.json, lambda: "dry run: nothing was sent")
        return
    if not todo.complete and not yes:
        confirm(f"Deploy to {config.name} (chain {config.chain_id})?")
    try:
        done = work.deploy(client, config, folder, fresh=fresh)
    except OSError as error:
        raise ConfigError(
            f"cannot write {folder}: {error.strerror}", "choose another --out, then run this again"
        ) from None
    file = folder / work.DEPLOYMENT
    emit({**done.model_dump(mode="json"), "file": str(file)}, key.json, lambda: f"deployment file: {file}")
