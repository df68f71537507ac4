"""SIGTERM ends a process: gently if it can, in any case within seconds."""

import subprocess
import sys
import time

import pytest

GENTLE = """
import threading
from runtime.process import serve
stop = threading.Event()
def run():
    print("up", flush=True)
    stop.wait(60)
    return 5
raise SystemExit(serve(run, stop.set))
"""
STUBBORN = GENTLE.replace("stop.wait(60)", "threading.Event().wait(60)")


@pytest.mark.parametrize(("program", "code", "seconds"), [(GENTLE, 5, 4.0), (STUBBORN, 0, 20.0)])
def test_sigterm(program: str, code: int, seconds: float) -> None:
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    started = time.monotonic()
    process.terminate()
    assert process.wait(timeout=30) == code
    assert time.monotonic() - started < seconds
