"""`muster task`: an environment of your own, and whether an environment is fit for a pool."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.commands.pool_init import parameter
from cli.options import Commands, JsonOption
from cli.output import emit, table
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from cli.task_target import CheckTarget
    from environments.checking import EnvironmentCheck

app = Commands(help="Where a pool's problems come from.", no_args_is_help=True)


@app.command("new")
def new(
    file: Annotated[Path, typer.Argument(help="Python file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Write the file anew.")] = False,
    json: JsonOption = False,
) -> None:
    """Write an environment of your own to start from: a small program that makes problems and scores answers."""
    from environments import program
    from protocol.files import explained, write_atomic

    if file.suffix != ".py":
        raise ConfigError(f"{file} does not end in .py", "choose another name")
    if file.exists() and not force:
        raise ConfigError(f"{file} exists", "choose another name, or pass --force")
    with explained(f"write {file}", "check the folder"):
        write_atomic(file, program.read().encode())
    emit({"file": str(file)}, json, lambda: f"{file}\nnext: muster task check {file}")


@app.command("install")
def install(
    package: Annotated[str, typer.Argument(metavar="NAME==VERSION|WHEEL", help="Package of the verifiers library.")],
    load: Annotated[
        str,
        typer.Option(metavar="MODULE[:CALLABLE]", help="What gives the environment; the package's name if missing."),
    ] = "",
    arg: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Argument of the environment; can be repeated.")
    ] = None,
    evaluation: Annotated[
        bool, typer.Option("--eval", help="Its evaluation rows instead of those to train on.")
    ] = False,
    wheel: Annotated[
        list[Path] | None, typer.Option(help="Wheel that no index has; travels with the pool. Can be repeated.")
    ] = None,
    build: Annotated[
        bool, typer.Option("--build", help="Also what has no wheel: building one runs its code on this machine.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Where to write the lock; NAME.lock if missing.")] = None,
    json: JsonOption = False,
) -> None:
    """Install a package of the `verifiers` library beside muster and lock it to the byte, for a pool."""
    from environments.registry import data_folder
    from environments.verifiers.environment import AskedPackage, lock_package, pinned_name
    from environments.verifiers.install import wheel_requirement
    from protocol.files import explained, write_atomic

    wheels, path = list(wheel or ()), Path(package).expanduser()
    if path.suffix == ".whl":
        package, wheels = wheel_requirement(path), [path, *wheels]
    file = out or Path(f"{pinned_name(package)}.lock")
    arguments = dict(map(parameter, arg or ()))
    asked = AskedPackage(package, load, arguments, "eval" if evaluation else "train", wheels, build)
    lock = lock_package(asked, data_folder())
    with explained(f"write {file}", "check the folder"):
        write_atomic(file, lock.document)
    lines = [f"verifiers {lock.library}, {len(lock.wheels)} packages, {lock.rows} rows; in a pool's configuration:", ""]
    lines += [*_block("verifiers", lock.content, lock.rows), "", f"next: muster task check {file}"]
    about = {"file": str(file), "content": lock.content, "rows": lock.rows, "library": lock.library}
    emit(about, json, lambda: "\n".join(lines))


@app.command("check")
def check(
    target: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE|CONFIG", help="reasoning_gym/NAME, a .py, .jsonl, .parquet or .lock file, or a pool's."
        ),
    ],
    problems: Annotated[int, typer.Option(min=1, max=1 << 20, help="Problems to try of each environment.")] = 16,
    param: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Parameter of the environment; can be repeated.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Put a sound file where pools of this machine look for it.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Make and score problems in two processes that differ in hash seed, time zone, locale and threads, and try hostile
    answers. Exit code 1 if anything differs, wins, hangs or cannot be made."""
    from cli.task_target import keep_file, targets
    from environments.checking import check_environment, sample_seeds

    path = Path(target).expanduser()
    with targets(target, dict(map(parameter, param or ()))) as found:
        if keep and found[0].data is None:
            raise ConfigError("--keep is for a file", "name a .py, .jsonl, .parquet or .lock file")
        made = [
            check_environment(one.config, one.environment, one.data, sample_seeds(one.environment.rows, problems))
            for one in found
        ]
        sound = not any(one.findings for one in made)
        kept = keep_file(path, found[0].config.content) if keep and sound else None
        documents = [
            vars(one) | {"content": each.environment.declared.content} for each, one in zip(found, made, strict=True)
        ]
        lines = [_table(made), *(f"PROBLEM  {one.name}: {line}" for one in made for line in one.findings)]
        if sound and found[0].data is not None:
            lines.append(_pasted(found[0], kept))
    emit({"sound": sound, "environments": documents, "kept": kept}, json, lambda: "\n".join(lines))
    if not sound:
        raise typer.Exit(1)


def _table(made: "list[EnvironmentCheck]") -> str:
    head = ("environment", "problems", "same", "reference", "hostile", "problem ms", "score ms", "slowest ms")
    rows = [
        (
            one.name,
            one.problems,
            one.problems - one.disagreements,
            f"{one.solved} of {one.references}",
            f"{one.won} of {one.hostile} won",
            f"{one.problem_ms:.1f}",
            f"{one.score_ms:.1f}",
            f"{one.slowest_ms:.0f}",
        )
        for one in made
    ]
    return table(head, rows)


def _pasted(target: "CheckTarget", kept: Path | None) -> str:
    """What a pool's configuration says of the file."""
    lines = _block(target.config.name, target.config.content, target.config.rows)
    after = f"kept as {kept}" if kept else "keep the file under that name by --keep"
    return "\n".join(["sound; in a pool's configuration:", "", *lines, "", after])


def _block(name: str, content: str, rows: int) -> list[str]:
    lines = ["[[environments]]", f'name = "{name}"', f'content = "{content}"']
    return lines + [f"rows = {rows}"] * bool(rows)
