"""The demo's base model, made in a process of its own while the chain comes up.

`python -m demo.base_model --config pool.json --seed 7` prints progress and, on the last line, the folder.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from engines.runtime import torch_environment
from protocol.config import PoolConfig
from protocol.errors import MusterError

SILENCE_SECONDS = 8.0


class BaseModelProcess:
    """Runs this module for the pool configuration at `config`, with its output in `log`."""

    def __init__(self, config: Path, seed: int, log: Path) -> None:
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        argv = [sys.executable, "-P", "-m", "demo.base_model", "--config", str(config), "--seed", str(seed)]
        env = dict(os.environ) | torch_environment() | {"PYTHONUNBUFFERED": "1"}
        with log.open("w") as out:
            self._process = subprocess.Popen(
                argv, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env
            )

    def wait(self, check: Callable[[], None], say: Callable[[str], None]) -> Path:
        """The model's folder. Calls `check` meanwhile and says how far it is at least every eight seconds. Raises
        MusterError with the process's last line when it failed."""
        said, since = "", time.monotonic()
        while self._process.poll() is None:
            check()
            last = self._last_line()
            if last != said or time.monotonic() - since > SILENCE_SECONDS:
                say(last or "loading PyTorch")
                said, since = last, time.monotonic()
            time.sleep(0.3)
        if self._process.returncode != 0:
            raise MusterError(f"no base model: {self._last_line()}", f"see {self._log}")
        return Path(self._last_line())

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _last_line(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


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
