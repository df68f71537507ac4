"""`muster data`: choosing the problems that a pool's work is drawn from."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import Commands, EngineOptions, JsonOption
from cli.output import emit, fields
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from protocol.config import PoolConfig
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
    environment: Annotated[
        str | None, typer.Option(help="Environment whose problems are tried, where the pool has several.")
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
