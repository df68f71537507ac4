"""`python -m attacks.worker --attack weights-noise=0.02 --config worker.json`: an ordinary worker that cheats."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from attacks.registry import find
from engines.base import Engine
from protocol.config import PoolConfig
from protocol.errors import MusterError
from runtime.process import load_process, serve
from worker.config import WorkerConfig
from worker.main import prepare
from worker.produce import Producer


def main(argv: Sequence[str]) -> int:
    """Exit code of the worker: 3 once its node was ejected, 1 for a wrong argument or configuration."""
    parser = argparse.ArgumentParser(prog="attacks.worker", description=__doc__)
    parser.add_argument("--attack", required=True, help="name or name=strength")
    parser.add_argument("--config", required=True, type=Path)
    options = parser.parse_args(argv)
    try:
        config = load_process(options.config, WorkerConfig)
        prepare(config)
        attack, strength = find(options.attack)
        from worker.daemon import Worker

        def cheat(pool: PoolConfig, engine: Engine) -> Producer:
            return attack.build(pool, engine, strength)

        worker = Worker(config, cheat)
        return serve(worker.run, worker.stop)
    except MusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
