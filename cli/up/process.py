"""A worker or validator under `up`: its configuration from the profile, started, restarted when it dies, reported."""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from cli.profile import Profile, ProfileKey
from demo.supervisor import Child, Supervisor
from engines.runtime import torch_environment
from protocol.errors import ConfigError
from protocol.files import write_atomic

EJECTED = 3
_POLL_SECONDS = 1.0


def key_reference(key: ProfileKey) -> dict[str, str]:
    """How a process's configuration names a key. Raises ConfigError without a password file: nobody is there to ask."""
    if key.password_file is None:
        what = f"{key.keystore} has no password file, which a process that restarts by itself needs"
        raise ConfigError(what, "write the password into a file of mode 0600 and name it in the profile")
    return {"keystore": str(key.keystore), "password_file": str(key.password_file)}


def process_values(profile: Profile, rpc: list[str], dtype: str) -> dict[str, Any]:
    """What the configurations of worker and validator have in common."""
    return {
        "home": str(profile.home),
        "cache": str(profile.cache),
        "deployment": str(profile.deployment),
        "rpc": rpc,
        "pool": profile.pool,
        "orchestrator": profile.service,
        "allow_private_sources": profile.allow_private_sources,
        "engine": profile.engine.model_dump() | {"dtype": dtype},
    }


def write_config(profile: Profile, role: str, values: dict[str, Any]) -> Path:
    """The process's configuration file, made anew at every start: the profile is what people change."""
    path = profile.home / f"{role}.json"
    write_atomic(path, json.dumps(values, indent=2).encode() + b"\n")
    return path


class UpProcess:
    """A process and its restarts. `run` returns its exit code, 0 when stopped by a signal."""

    def __init__(self, role: str, profile: Profile, config: Path) -> None:
        argv = [sys.executable, "-P", "-m", "cli.main", role, "run", "--config", str(config)]
        env = dict(os.environ) | {"PYTHONUNBUFFERED": "1"} | torch_environment(profile.engine.threads)
        self.log_path = profile.home / "logs" / f"{role}.log"
        final = frozenset({0, EJECTED})
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
