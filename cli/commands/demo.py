"""`muster demo`: the whole network on this machine."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    seed: Annotated[int, typer.Option(help="Fixes model, tasks and warm-up.", min=0)] = 7,
    steps: Annotated[int, typer.Option(help="Policy steps to train.", min=1, max=10_000)] = 30,
    runs: Annotated[Path, typer.Option(help="Folder of runs.")] = Path("runs"),
    keep: Annotated[bool, typer.Option("--keep", help="Leave the network up afterwards, until Ctrl-C.")] = False,
    chain_port: Annotated[int, typer.Option(help="0: any free port.")] = 0,
    s3_port: Annotated[int, typer.Option(help="0: any free port.")] = 0,
    http_port: Annotated[int, typer.Option(help="0: any free port.")] = 0,
    diloco: Annotated[int, typer.Option(help="DiLoCo workers that train the policy together.", min=1, max=4)] = 1,
    chaos: Annotated[float, typer.Option(help="kill -9 every process once, one every so many seconds; 0: never.")] = 0,
) -> None:
    """A real run with stakes, proofs, verdicts and pay: chain, S3, twelve seats, workers (one cheats), a trainer."""
    from localnet.demo import Demo
    from localnet.plan import Options, make_plan, pool_config

    plan = make_plan(Options(seed, steps, runs.resolve(), chain_port, s3_port, http_port, diloco))
    outcome = Demo(plan, pool_config(seed, steps), keep, chaos).run()
    raise typer.Exit(0 if outcome.good else 1)
