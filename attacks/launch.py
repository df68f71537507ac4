"""Starts a worker or validator that cheats: with `--attack`, and with the role's own `--config`."""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from protocol.errors import MusterError
from runtime.process import Daemon, DaemonConfig, start

C = TypeVar("C", bound=DaemonConfig)


def launch(about: str | None, kind: type[C], build: Callable[[str, C], Daemon], **attack: Any) -> NoReturn:
    """Run what `build` makes of the attack and the configuration; exit code 1 for a wrong argument or configuration.
    `attack`: argparse's settings of `--attack`."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--attack", **attack)
    parser.add_argument("--config", required=True, type=Path)
    options = parser.parse_args()
    try:
        start(options.config, kind, partial(build, options.attack))
    except MusterError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
