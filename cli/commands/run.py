"""`muster worker|validator|trainer|orchestrator run` and `muster trainer sft`: a process in the foreground, from a
configuration file or the profile."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

_ROLES = {
    "worker": "Generate rollouts for a pool and earn from them.",
    "validator": "Check submissions for the seats in the configuration and earn fees.",
    "trainer": "Train a pool's model on accepted rollouts and publish every policy step.",
    "orchestrator": "Serve a pool: leases, upload tickets, the dashboard.",
}

_SFT = "Fine-tune a model on conversations: what a pool can start from."


def register(app: typer.Typer, nouns: Mapping[str, typer.Typer]) -> None:
    """Put `run` under each role's noun, of which `nouns` exist already."""
    for role, help in _ROLES.items():
        noun = nouns.get(role)
        if noun is None:
            noun = typer.Typer(help=f"The {role} process.", no_args_is_help=True)
            noun.callback()(lambda: None)
            app.add_typer(noun, name=role)
        noun.command("run", help=help)(_run(role))
        if role == "trainer":
            noun.command("sft", help=_SFT)(sft)


def _run(role: str) -> Callable[..., None]:
    def run(
        config: Annotated[
            Path | None, typer.Option(exists=True, dir_okay=False, help="Configuration; from the profile if missing.")
        ] = None,
    ) -> None:
        from cli.up.process_config import profile_config

        import_module(f"{role}.main").run(config or profile_config(role))

    return run


def sft(config: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="Configuration file.")]) -> None:
    import_module("trainer.main").run_sft(config)
