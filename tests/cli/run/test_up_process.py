"""The loop of `up`: its process is restarted when it dies, left alone when it is done, and stopped when we are."""

import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chain.indexer.records import Lane, Seat
from chain.indexer.state import State
from cli.profile import Profile, ProfileKey
from cli.run.process import UpProcess
from cli.run.up import ValidatorUp, earned_line
from protocol.errors import MusterError
from runtime import keystore
from runtime.entry import Exit
from tests.cli.diagnose.test_views import NODE, VOTES, drawn, make_state, make_sub

COUNTING = """
import os, sys
path = {path!r}
starts = int(open(path).read()) if os.path.exists(path) else 0
open(path, "w").write(str(starts + 1))
codes = {codes!r}
sys.exit(codes[min(starts, len(codes) - 1)])
"""
SLEEPING = "import time\nprint('up', flush=True)\ntime.sleep(300)\n"


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The loop takes signals for itself; afterwards they are as before. It looks ten times as often as usual."""
    monkeypatch.setattr("cli.run.process._POLL_SECONDS", 0.1)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def process(folder: Path, script: str) -> UpProcess:
    """One whose program is `script` instead of a worker."""
    profile = Profile(role="operator", home=folder, cache=folder, key=ProfileKey(keystore=folder / "key.json"))
    made: Any = UpProcess("worker", profile, folder / "worker.json")
    made._child.argv = [sys.executable, "-c", script]
    found: UpProcess = made
    return found


def counted(folder: Path, *codes: int) -> tuple[UpProcess, Path]:
    """A process that ends with these codes one after the other, and where its starts are counted."""
    path = folder / "starts"
    return process(folder, COUNTING.format(path=str(path), codes=[int(code) for code in codes])), path


def test_a_process_that_dies_is_started_again_until_it_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    up, starts = counted(tmp_path, 1, 2, 0)
    up.start()
    assert up.run(str) == 0
    assert starts.read_text() == "3"
    said = capsys.readouterr().out
    assert "worker died (exit 1); restart in 0.5 s" in said
    assert "worker died (exit 2); restart in 1.0 s" in said
    assert said.count("worker restarted") == 2


def test_an_ejected_worker_is_not_started_again(tmp_path: Path) -> None:
    up, starts = counted(tmp_path, Exit.EJECTED)
    up.start()
    assert up.run(str) == Exit.EJECTED
    assert starts.read_text() == "1"


def test_what_is_due_is_done_before_a_signal_ends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    up, left = process(tmp_path, SLEEPING), ["2 votes to open", "1 vote to open"]
    up.start()
    made: Any = up
    asked: list[bool] = []

    def due() -> str:
        asked.append(made._child.process.poll() is None)
        return left.pop(0) if left else ""

    pid = made._child.pid
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM)).start()
    assert up.run(str, due) == 0
    assert asked == [True, True, True], "the process runs while something is due"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    shown = capsys.readouterr()
    assert "Ctrl-C again stops at once: 1 vote to open" in shown.err
    assert shown.out.endswith("worker stopped; the same command continues where it was\n")


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    up, asked = process(tmp_path, SLEEPING), threading.Event()
    up.start()

    def due() -> str:
        if not asked.is_set():
            asked.set()
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        return "a vote to open"

    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    assert up.run(str, due) == 0
    assert asked.is_set()
    assert time.monotonic() - began < 60, "it does not wait the five minutes"


@pytest.mark.parametrize(
    "failure",
    [
        MusterError("the chain does not answer"),
        OSError(28, "no space left on device"),
        sqlite3.OperationalError("full"),
    ],
)
def test_what_cannot_be_seen_ends_no_process_and_is_not_waited_for(tmp_path: Path, failure: Exception) -> None:
    up = process(tmp_path, SLEEPING)
    up.start()

    def fail() -> str:
        raise failure

    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM)).start()
    assert up.run(fail, fail) == 0


def test_it_looks_at_once_and_then_every_so_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    up, looked = process(tmp_path, SLEEPING), []
    monkeypatch.setattr("cli.run.process._REPORT_SECONDS", 0.5)

    def look() -> str:
        looked.append(time.monotonic())
        if len(looked) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return ""

    up.start()
    started = time.monotonic()
    assert up.run(look) == 0
    assert looked[0] - started < 0.5
    assert all(after - before >= 0.4 for before, after in pairwise(looked))


def test_before_the_first_file_up_repeats_what_the_worker_says() -> None:
    """A worker whose engine did not start used to be "no file handed in yet" for ever."""
    line = earned_line(State(), 1, "0xA", 0, "18:21 I muster.worker: vLLM cannot load")
    assert line == "no file handed in yet; the worker says: 18:21 I muster.worker: vLLM cannot load"
    assert earned_line(State(), 1, "0xA", 0) == "no file handed in yet"


def test_an_owners_only_seat_and_its_unopened_vote_are_told(tmp_path: Path) -> None:
    profile = Profile(role="validator", home=tmp_path, cache=tmp_path, key=ProfileKey(keystore=tmp_path / "key.json"))
    keystore.create(profile.key.keystore, "password", work_factor=1024)
    state, turn = make_state(make_sub()), drawn(commits={1: bytes(32)})
    state.lanes[1, 0] = Lane(1, 0, [turn], [0])
    owner = keystore.address_of(profile.key.keystore)
    state.seats = {4: Seat(4, NODE, NODE, 9, 0), 5: Seat(5, owner, NODE, 9, 0)}
    ran: list[Any] = []
    suite = SimpleNamespace(params=SimpleNamespace(values=lambda: {"withheldPenalty": 2 * 10**8}))
    up: Any = object.__new__(ValidatorUp)
    up.session, up.profile = SimpleNamespace(state=lambda: state, suite=suite), profile
    up.process = SimpleNamespace(run=lambda *said: ran.extend(said))
    up.work()
    report, due = ran
    assert report() == "1 seat active · fees 0 tokens, penalties 0 tokens"
    assert due() == "1 vote not opened yet; each that is missing costs 0.2 tokens"
    turn.reveals[1] = VOTES[1]
    assert due() == ""
