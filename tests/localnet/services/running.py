"""Real services for tests: an S3 server and a chain on random ports, killed and restarted at will."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from protocol.files import die_with_parent
from protocol.waits import wait_for
from storage.s3 import S3Settings
from tests.conftest import free_port

ROOT = Path(__file__).parents[3]


class ServiceProcess:
    """`python -m localnet.services.<name>` with its output in a file."""

    def __init__(self, name: str, data: Path, *options: str, port: int | None = None) -> None:
        self.name, self.data, self.options = name, data, options
        self.port = port or free_port()
        self.log = data.parent / f"{data.name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def command(self) -> list[str]:
        where = ["--data", str(self.data), "--port", str(self.port)]
        return [sys.executable, "-m", f"localnet.services.{self.name}", *where, *self.options]

    def start(self, timeout: float = 60.0) -> None:
        # eventlet says less when it sees that a test runs it.
        env = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=env, stdout=log, stderr=subprocess.STDOUT, preexec_fn=die_with_parent
            )
        wait_for(f"the {self.name} service", self._ready, timeout)

    def _ready(self) -> bool:
        assert self.process is not None
        text = self.log.read_text(errors="replace")
        assert self.process.poll() is None, text
        return "READY" in text

    def kill(self) -> None:
        """As a power cut would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)

    def stop(self) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGTERM)
        return self.process.wait(20)


@contextmanager
def running(service: ServiceProcess) -> Iterator[ServiceProcess]:
    service.start()
    try:
        yield service
    finally:
        if service.stop() not in (0, -signal.SIGKILL):
            print(service.log.read_text(errors="replace"))


def settings_of(service: ServiceProcess, bucket: str = "muster") -> S3Settings:
    return S3Settings(endpoint=service.url, bucket=bucket, credentials=service.data / "etc" / "credentials.json")
