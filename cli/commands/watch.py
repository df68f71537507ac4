"""`muster watch`: alarms for Prometheus and webhooks."""

from pathlib import Path
from typing import Annotated

import typer


def watch(
    config: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="JSON or TOML configuration file.")],
) -> None:
    """Watch one participant from outside of its process: disk, clock, chain, service, storage, gas, stake, seats, keys.

    Serves gauges to Prometheus and posts signed events to webhooks (docs/operations.md)."""
    from runtime.watch import run

    run(config)
