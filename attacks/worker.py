"""`python -m attacks.worker --attack weights-noise=0.02 --config worker.json`: an ordinary worker that cheats."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from attacks.registry import find
from engines.base import Engine
from protocol.config import PoolConfig
from protocol.errors import MusterError
from runtime.process import start
from worker.config import WorkerConfig
from worker.produce import Producer

if TYPE_CHECKING:
    from worker.daemon import Worker


def _build(attack: str, config: WorkerConfig) -> "Worker":
    from worker.collaborators import WorkerCollaborators
    from worker.daemon import Worker

    cheat, strength = find(attack)

    def producer(pool: PoolConfig, engine: Engine) -> Producer:
        return cheat.build(pool, engine, strength)

    return Worker(config, WorkerCollaborators.connect(config, producer))


def main(argv: Sequence[str]) -> int:
    """Exit code of the worker: 3 once its node was ejected, 1 for a wrong argument or configuration."""
    parser = argparse.ArgumentParser(prog="attacks.worker", description=__doc__)
    parser.add_argument("--attack", required=True, help="name or name=strength")
    parser.add_argument("--config", required=True, type=Path)
    options = parser.parse_args(argv)
    try:
        start(options.config, WorkerConfig, partial(_build, options.attack))
    except MusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
