"""`muster data`: choosing the problems that a pool's work is drawn from."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import Commands, EngineOptions, JsonOption
from cli.output import emit, fields
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from environments.base import Problem
    from environments.checking import ScreenReport
    from protocol.config import PoolConfig
    from trainer.problem_filter import FilterReport

app = Commands(help="The problems of a pool.", no_args_is_help=True)
app.callback()(lambda: None)


@app.command("filter")
def filter_problems(
    pool_config: Annotated[Path, typer.Option(help="Pool configuration: model, task, work.")],
    weights: Annotated[Path, typer.Option(help="Folder of the model that tries the problems.")],
    out: Annotated[Path, typer.Option(help="New pool configuration to write, with the kept problems.")],
    engine: EngineOptions,
    candidates: Annotated[int, typer.Option(min=1, max=1 << 22, help="Problems to try.")] = 4096,
    samples: Annotated[int, typer.Option(min=1, max=1024, help="Tries at each.")] = 8,
    lowest: Annotated[float, typer.Option(min=0, max=1, help="Least share of solved tries.")] = 0.125,
    highest: Annotated[float, typer.Option(min=0, max=1, help="Greatest share of solved tries.")] = 0.75,
    journal: Annotated[
        Path | None, typer.Option(help="Where finished tries are kept, to go on after an interruption.")
    ] = None,
    environment: Annotated[
        str | None, typer.Option(help="Environment whose problems are tried, where the pool has several.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Keep the problems that a model solves sometimes: those it never or nearly always solves teach nothing. Run it
    again after an interruption and it goes on."""
    from protocol.config import PoolConfig
    from protocol.encoding import load_document
    from protocol.files import explained, write_atomic
    from trainer.problem_filter import FilterPlan, run_filter

    config = load_document(pool_config, PoolConfig)
    if lowest > highest:
        raise ConfigError("--lowest is above --highest", "swap them")
    if not weights.is_dir():
        raise ConfigError(f"{weights} is not a folder", "name the folder of a model")
    engine.set_threads()
    plan = FilterPlan(candidates, samples, lowest, highest)
    journal = journal or out.with_suffix(".tries.jsonl")
    made, say = engine.config().make(), lambda line: typer.echo(line, err=True)
    place = _place(config, environment)
    chosen = config.environments[place].model_copy(update={"problems": None})
    alone = config.model_copy(update={"environments": (chosen,)})
    report = run_filter(made, alone, weights, plan, journal, engine.batch, say)
    filtered = chosen.model_copy(update={"problems": report.problems})
    environments = (*config.environments[:place], filtered, *config.environments[place + 1 :])
    document = config.model_copy(update={"environments": environments})
    with explained(f"write {out}", "check the folder"):
        write_atomic(out, document.model_dump_json(indent=2).encode() + b"\n")
    _emit(report, out, json)


@app.command("screen")
def screen(
    file: Annotated[Path, typer.Argument(help="JSON lines or Parquet in GENESYS's schema.", exists=True)],
    out: Annotated[Path, typer.Option(help="File to write, of JSON lines: the rows that a pool can use.")],
    pool_config: Annotated[
        Path | None, typer.Option(help="Pool whose prompts a row's must fit; needs --weights.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Folder of the pool's model: its tokenizer counts.")] = None,
    proven: Annotated[bool, typer.Option("--proven", help="Drop rows without a reference answer too.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Put the file where pools of this machine look for it.")] = False,
    json: JsonOption = False,
) -> None:
    """Keep the rows of a data file that can be asked and verified: of the schema, none twice, none too long, whose
    reference answer is worth 1 and whose question alone is not. What is dropped, and why, is written beside it."""
    from cli.task_target import keep_file
    from environments.checking import Screen, screen_file
    from protocol.files import file_sha256

    if (pool_config is None) != (weights is None):
        raise ConfigError("--pool-config and --weights go together", "give both, or neither")
    is_short = _shortness(pool_config, weights) if pool_config and weights else lambda problem: True
    refused = out.with_name(out.name + ".refused.jsonl")
    report = screen_file(file, out, refused, Screen(is_short, proven), lambda line: typer.echo(line, err=True))
    if not report.kept:
        raise ConfigError(f"{file} has no row that a pool can use", f"{refused} says why")
    content = file_sha256(out)
    place = keep_file(out, content) if keep else None
    _emit_screen(report, {"content": content, "out": out, "refused": refused, "kept_as": place}, json)


def _emit_screen(report: "ScreenReport", about: dict[str, "str | Path | None"], json: bool) -> None:
    from environments.checking import REASONS

    kept, total = report.kept.total(), report.kept.total() + report.dropped.total()
    summary = {"rows": total, "kept": kept, "task_types": dict(report.kept)}
    summary |= {"dropped": {name: report.dropped[name] for name in REASONS}}
    summary |= {name: value and str(value) for name, value in about.items()}
    shown = {"kept": f"{kept} of {total} rows"}
    shown |= {f"dropped: {name}": f"{count}, {REASONS[name]}" for name, count in report.dropped.items()}
    emit(
        summary,
        json,
        lambda: fields(shown | {"why": about["refused"], "file": about["out"], "sha256": about["content"]}),
    )


def _shortness(pool_config: Path, weights: Path) -> "Callable[[Problem], bool]":
    """Whether a problem's prompt fits, with the longest of the targets."""
    from environments.prompts import prompt_tokens
    from protocol.config import PoolConfig
    from protocol.encoding import load_document
    from protocol.length_tiers import all_targets
    from protocol.models import load_tokenizer

    config, tokenizer = load_document(pool_config, PoolConfig), load_tokenizer(weights)
    longest = max((max(all_targets(config.work, one), default=0) for one in config.environments), default=0)
    return lambda problem: (
        len(prompt_tokens(tokenizer, config.model, problem, longest)) <= config.work.max_prompt_tokens
    )


def _place(config: "PoolConfig", wanted: str | None) -> int:
    """Of the environment to filter in the pool's list. Raises ConfigError unless it is clear which one is meant."""
    names = [one.called for one in config.environments]
    if wanted is None and len(names) == 1:
        return 0
    if wanted not in names:
        raise ConfigError(
            f"the pool has no environment {wanted}" if wanted else "the pool has several environments",
            f"name one by --environment: {', '.join(names)}",
        )
    return names.index(wanted)


def _emit(report: "FilterReport", out: Path, json: bool) -> None:
    total = report.problems.candidates
    summary = {
        "candidates": total,
        "kept": report.kept,
        "too_hard": report.too_hard,
        "too_easy": report.too_easy,
        "share": round(report.share, 4),
        "report": report.problems.report,
        "out": str(out),
    }
    shown = {
        "kept": f"{report.kept} of {total} problems ({report.share:.1%})",
        "too hard": f"{report.too_hard} ({report.too_hard / total:.1%})",
        "too easy": f"{report.too_easy} ({report.too_easy / total:.1%})",
        "pool configuration": out,
    }
    emit(summary, json, lambda: fields(shown))
