"""Runs `muster demo` as a user would, in its own process, and reads what it leaves."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Run:
    code: int
    output: str
    folder: Path

    @property
    def summary(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "summary.json").read_text()))

    def trained(self) -> list[dict[str, Any]]:
        """The trainer's own list of consumed files."""
        (path,) = (self.folder / "homes" / "trainer").glob("*/trained.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()]


def demo(runs: Path, *arguments: str, timeout: float) -> Run:
    argv = [sys.executable, "-m", "cli.main", "demo", "--runs", str(runs), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False)
    return Run(done.returncode, done.stdout + done.stderr, (runs / "latest").resolve())
