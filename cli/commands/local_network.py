"""`muster up`, `down`, `ps`, `logs`: a local network that lasts."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import JsonOption, YesOption
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from localnet.background import NetworkFolder

FolderOption = Annotated[
    Path | None, typer.Option("--folder", help="The network's folder. [default: the user's own network]")
]
_SHOWN = 20


def _folder(path: Path | None) -> "NetworkFolder":
    from localnet.background import NetworkFolder

    return NetworkFolder.at(path)


def up(
    folder: FolderOption = None,
    workers: Annotated[int | None, typer.Option(min=1, max=16, help="Worker processes. [default: 2]")] = None,
    validators: Annotated[
        int | None, typer.Option(min=1, max=12, help="Validator processes, which share 12 seats. [default: 2]")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, max=10_000, help="Policy steps. [default: 500]")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Fixes model and tasks. [default: 7]")] = None,
    port: Annotated[
        int | None, typer.Option(min=1024, max=65_532, help="The first of four ports. [default: free ones]")
    ] = None,
    json: JsonOption = False,
) -> None:
    """A lasting local network in the background: chain, storage, service, pool, trainer, workers, validators.

    What dies is started again; after `muster down` it goes on where it was. How many processes, steps and which ports
    is settled when it is made."""
    from cli.output import emit
    from cli.views.local_network import network_lines
    from localnet import background

    where = _folder(folder)
    wanted = {"workers": workers, "validators": validators, "steps": steps, "seed": seed, "port": port}
    settings = background.settle_settings(where, wanted)
    try:
        background.bring_up(where, lambda line: typer.echo(f"· {line}", err=json))
    except KeyboardInterrupt:
        typer.echo("it goes on in the background; `muster ps` shows it, `muster down` stops it", err=True)
        raise
    emit({"folder": str(where.root), **settings.model_dump(mode="json")}, json, lambda: network_lines(where, settings))


def down(
    folder: FolderOption = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the folder: chain, keys, files.")] = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Take the local network down, once the files under way are judged. It keeps everything."""
    from cli.output import emit
    from cli.plan import confirm
    from localnet import background

    where = _folder(folder)
    where.known_settings()
    if delete and not yes:
        confirm(f"Delete {where.root} with its chain, keys and files?")
    background.take_down(where, lambda line: typer.echo(f"· {line}", err=json))
    if delete:
        background.delete(where)
    shown = {"folder": str(where.root), "deleted": delete}
    emit(shown, json, lambda: f"{'deleted' if delete else 'down; `muster up` goes on'}: {where.root}")


def ps(folder: FolderOption = None, json: JsonOption = False) -> None:
    """The local network's processes: state, pid, since when, restarts, what each waits for.

    Exit code 0 if the network is up and every process runs or has finished, 1 if not."""
    from cli.output import emit
    from cli.views.local_network import all_well, look, process_table

    where = _folder(folder)
    settings = where.known_settings()
    found = look(where, settings)
    emit(found.document(), json, lambda: process_table(found))
    raise typer.Exit(0 if all_well(found) else 1)


def logs(
    role: Annotated[str | None, typer.Argument(help="A process or a role, as `muster ps` names them.")] = None,
    folder: FolderOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written, until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, max=100_000, help="Of each log.")] = _SHOWN,
) -> None:
    """The logs of the local network's processes, each line after its process's name."""
    from cli.follow import follow_logs, last_lines

    where = _folder(folder)
    where.known_settings()
    paths = {path.stem: path for path in sorted((where.root / "logs").glob("*.log"))}
    chosen = {name: path for name, path in paths.items() if role in (None, name, name.partition("-")[0])}
    if not chosen:
        known = ", ".join(paths) or "none yet"
        raise ConfigError(f"no process or role is called {role}" if role else "there is no log", f"there are: {known}")
    for name, path in chosen.items():
        for line in last_lines(path, lines):
            typer.echo(f"{name} | {line}")
    if follow:
        follow_logs(chosen, typer.echo)
