"""A daemon's life: it starts from its file, in a prepared process; SIGTERM ends it, in any case within seconds."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

GENTLE = """
import threading
from runtime.process import serve
class Gentle:
    def __init__(self):
        self.asked = threading.Event()
    def run(self):
        print("up", flush=True)
        self.asked.wait(60)
        return 5
    def stop(self):
        self.asked.set()
serve(Gentle())
"""
STUBBORN = GENTLE.replace("self.asked.wait(60)", "threading.Event().wait(60)")
PATIENT = GENTLE.replace("self.asked.wait(60)", "self.asked.wait(60); threading.Event().wait(1)").replace(
    "serve(Gentle())", "serve(Gentle(), None)"
)
NOTHING_LEFT_TO_SAVE = GENTLE.replace("serve(Gentle())", "serve(Gentle(), 0.2)").replace(
    "self.asked.wait(60)", "threading.Event().wait(60)"
)


@pytest.mark.parametrize(
    ("program", "code", "seconds"),
    [(GENTLE, 5, 30.0), (STUBBORN, 0, 30.0), (PATIENT, 5, 30.0), (NOTHING_LEFT_TO_SAVE, 0, 7.5)],
)
def test_sigterm(program: str, code: int, seconds: float) -> None:
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    started = time.monotonic()
    process.terminate()
    assert process.wait(timeout=50) == code
    assert time.monotonic() - started < seconds


STARTED = """
import os, sys
from pathlib import Path
from runtime.process import DaemonConfig, ProcessConfig, start
class Shows:
    def __init__(self, config):
        self.config = config
    def run(self):
        print(self.config.home.is_dir(), os.environ.get("OMP_NUM_THREADS"), "torch" in sys.modules)
        return 7
    def stop(self):
        pass
start(Path(sys.argv[1]), {kind}, Shows)
"""
COMPUTES = {
    "deployment": "deployment.json",
    "rpc": ["http://127.0.0.1:1"],
    "pool": 1,
    "orchestrator": "http://127.0.0.1:2",
    "cache": "cache",
    "engine": {"threads": 3},
}


@pytest.mark.parametrize(
    ("kind", "values", "shown"),
    [("DaemonConfig", {}, "True None False"), ("ProcessConfig", COMPUTES, "True 3 False")],
)
def test_a_daemon_starts_in_its_home_and_only_one_that_computes_with_torchs_environment(
    kind: str, values: dict[str, object], shown: str, tmp_path: Path
) -> None:
    path = tmp_path / "daemon.json"
    path.write_text(json.dumps({"home": str(tmp_path / "new" / "home")} | values))
    command = [sys.executable, "-c", STARTED.format(kind=kind), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": "."}, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (7, shown), done.stderr
