"""Runs `muster …` with a fault inside: `python -m benchmarks.support.fault_launcher <arguments of muster>`.

Each by an environment variable. MUSTER_FAULT_VERSION: the version that this process is of. MUSTER_FAULT_DEVICE: while
that file exists, the model's next step does not end, as on a GPU that hangs. MUSTER_FAULT_CLOCK: a file with the
seconds by which `time.time` is off, read anew at every call.
"""

import os
import runpy
import time
from pathlib import Path
from typing import Any


def set_version(version: str) -> None:
    """Before anything else takes it from there."""
    import protocol

    protocol.VERSION = version


def hang_with(file: Path) -> None:
    """A stand-in for a device: the model's passes wait while the file exists."""
    from engines.hf import TransformersEngine

    forward = TransformersEngine._forward

    def hanging(self: TransformersEngine, *given: Any) -> Any:
        while file.exists():
            time.sleep(0.1)
        return forward(self, *given)

    TransformersEngine._forward = hanging  # type: ignore[assignment, method-assign]


def shift_clock(file: Path) -> None:
    """By as many seconds as the file says."""
    right = time.time

    def shifted() -> float:
        return right() + float(file.read_text() or 0)

    time.time = shifted


if __name__ == "__main__":
    if version := os.environ.get("MUSTER_FAULT_VERSION"):
        set_version(version)
    if device := os.environ.get("MUSTER_FAULT_DEVICE"):
        hang_with(Path(device))
    if clock := os.environ.get("MUSTER_FAULT_CLOCK"):
        shift_clock(Path(clock))
    runpy.run_module("cli.main", run_name="__main__")
