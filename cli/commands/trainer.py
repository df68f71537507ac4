"""`muster trainer`: what a pool's owner can ask of a machine before and beside `muster trainer run`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import Commands, JsonOption
from cli.output import emit, fields

if TYPE_CHECKING:
    from trainer.bench import BenchReport

app = Commands(help="The trainer process.", no_args_is_help=True)
app.callback()(lambda: None)


@app.command("bench")
def bench(
    config: Annotated[
        Path,
        typer.Option(
            exists=True, dir_okay=False, help="The trainer's configuration; engine, parallel, memory are used."
        ),
    ],
    pool_config: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="Pool configuration: model, work.")],
    weights: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Folder of the model instead of its source.")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, max=4096, help="Packed rows of each rank in a step.")] = 4,
    steps: Annotated[int, typer.Option(min=1, max=1000, help="Measured steps, after one that is not.")] = 3,
    json: JsonOption = False,
) -> None:
    """Train on made-up rollouts: tokens per second, utilisation, peak memory, and what fits. Needs no chain, no bucket
    and no key."""
    from trainer.main import run_bench

    report = run_bench(config, pool_config, weights, rows, steps, lambda line: typer.echo(line, err=True))
    if report is not None:
        emit(vars(report), json, lambda: _lines(report))


def _lines(report: "BenchReport") -> str:
    gib = 1 << 30
    peak = f"{report.peak_flops / 1e9:,.0f} GFLOP/s" + (", measured" if report.peak_measured else "")
    fit = f"{report.row_tokens_fit}" if report.row_tokens_fit else "unknown"
    return fields(
        {
            "device": f"{report.ranks} × {report.device}, {report.dtype}",
            "model": f"{report.parameters / 1e6:.1f} million parameters",
            "step": f"{report.rollouts} rollouts, {report.tokens} tokens, {report.seconds:.2f} s",
            "tokens per second": f"{report.tokens_per_second:.0f}",
            "utilisation (MFU)": f"{report.mfu:.1%} of {peak}",
            "ranks wait": f"{report.idle_share:.1%}",
            "peak memory": f"{report.peak_bytes / gib:.2f} GiB with memory.row_tokens {report.row_tokens}",
            "a token in a row": f"{report.bytes_per_token / 1024:.1f} KiB",
            "row_tokens that fit": fit,
        }
    )
