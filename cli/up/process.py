"""A worker or validator under `up`: started, restarted when it dies, reported."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import typer

from cli.profile import Profile
from engines.runtime import torch_environment
from runtime.entry import Exit
from runtime.supervisor import Child, Supervisor

_POLL_SECONDS = 1.0


class UpProcess:
    """A process and its restarts. `run` returns its exit code, 0 when stopped by a signal."""

    def __init__(self, role: str, profile: Profile, config: Path) -> None:
        argv = [sys.executable, "-P", "-m", f"{role}.main", "--config", str(config)]
        env = dict(os.environ) | {"PYTHONUNBUFFERED": "1"} | torch_environment(profile.engine.threads)
        self.log_path = profile.home / "logs" / f"{role}.log"
        final = frozenset({Exit.DONE, Exit.EJECTED})
        self._child = Child(role, argv, self.log_path, env, max_restarts=20, final_exits=final)
        self._supervisor = Supervisor(lambda line: typer.echo(line))
        self._stopping = threading.Event()

    def start(self) -> None:
        self._supervisor.start(self._child)
        typer.echo(f"{self._child.name} started (pid {self._child.pid}), its log: {self.log_path}")

    def check(self) -> None:
        """Restart it if it died. Raises MusterError once it keeps failing."""
        self._supervisor.check()

    def stop(self) -> None:
        self._supervisor.stop()

    def run(self, look: Callable[[], None], every: float) -> int:
        """Until it ends for good or we are asked to stop; `look` is called every so many seconds."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._stopping.set())
        waited = every
        try:
            while not self._stopping.wait(_POLL_SECONDS):
                self._supervisor.check()
                if self._child.finished:
                    return self._child.process.returncode if self._child.process else 0
                waited += _POLL_SECONDS
                if waited >= every:
                    waited = 0.0
                    look()
            return 0
        finally:
            self.stop()
