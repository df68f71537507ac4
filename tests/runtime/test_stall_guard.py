"""A computation that stops is said where `status`, heartbeats and the log look; one that never ends is ended."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from engines.runtime import StepPace
from protocol.waits import WAITS
from runtime.entry import Exit
from runtime.presence import CRASH_MESSAGE, STALLED, gone, keep_crash_message, stalled
from runtime.process import StallGuard


class SetPace(StepPace):
    """A pace that a test sets."""

    waited = 0.0

    def overdue(self) -> float:
        return self.waited


def until(what: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


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
    ended, codes = threading.Event(), []

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    pace = SetPace()
    pace.waited = 61.0
    guard = StallGuard(tmp_path, pace, give_up=60.0, end=end)
    guard.start()
    assert ended.wait(20)
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
