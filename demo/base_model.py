"""The demo's base model, made in a process of its own while the chain comes up.

`python -m demo.base_model --config pool.json --seed 7` prints progress and, on the last line, the folder.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from demo.services.process import run_service
from demo.supervisor import Child
from engines.runtime import torch_environment
from protocol.config import PoolConfig
from protocol.errors import MusterError

SILENCE_SECONDS = 8.0


class BaseModelProcess:
    """Runs this module for the pool configuration at `config`, with its output in `log`."""

    def __init__(self, config: Path, seed: int, log: Path) -> None:
        argv = [sys.executable, "-P", "-m", "demo.base_model", "--config", str(config), "--seed", str(seed)]
        env = dict(os.environ) | torch_environment() | {"PYTHONUNBUFFERED": "1"}
        self._child = Child("base-model", argv, log, env)
        self._process = self._child.start()

    def wait(self, check: Callable[[], None], say: Callable[[str], None]) -> Path:
        """The model's folder. Calls `check` meanwhile and says how far it is at least every eight seconds. Raises
        MusterError with the process's last line when it failed."""
        said, since = "", time.monotonic()
        while self._process.poll() is None:
            check()
            last = self._child.tail(1)
            if last != said or time.monotonic() - since > SILENCE_SECONDS:
                say(last or "loading PyTorch")
                said, since = last, time.monotonic()
            time.sleep(0.3)
        if self._process.returncode != 0:
            raise MusterError(f"no base model: {self._child.tail(1)}", f"see {self._child.log_path}")
        return Path(self._child.tail(1))

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


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
    run_service(main)
