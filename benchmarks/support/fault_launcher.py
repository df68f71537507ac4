"""Run a module with faults inside: `python -m benchmarks.support.fault_launcher MODULE <its arguments>`.

Environment variables name the faults. MUSTER_FAULT_VERSION: this version of muster. MUSTER_FAULT_CLOCK: a file with the
seconds by which `time.time` is wrong. MUSTER_FAULT_DEVICE: while that file exists, no step of the model ends.
MUSTER_FAULT_THREAD: a file with the name of a thread that dies of SystemExit, wherever it is.
"""

import os
import runpy
import sys
import threading
import time
from ctypes import c_ulong, py_object, pythonapi
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
                time.sleep(1)  # seldom: what dies while it takes a lock keeps it, as no thread of its own accord
            return forward(self, *given)

        TransformersEngine._forward = hanging  # type: ignore[assignment, method-assign]
    if named := os.environ.get("MUSTER_FAULT_THREAD"):
        victim = Path(named)

        def kill() -> None:
            while True:
                time.sleep(1)  # seldom: what dies while it takes a lock keeps it, as no thread of its own accord
                name = victim.read_text() if victim.exists() else ""
                for thread in (thread for thread in threading.enumerate() if thread.name == name):
                    pythonapi.PyThreadState_SetAsyncExc(c_ulong(thread.ident or 0), py_object(SystemExit))

        threading.Thread(target=kill, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
