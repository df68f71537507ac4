"""`muster demo`, `up`, `ps`, `logs`, `down`: the whole network on this machine, for one run or in the background."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from cli.options import JsonOption, YesOption
from cli.output import clock, emit, fields, seconds, table
from cli.plan import confirm
from protocol.errors import ConfigError, UnreachableError

if TYPE_CHECKING:
    from localnet.background import NetworkFolder, NetworkSettings, NetworkState, ProcessEntry

_FOLLOW_SECONDS = 0.3
_LOG_BYTES = 1 << 20
FolderOption = Annotated[Path | None, Option("--folder", help="The network's folder; the user's own if missing.")]


def _folder(path: Path | None) -> "NetworkFolder":
    from localnet.background import NetworkFolder

    return NetworkFolder.at(path)


def demo(
    seed: Annotated[int, Option(help="Fixes model, tasks and warm-up.", min=0)] = 7,
    steps: Annotated[int, Option(help="Policy steps to train.", min=1, max=10_000)] = 30,
    runs: Annotated[Path, Option(help="Folder of runs.")] = Path("runs"),
    keep: Annotated[bool, Option("--keep", help="Leave the network up afterwards, until Ctrl-C.")] = False,
    diloco: Annotated[int, Option(help="DiLoCo workers that train the policy together.", min=1, max=4)] = 1,
    chaos: Annotated[float, Option(help="kill -9 every process once, one every so many seconds; 0: never.")] = 0,
) -> None:
    """Run the whole network once: stakes, proofs, verdicts and pay, with a cheating node and hostile validators.

    Exit code 1 if the run shows what no run may."""
    from localnet.demo import Demo
    from localnet.plan import make_plan, pool_config

    plan = make_plan(runs.resolve(), seed, steps, diloco)
    good = Demo(plan, pool_config(seed, steps), keep, chaos).run()
    raise typer.Exit(0 if good else 1)


def up(
    folder: FolderOption = None,
    workers: Annotated[int | None, Option(min=1, max=16, help="Worker processes; 2 if missing.")] = None,
    validators: Annotated[
        int | None, Option(min=1, max=12, help="Processes that share 12 seats; 2 if missing.")
    ] = None,
    steps: Annotated[
        int | None, Option(min=1, max=1_000_000, help="End after so many policy steps; else never.")
    ] = None,
    seed: Annotated[int | None, Option(min=0, help="Fixes model and tasks; 7 if missing.")] = None,
    port: Annotated[int | None, Option(min=1024, max=65_532, help="First of four ports; free ones if missing.")] = None,
    json: JsonOption = False,
) -> None:
    """Bring up a local network in the background, which lasts until it is taken down.

    What dies is started again; after `muster down` it continues where it was. How many processes, steps and which ports
    is settled when it is made."""
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
    delete: Annotated[bool, Option("--delete", help="Delete the folder: chain, keys, files.")] = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Take the local network down, once the files under way are judged; it keeps everything."""
    from localnet import background

    where = _folder(folder)
    where.known_settings()
    if delete and not yes:
        confirm(f"Delete {where.root} with its chain, keys and files?")
    background.take_down(where, lambda line: typer.echo(f"· {line}", err=json))
    if delete:
        background.delete(where)
    shown = {"folder": str(where.root), "deleted": delete}
    emit(shown, json, lambda: f"{'deleted' if delete else 'down; `muster up` continues'}: {where.root}")


def ps(folder: FolderOption = None, json: JsonOption = False) -> None:
    """List the local network's processes: state, pid, since when, restarts, what each waits for.

    Exit code 1 unless the network is up and every process runs or has finished."""
    where = _folder(folder)
    processes = look(where, where.known_settings())
    emit(processes, json, lambda: process_table(processes), sound=all_well(processes))


def logs(
    role: Annotated[str | None, Argument(help="A process or a role, as `muster ps` names them.")] = None,
    folder: FolderOption = None,
    follow: Annotated[bool, Option("--follow", "-f", help="Go on with what is written, until Ctrl-C.")] = False,
    lines: Annotated[int, Option("--lines", "-n", min=0, max=100_000, help="Of each log.")] = 20,
) -> None:
    """Show the logs of the local network's processes, each line after its process's name."""
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
        follow_logs(chosen)


# What is shown


def look(folder: "NetworkFolder", settings: "NetworkSettings") -> dict[str, Any]:
    """Return the network as it stands; `service`: why the pool's service does not say what processes wait for."""
    from localnet.background import NetworkPhase, plan_of, service_status

    living, url = folder.state(), plan_of(folder, settings).http_url
    state = living.as_found() if living else None
    waits, service = dict[str, list[str]](), ""
    if state is not None and state.phase is NetworkPhase.UP:
        try:
            for wait in service_status(url)["waits"]:
                waits.setdefault(wait["who"], []).append(f"{wait['what']}, since {clock(wait['since'])}")
        except (UnreachableError, KeyError) as error:
            service = str(error)
    return {"folder": str(folder.root), "url": url, "service": service, **network_document(state, waits, time.time())}


def network_document(state: "NetworkState | None", waits: Mapping[str, list[str]], now: float) -> dict[str, Any]:
    """Return what is known of a network that was once started. `waits`: process → what it waits for."""
    if state is None:
        return {"phase": None, "doing": "", "problem": "", "since": None, "supervisor": None, "processes": []}
    processes = [
        process.model_dump(mode="json") | {"role": process.role, "waits": _waits_for(process, waits, now)}
        for process in state.processes
    ]
    known = state.model_dump(mode="json", include={"phase", "doing", "problem", "since"})
    return known | {"supervisor": state.pid, "processes": processes}


def _waits_for(process: "ProcessEntry", waits: Mapping[str, list[str]], now: float) -> str:
    from localnet.background import ProcessState
    from runtime.supervisor import exit_text

    if process.restart_at is not None and process.exit_code is not None:
        return f"its restart in {seconds(max(0.0, process.restart_at - now))}, after {exit_text(process.exit_code)}"
    if process.state is ProcessState.STOPPED:
        return f"you: it ended with exit {process.exit_code}; see `muster logs {process.name}`"
    return "; ".join(waits.get(process.name, ()))


def all_well(network: Mapping[str, Any]) -> bool:
    """Whether the network is up and no process is missing."""
    return network["phase"] == "up" and all(
        process["state"] in ("running", "finished") for process in network["processes"]
    )


def process_table(network: Mapping[str, Any]) -> str:
    """Return a network for people."""
    phase = network["phase"]
    if phase is None:
        return f"the network in {network['folder']} was never started; `muster up` starts it"
    doing = network["doing"] if phase in ("starting", "stopping") else ""
    head = f"{phase} since {clock(network['since'])} · {network['folder']}"
    text = "\n".join(filter(None, [head, network["problem"], doing, network["service"]]))
    if phase == "down":
        return text
    names = ["name", "role", "state", "pid", "since", "restarts", "waits"]
    shown = [
        process | {"since": clock(process["since"]), "pid": process["pid"] or "-"} for process in network["processes"]
    ]
    rows = [[row[name] for name in names] for row in shown]
    return f"{text}\n\n{table(['process', *names[1:-1], 'waits for'], rows)}"


def network_lines(folder: "NetworkFolder", settings: "NetworkSettings") -> str:
    """Where everything is, once it is up."""
    from localnet.background import plan_of

    plan = plan_of(folder, settings)
    return fields(
        {
            "dashboard": f"{plan.http_url}/",
            "chain": f"{plan.rpc_url} (chain id {plan.chain_id})",
            "storage": plan.s3_url,
            "metrics": f"{plan.http_url}/metrics, http://127.0.0.1:{plan.metrics_port}/metrics (trainer)",
            "deployment": plan.deployment,
            "bucket": folder.bucket_path,
            "joining": f"muster node up --pool {plan.http_url}",
            "folder": folder.root,
            "more": "muster ps · muster logs -f · muster down",
        }
    )


def last_lines(path: Path, count: int) -> list[str]:
    """Return the last `count` whole or partial lines of a log, of a megabyte at most. Raises OSError."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LOG_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    return lines[-count:] if count else []


def follow_logs(paths: Mapping[str, Path]) -> None:
    """Print every whole line that is added to a file, after the file's name, until interrupted."""
    files = {name: path.open("rb") for name, path in paths.items()}
    for file in files.values():
        file.seek(0, os.SEEK_END)
    while True:
        for name, file in files.items():
            while (line := file.readline()).endswith(b"\n"):
                typer.echo(f"{name} | {line.decode(errors='replace').rstrip()}")
            file.seek(-len(line), os.SEEK_CUR)
        time.sleep(_FOLLOW_SECONDS)
