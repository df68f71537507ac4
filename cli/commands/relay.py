"""`muster relay`: serve a pool's weights to its nodes."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Commands, KeystoreOption, PasswordFileOption
from protocol.errors import ConfigError

app = Commands(help="Serve a pool's weights to its nodes and validators.", no_args_is_help=True)
app.callback()(lambda: None)


@app.command("run")
def run(
    pool: Annotated[str | None, typer.Option("--pool", metavar="URL", help="URL of the pool's service.")] = None,
    public_url: Annotated[
        str, typer.Option(help="Where others reach this relay; it announces itself there. Without it, it does not.")
    ] = "",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8790,
    home: Annotated[
        Path | None, typer.Option(help="Folder of its state and of what it serves.", file_okay=False)
    ] = None,
    keystore: KeystoreOption = None,
    password_file: PasswordFileOption = None,
    rpc: Annotated[str | None, typer.Option("--rpc", help="RPC URL instead of the one that the service names.")] = None,
    allow_private_sources: Annotated[
        bool, typer.Option("--allow-private-sources", help="Follow URLs that others chose into private networks too.")
    ] = False,
    config: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Configuration file instead of all options.")
    ] = None,
) -> None:
    """Fetch the pool's weights, check them, and serve them on, from the moment they begin to come.

    Everything is taken from the pool's service and checked against the chain. The key signs announcements and holds no
    money; it has to belong to a participant of the pool, or to be named by the pool's owner."""
    from cli.relay_config import relay_config
    from runtime.relay import run as run_relay

    if config is None:
        if pool is None:
            raise ConfigError("it is not known which pool to serve", "pass --pool URL, the address of its service")
        serve = {"host": host, "port": port, "public_url": public_url}
        config = relay_config(pool, home, serve, (keystore, password_file), rpc, allow_private_sources)
    run_relay(config)
