"""The demo's base model, made in a process of its own while the chain comes up.

`python -m localnet.base_model --config pool.json --seed 7` prints progress and, on the last line, the folder.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from engines.torch_process import torch_environment
from protocol.config import PoolConfig
from runtime.entry import run_main
from runtime.supervisor import Child

SILENCE_SECONDS = 8.0


def base_model_process(config: Path, seed: int, log: Path) -> Child:
    """This module for the pool configuration at `config`, with its output in `log`. It is not tried twice."""
    argv = [sys.executable, "-P", "-m", "localnet.base_model", "--config", str(config), "--seed", str(seed)]
    env = dict(os.environ) | torch_environment() | {"PYTHONUNBUFFERED": "1"}
    return Child("base-model", argv, log, env, max_restarts=0)


def wait_for_folder(process: Child, check: Callable[[], None], say: Callable[[str], None]) -> Path:
    """The model's folder. Calls its supervisor's `check` meanwhile, which raises MusterError if it failed, and says how
    far it is at least every eight seconds."""
    shown, since = "", time.monotonic()
    while not process.finished:
        check()
        last = process.tail(1)
        if last != shown or time.monotonic() - since > SILENCE_SECONDS:
            say(last or "loading PyTorch")
            shown, since = last, time.monotonic()
        time.sleep(0.3)
    return Path(process.tail(1))


def main() -> int:
    from trainer.model.base_model import base_model

    parser = argparse.ArgumentParser(prog="python -m localnet.base_model")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    config = PoolConfig.load(options.config)
    folder = base_model(
        config.model, config.environments[0], options.seed, progress=lambda line: print(line, flush=True)
    )
    print(folder, flush=True)
    return 0


if __name__ == "__main__":
    run_main(main)
