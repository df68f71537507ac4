"""Run a module with faults inside: `python -m benchmarks.support.fault_launcher MODULE <its arguments>`.

Environment variables name the faults. MUSTER_FAULT_VERSION: this version of muster. MUSTER_FAULT_CLOCK: a file with the
seconds by which `time.time` is wrong. MUSTER_FAULT_DEVICE: while that file exists, no step of the model ends.
"""

import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import protocol

if __name__ == "__main__":
    if version := os.environ.get("MUSTER_FAULT_VERSION"):
        protocol.VERSION = version  # before anything imports it
    if clock := os.environ.get("MUSTER_FAULT_CLOCK"):
        right, shift = time.time, Path(clock)
        time.time = lambda: right() + float(shift.read_text() or 0)
    if device := os.environ.get("MUSTER_FAULT_DEVICE"):
        from engines.hf import TransformersEngine

        forward, hangs = TransformersEngine._forward, Path(device)

        def hanging(self: TransformersEngine, *given: Any) -> Any:
            while hangs.exists():
                time.sleep(0.1)
            return forward(self, *given)

        TransformersEngine._forward = hanging  # type: ignore[assignment, method-assign]
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
