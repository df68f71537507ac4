"""Runs a command beside the trainer, for a bounded time and at a lower priority."""

import os
import subprocess
import threading
import time
from pathlib import Path

from engines.torch_process import torch_environment
from protocol.errors import MusterError, printable

_POLL_SECONDS = 0.2


def run_child(
    what: str, argv: list[str], scratch: Path, stopping: threading.Event, seconds: float, threads: int, nice: int = 0
) -> None:
    """Run a command until it ends; `what` names it in errors, `scratch` takes its log. Raises MusterError if it fails,
    takes more than `seconds`, or `stopping` is set."""
    environment = dict(os.environ) | torch_environment(threads)
    with (scratch / "log").open("w+", errors="replace") as output:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
        try:
            os.setpriority(os.PRIO_PROCESS, child.pid, nice)
            end = time.monotonic() + seconds
            while child.poll() is None:
                if stopping.wait(_POLL_SECONDS):
                    raise MusterError(f"{what} was stopped with the trainer")
                if time.monotonic() > end:
                    hint = "allow more `seconds`, or measure less"
                    raise MusterError(f"{what} took longer than {seconds:.0f} s", hint)
        finally:
            child.kill()
            code = child.wait()
        if code != 0:
            output.seek(0)
            last = printable("".join(output.read().strip().splitlines()[-1:]))
            raise MusterError(f"{what} ended with code {code}: {last}", "see its `engine`")
