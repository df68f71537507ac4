"""`muster worker|validator|trainer|orchestrator run`: one role in the foreground, from a configuration file."""

from pathlib import Path
from typing import Annotated

import typer

ConfigOption = Annotated[Path, typer.Option("--config", exists=True, dir_okay=False, help="JSON configuration file.")]


def worker_run(config: ConfigOption) -> None:
    """Generate rollouts for a pool and earn from them."""
    from worker.main import run

    run(config)


def validator_run(config: ConfigOption) -> None:
    """Check submissions for the seats in the configuration and earn fees."""
    from validator.main import run

    run(config)


def trainer_run(config: ConfigOption) -> None:
    """Train a pool's model on accepted rollouts and publish every policy step."""
    from trainer.main import run

    run(config)


def orchestrator_run(config: ConfigOption) -> None:
    """Serve a pool: work slots, upload tickets, the dashboard."""
    from orchestrator.main import run

    run(config)


def register(app: typer.Typer, validator: typer.Typer) -> None:
    """Put `run` under each role's noun."""
    validator.command("run")(validator_run)
    for name, function in {"worker": worker_run, "trainer": trainer_run, "orchestrator": orchestrator_run}.items():
        noun = typer.Typer(help=f"The {name} process.", no_args_is_help=True)
        noun.callback()(lambda: None)
        noun.command("run")(function)
        app.add_typer(noun, name=name)
