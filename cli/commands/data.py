"""`muster data`: choosing the problems that a pool's work is drawn from."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import Commands, EngineOptions, JsonOption
from cli.output import emit, fields
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from trainer.data.offline_filter import FilterReport

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
    json: JsonOption = False,
) -> None:
    """Keep the problems that a model solves sometimes: those it never or nearly always solves teach nothing. Run it
    again after an interruption and it goes on."""
    from protocol.config import PoolConfig
    from protocol.documents import load_document
    from protocol.files import explained, write_atomic
    from trainer.data.offline_filter import FilterPlan, run_filter

    config = load_document(pool_config, PoolConfig)
    if lowest > highest:
        raise ConfigError("--lowest is above --highest", "swap them")
    if not weights.is_dir():
        raise ConfigError(f"{weights} is not a folder", "name the folder of a model")
    engine.set_threads()
    plan = FilterPlan(candidates, samples, lowest, highest)
    journal = journal or out.with_suffix(".tries.jsonl")
    made, say = engine.config().make(), lambda line: typer.echo(line, err=True)
    report = run_filter(made, config, weights, plan, journal, engine.batch, say)
    task = config.task.model_copy(update={"problems": report.problems})
    with explained(f"write {out}", "check the folder"):
        write_atomic(out, config.model_copy(update={"task": task}).model_dump_json(indent=2).encode() + b"\n")
    _emit(report, out, json)


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
