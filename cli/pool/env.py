"""`muster env`: environments, where a pool's problems come from: write, install, check, filter and screen them."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from cli.options import Commands, EngineOptions, JsonOption
from cli.output import emit, fields, values
from environments.base import Problem
from protocol.encoding import load_document
from protocol.errors import ConfigError
from protocol.files import file_sha256, write_file

app = Commands(help="Where a pool's problems come from.", no_args_is_help=True)
ParamOption = Annotated[
    list[str] | None, Option(metavar="NAME=VALUE", help="Environment's parameter; can be repeated.")
]


@app.command("install", "muster env install my-env==0.1.0 --arg size=500")
def install(
    package: Annotated[str, Argument(metavar="NAME==VERSION|WHEEL", help="Package of the verifiers library.")],
    load: Annotated[
        str,
        Option(metavar="MODULE[:CALLABLE]", help="What gives the environment; the package's name if missing."),
    ] = "",
    arg: ParamOption = None,
    evaluation: Annotated[bool, Option("--eval", help="Its evaluation rows instead of those to train on.")] = False,
    wheel: Annotated[list[Path] | None, Option(help="Wheel that no index has; travels with the pool.")] = None,
    build: Annotated[bool, Option("--build", help="Also build what has no wheel, by running its code here.")] = False,
    out: Annotated[Path | None, Option(help="Where to write the lock; NAME.lock if missing.")] = None,
    json: JsonOption = False,
) -> None:
    """Install a package of the `verifiers` library beside muster and lock it to the byte, for a pool."""
    from cli.pool.config import parameter
    from environments.registry import data_folder
    from environments.verifiers.environment import lock_package, pinned_name
    from environments.verifiers.install import wheel_requirement

    wheels, path = list(wheel or ()), Path(package).expanduser()
    if path.suffix == ".whl":
        package, wheels = wheel_requirement(path), [path, *wheels]
    file = out or Path(f"{pinned_name(package)}.lock")
    arguments = dict(map(parameter, arg or ()))
    lock = lock_package(data_folder(), package, load, arguments, "eval" if evaluation else "train", wheels, build)
    write_file(file, lock.document)
    lines = [f"verifiers {lock.library}, {len(lock.wheels)} packages, {lock.rows} rows; in a pool's configuration:", ""]
    lines += [*_block("verifiers", lock.content, lock.rows), "", f"next: muster env check {file}"]
    about = {"file": str(file), "content": lock.content, "rows": lock.rows, "library": lock.library}
    emit(about, json, lambda: "\n".join(lines))


@app.command("check", "muster env check words.py --keep")
def check(
    target: Annotated[
        str,
        Argument(metavar="NAME|FILE|CONFIG", help="reasoning_gym/NAME, a .py, .jsonl or .lock file, or a pool's."),
    ],
    problems: Annotated[int, Option(min=1, max=1 << 20, help="Problems to try of each environment.")] = 16,
    param: ParamOption = None,
    new: Annotated[bool, Option("--new", help="First write a small program to that .py file, to start from.")] = (
        False
    ),
    keep: Annotated[bool, Option("--keep", help="Put a sound file where pools of this machine look for it.")] = False,
    json: JsonOption = False,
) -> None:
    """Make and score problems in two different processes, and try hostile answers.

    The processes differ in hash seed, time zone, locale and threads. Exit code 1 if anything differs, wins, hangs or
    cannot be made."""
    from cli.pool.config import parameter
    from cli.pool.env_target import keep_file, targets
    from environments.checking import check_environment, sample_seeds

    path = Path(target).expanduser()
    if new:
        _write_program(path)
    with targets(target, dict(map(parameter, param or ()))) as chosen:
        config, data = chosen[0].config, chosen[0].data
        if keep and data is None:
            raise ConfigError("--keep is for a file", "name a .py, .jsonl or .lock file")
        checks = [
            check_environment(
                target.config, target.environment, target.data, sample_seeds(target.environment.rows, problems)
            )
            for target in chosen
        ]
        sound = not any(check.findings for check in checks)
        copied_to = keep_file(path, config.content) if keep and sound else None
        documents = [
            vars(check) | {"content": each.environment.declared.content}
            for each, check in zip(chosen, checks, strict=True)
        ]
    shown = [{name: value for name, value in vars(check).items() if name != "findings"} for check in checks]
    lines = [values({"environments": shown})]
    lines += [f"PROBLEM  {check.name}: {line}" for check in checks for line in check.findings]
    if sound and data is not None:
        lines += ["sound; in a pool's configuration:", "", *_block(config.name, config.content, config.rows), ""]
        lines.append(f"kept as {copied_to}" if copied_to else "keep the file under that name by --keep")
    emit({"sound": sound, "environments": documents, "kept": copied_to}, json, lambda: "\n".join(lines), sound)


def _write_program(file: Path) -> None:
    from environments import program

    if file.suffix != ".py":
        raise ConfigError(f"{file} does not end in .py", "choose another name")
    if file.exists():
        raise ConfigError(f"{file} exists", "choose another name, or leave --new out")
    write_file(file, program.template().encode())


def _block(name: str, content: str, rows: int) -> list[str]:
    lines = ["[[environments]]", f'name = "{name}"', f'content = "{content}"']
    return lines + [f"rows = {rows}"] * bool(rows)


@app.command("filter", "muster env filter --pool-config pool.json --weights model --out filtered.json")
def filter_problems(
    pool_config: Annotated[Path, Option(help="Pool configuration: model, environments, work.")],
    weights: Annotated[Path, Option(help="Folder of the model that tries the problems.")],
    out: Annotated[Path, Option(help="New pool configuration to write, with the kept problems.")],
    engine: EngineOptions,
    candidates: Annotated[int, Option(min=1, max=1 << 22, help="Problems to try.")] = 4096,
    samples: Annotated[int, Option(min=1, max=1024, help="Tries at each.")] = 8,
    lowest: Annotated[float, Option(min=0, max=1, help="Least share of solved tries.")] = 0.125,
    highest: Annotated[float, Option(min=0, max=1, help="Greatest share of solved tries.")] = 0.75,
    environment: Annotated[str | None, Option(help="Whose problems are tried, where there are several.")] = None,
    json: JsonOption = False,
) -> None:
    """Keep the problems that a model solves sometimes, for those it never or always solves teach nothing.

    Run it again after an interruption and it continues."""
    from protocol.config import PoolConfig
    from trainer.data.problem_filter import FilterPlan, run_filter

    config = load_document(pool_config, PoolConfig)
    if lowest > highest:
        raise ConfigError("--lowest is above --highest", "swap them")
    if not weights.is_dir():
        raise ConfigError(f"{weights} is not a folder", "name the folder of a model")
    names = [listed.called for listed in config.environments]
    if (environment is None and len(names) > 1) or environment not in (None, *names):
        what = f"the pool has no environment {environment}" if environment else "the pool has several environments"
        raise ConfigError(what, f"name one by --environment: {', '.join(names)}")
    engine.set_threads()
    index = names.index(environment) if environment else 0
    chosen = config.environments[index].model_copy(update={"problems": None})
    alone, journal = config.model_copy(update={"environments": (chosen,)}), out.with_suffix(".tries.jsonl")
    plan = FilterPlan(candidates, samples, lowest, highest)
    generator = engine.config().make()
    report = run_filter(generator, alone, weights, plan, journal, engine.batch, lambda line: typer.echo(line, err=True))
    environments = list(config.environments)
    environments[index] = chosen.model_copy(update={"problems": report.problems})
    document = config.model_copy(update={"environments": tuple(environments)})
    write_file(out, document.model_dump_json(indent=2).encode() + b"\n")
    summary = {
        "candidates": report.problems.candidates,
        "kept": report.kept,
        "too_hard": report.too_hard,
        "too_easy": report.too_easy,
        "share": round(report.kept / report.problems.candidates, 4),
        "report": report.problems.report,
        "out": str(out),
    }
    emit(summary, json)


@app.command("screen", "muster env screen tasks.parquet --pool-config pool.json --weights model --out rows.jsonl")
def screen(
    file: Annotated[Path, Argument(help="JSON lines, a JSON array or Parquet, in GENESYS's schema.", exists=True)],
    out: Annotated[Path, Option(help="File to write, of JSON lines: the rows that a pool can use.")],
    pool_config: Annotated[Path | None, Option(help="Pool whose prompts a row's must fit; needs --weights.")] = None,
    weights: Annotated[Path | None, Option(help="Folder of the pool's model: its tokenizer counts.")] = None,
    proven: Annotated[bool, Option("--proven", help="Drop rows without a reference answer too.")] = False,
    keep: Annotated[bool, Option("--keep", help="Put the file where pools of this machine look for it.")] = False,
    json: JsonOption = False,
) -> None:
    """Keep the rows of a data file that can be asked and verified.

    A row is kept if it has the schema, is no duplicate, is not too long, its reference answer is worth 1 and its
    question alone is not. What is dropped, and why, is written beside it."""
    from cli.pool.env_target import keep_file
    from environments.checking import REASONS, Screen, screen_file

    if (pool_config is None) != (weights is None):
        raise ConfigError("--pool-config and --weights go together", "give both, or neither")
    refused = out.with_name(out.name + ".refused.jsonl")
    fits = _prompt_limit(pool_config, weights) if pool_config and weights else lambda problem: True
    by_type, dropped = screen_file(file, out, refused, Screen(fits, proven), lambda line: typer.echo(line, err=True))
    if not by_type:
        raise ConfigError(f"{file} has no row that a pool can use", f"{refused} says why")
    content = file_sha256(out)
    kept, total = by_type.total(), by_type.total() + dropped.total()
    summary = {
        "rows": total,
        "kept": kept,
        "task_types": dict(by_type),
        "dropped": {name: dropped[name] for name in REASONS},
        "content": content,
        "out": str(out),
        "refused": str(refused),
        "kept_as": keep_file(out, content) if keep else None,
    }
    shown = {"kept": f"{kept} of {total} rows"}
    shown |= {f"dropped: {name}": f"{count}, {REASONS[name]}" for name, count in dropped.items()}
    emit(summary, json, lambda: fields({**shown, "why": refused, "file": out, "sha256": content}))


def _prompt_limit(pool_config: Path, weights: Path) -> "Callable[[Problem], bool]":
    """Return whether a problem's prompt fits a pool's limit, with the longest of its targets."""
    from environments.prompts import prompt_tokens
    from protocol.config import PoolConfig
    from protocol.models import load_tokenizer
    from protocol.seeds import all_targets

    config, tokenizer = load_document(pool_config, PoolConfig), load_tokenizer(weights)
    longest = max((max(all_targets(config.work, listed), default=0) for listed in config.environments), default=0)
    most = config.work.max_prompt_tokens
    return lambda problem: len(prompt_tokens(tokenizer, config.model, problem, longest)) <= most
