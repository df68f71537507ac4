"""A service as a process: served, killed, started again."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from protocol.waits import wait_for


@dataclass
class Process:
    """A service by `muster … --config`, with a configuration that tests may spoil."""

    command: list[str]
    home: Path
    values: dict[str, Any]
    child: subprocess.Popen[str] | None = None

    @property
    def log(self) -> Path:
        return self.home / "log"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.values['port']}"

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, follow_redirects=True, trust_env=False, timeout=60)

    def configured(self, values: dict[str, Any]) -> Path:
        path = self.home / "config.json"
        path.write_text(json.dumps(values, default=str))
        return path

    def spawn(self) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "cli.main", *self.command, "--config", str(self.configured(self.values))]
        with self.log.open("w") as out:
            self.child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, text=True)
        return self.child

    def start(self) -> None:
        child = self.spawn()

        def ready() -> bool:
            assert child.poll() is None, self.log.read_text()
            with suppress(httpx.HTTPError):
                return self.get("/health").status_code == 200
            return False

        wait_for("the service", ready, 120)

    def end(self, number: int) -> int:
        assert self.child is not None
        if self.child.poll() is None:
            os.kill(self.child.pid, number)
        return self.child.wait(60)

    def ends(self, values: dict[str, Any]) -> str:
        """Run with these values; the one line it prints before it exits with 2."""
        self.values = values
        code = self.spawn().wait(120)
        lines = [line for line in self.log.read_text().splitlines() if line.startswith("muster: ")]
        assert code == 2, self.log.read_text()
        assert len(lines) == 1, self.log.read_text()
        assert "Traceback" not in self.log.read_text()
        return lines[0]
