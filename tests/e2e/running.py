"""Runs `muster demo` as a user would, in its own process, and reads what it leaves."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

MUSTER = [sys.executable, "-m", "cli.main"]
STAYS_UP = "the network stays up: "


@dataclass(frozen=True)
class Run:
    code: int | None
    output: str
    folder: Path

    @property
    def summary(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "summary.json").read_text()))

    @property
    def url(self) -> str:
        """Of the orchestrator of a network that stays up."""
        found = re.search(re.escape(STAYS_UP) + r"(\S+?)/ ", self.output)
        assert found, self.output
        return found.group(1)

    def trained(self) -> list[dict[str, Any]]:
        """The trainer's own list of consumed files."""
        (path,) = (self.folder / "homes" / "trainer").glob("*/trained.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()]


def muster(*arguments: str, timeout: float = 120) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*MUSTER, *arguments], capture_output=True, text=True, timeout=timeout, check=False)


def processes_of(folder: Path) -> list[int]:
    """Of other programs that name a folder in their command line."""
    lines = {process.pid: process.info["cmdline"] or () for process in psutil.process_iter(["cmdline"])}
    return [pid for pid, words in lines.items() if pid != os.getpid() and any(str(folder) in word for word in words)]


def demo(runs: Path, *arguments: str, timeout: float) -> Run:
    """A whole run, to its end."""
    done = muster("demo", "--runs", str(runs), *arguments, timeout=timeout)
    return Run(done.returncode, done.stdout + done.stderr, (runs / "latest").resolve())


@contextmanager
def kept_demo(runs: Path, *arguments: str, timeout: float) -> Iterator[Run]:
    """A finished run whose network is still up; Ctrl-C ends it, and must end it well."""
    log = runs / "output"
    with log.open("w") as out:
        argv = [*MUSTER, "demo", "--runs", str(runs), "--keep", *arguments]
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        end = time.monotonic() + timeout
        while process.poll() is None and STAYS_UP not in log.read_text() and time.monotonic() < end:
            time.sleep(0.5)
        assert STAYS_UP in log.read_text(), log.read_text()
        yield Run(process.poll(), log.read_text(), (runs / "latest").resolve())
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
