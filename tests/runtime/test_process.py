"""A daemon's life: it starts from its file, in a prepared process; SIGTERM ends it, in any case within seconds."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from engines.torch_process import StepPace
from protocol.waits import WAITS, wait_for
from runtime.entry import Exit
from runtime.home_status import CRASH_MESSAGE, STALLED, gone, keep_crash_message, stalled
from runtime.process import StallGuard

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
PATIENT = GENTLE.replace("wait(60)", "wait(60); threading.Event().wait(1)").replace("Gentle())", "Gentle(), None)")
NOTHING_LEFT_TO_SAVE = STUBBORN.replace("Gentle())", "Gentle(), 0.2)")


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
PLACES = {"deployment": "d.json", "rpc": ["http://127.0.0.1:1"], "orchestrator": "http://127.0.0.1:2", "cache": "cache"}
COMPUTES = {**PLACES, "pool": 1, "engine": {"threads": 3}}


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


# A computation that stops is said where `status`, heartbeats and the log look; one that never ends is ended.


class SetPace(StepPace):
    """A pace that a test sets."""

    waited = 0.0

    def overdue(self) -> float:
        return self.waited


def until(what: Callable[[], object]) -> None:
    wait_for("the guard", lambda: what() or None, 20, poll=0.05)


def test_what_does_not_move_is_said_until_it_does(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "events.sqlite.lock")
    lock.acquire()
    (tmp_path / STALLED).write_text("1 of a process before")
    pace = SetPace()
    guard = StallGuard(tmp_path, pace)
    guard.start()
    try:
        assert stalled(tmp_path) == "", "the one before is gone"
        pace.waited = 7.0
        until(lambda: stalled(tmp_path))
        assert "a step of the model does not end" in stalled(tmp_path)
        assert any("does not end" in one["what"] for one in WAITS.report())
        pace.waited = 0.0
        until(lambda: not (tmp_path / STALLED).exists())
        until(lambda: not any("does not end" in one["what"] for one in WAITS.report()))
    finally:
        guard.stop()
        lock.release()


def test_what_never_moves_again_is_ended(tmp_path: Path) -> None:
    codes, pace = list[int](), SetPace()
    pace.waited = 61.0
    guard = StallGuard(tmp_path, pace, give_up=60.0, end=codes.append)
    guard.start()
    until(lambda: codes)
    guard.stop()
    assert codes == [Exit.STALLED]


def test_a_stalled_process_that_was_killed_is_gone_not_stalled(tmp_path: Path) -> None:
    (tmp_path / STALLED).write_text(f"{time.time()} a step")
    assert stalled(tmp_path) == ""
    for nonsense in ("", "never", "x y"):
        (tmp_path / STALLED).write_text(nonsense)
        assert stalled(tmp_path) == ""


def test_why_a_process_ended_outlives_it(tmp_path: Path) -> None:
    keep_crash_message(tmp_path, "port 8700 is in use; choose another")
    assert "the last one ended with: port 8700 is in use" in gone(tmp_path)
    keep_crash_message(tmp_path, "")
    assert not (tmp_path / CRASH_MESSAGE).exists()
    keep_crash_message(tmp_path / "not there", "nobody can write here")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "worker.log").symlink_to(tmp_path / "removed.log")
    assert gone(tmp_path) == f"no process works in {tmp_path}", "a log that is no longer there"


def test_a_service_runs_as_long_as_one_of_its_processes_does(tmp_path: Path) -> None:
    home = tmp_path / "orchestrator" / "process-2"
    home.mkdir(parents=True)

    with FileLock(home / "events.sqlite.lock"):
        assert gone(tmp_path) == ""
        assert gone(tmp_path / "orchestrator") == ""
    assert "no process works" in gone(tmp_path)
