"""`python -m demo.base_model --config pool.json --seed 7`: makes the base model, or finds it in the cache.

Prints progress and, on the last line, the folder.
"""

import argparse
import sys
from pathlib import Path

from protocol.config import PoolConfig
from protocol.errors import MusterError


def main() -> int:
    from trainer.basemodel import base_model

    parser = argparse.ArgumentParser(prog="python -m demo.base_model")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    config = PoolConfig.load(options.config)
    folder = base_model(config.model, config.task, options.seed, progress=lambda line: print(line, flush=True))
    print(folder, flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except MusterError as error:
        print(f"muster: {error}", file=sys.stderr)
        sys.exit(2)
