"""What a lasting network's supervisor says, and what readers make of it."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from localnet.lasting.leftovers import MARK, clean_up
from localnet.lasting.state import NetworkPhase, NetworkState, ProcessState, process_entry
from localnet.network import final_exits
from localnet.supervisor import Child, Supervisor, restart_pause


def sleeper(**variables: str) -> "subprocess.Popen[bytes]":
    argv = [sys.executable, "-c", "import time; print('on', flush=True); time.sleep(60)"]
    process = subprocess.Popen(argv, env=dict(os.environ) | variables, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def state_of(pid: int, created: float, phase: NetworkPhase = NetworkPhase.UP) -> NetworkState:
    child = Child("worker-1", [], Path("worker-1.log"), since=7.0, process=sleeper())
    assert child.process is not None
    entry = process_entry(child, 0.0, 0.0)
    child.process.kill()
    child.process.wait()
    return NetworkState(pid=pid, created=created, phase=phase, doing="", since=1.0, processes=(entry,))


def test_pauses_between_restarts_double_up_to_the_longest_however_often_it_failed() -> None:
    assert [restart_pause(failures, 60.0) for failures in (1, 2, 3, 7, 8, 5000)] == [0.5, 1.0, 2.0, 32.0, 60.0, 60.0]


def test_only_work_that_is_done_or_refused_ends_a_process_of_a_lasting_network() -> None:
    lasting = {name: final_exits(name, True) for name in ("chain", "s3", "orchestrator", "validator-1")}
    assert set(lasting.values()) == {frozenset()}
    assert final_exits("worker-1", True) == {3}
    assert final_exits("trainer", True) == {0, 5}
    assert final_exits("worker-ada", False) == {0, 3}
    assert final_exits("validator-xena", False) == final_exits("trainer", False) == {0}


def test_an_entry_says_whether_a_process_runs_restarts_has_finished_or_stopped(tmp_path: Path) -> None:
    child = Child("worker-1", [sys.executable, "-c", "raise SystemExit(9)"], tmp_path / "log", max_restarts=None)
    child.start().wait()
    supervisor = Supervisor(lambda _: None)
    supervisor.children[child.name] = child
    child.failures = 3
    supervisor._died(child, 9, now=100.0)
    entry = process_entry(child, monotonic=101.0, now=5001.0)
    assert (entry.state, entry.pid, entry.exit_code, entry.role) == (ProcessState.RESTARTING, None, 9, "worker")
    assert entry.restart_at == pytest.approx(5004.0), "the fourth failure in a row costs four seconds, one is over"
    child.restart_at, child.finished = None, True
    assert process_entry(child, 101.0, 5001.0).state is ProcessState.STOPPED
    child.exit_code = 0
    assert process_entry(child, 101.0, 5001.0).state is ProcessState.FINISHED


def test_a_child_without_limit_is_tried_again_for_ever(tmp_path: Path) -> None:
    child = Child("one", [sys.executable, "-c", "raise SystemExit(9)"], tmp_path / "log", max_restarts=None)
    supervisor = Supervisor(lambda _: None)
    child.failures = 10_000
    supervisor._died(child, 9, now=0.0)
    assert child.restart_at == child.longest_pause


def test_a_living_supervisor_is_believed(tmp_path: Path) -> None:
    me = psutil.Process()
    state = state_of(me.pid, me.create_time())
    assert state.as_found() == state


def test_a_killed_supervisor_takes_its_processes_with_it_even_if_its_number_is_used_again() -> None:
    for pid, created in ((psutil.Process().pid, 5.0), (2**22 - 1, 5.0)):
        found = state_of(pid, created).as_found()
        assert found.phase is NetworkPhase.FAILED
        assert "was killed" in found.problem
        assert [(one.state, one.pid) for one in found.processes] == [(ProcessState.GONE, None)]


def test_a_supervisor_that_has_ended_but_was_not_waited_for_does_not_live() -> None:
    process = sleeper()
    created = psutil.Process(process.pid).create_time()
    state = state_of(process.pid, created)
    assert state.lives()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not state.lives()
    process.wait()


def test_what_a_killed_supervisor_left_is_ended_and_nothing_else(tmp_path: Path) -> None:
    ours, another = sleeper(**{MARK: str(tmp_path)}), sleeper(**{MARK: str(tmp_path / "other")})
    try:
        (name,) = clean_up(tmp_path)
        assert f"pid {ours.pid}" in name
        assert not psutil.pid_exists(ours.pid)
        assert another.poll() is None
        assert clean_up(tmp_path) == []
    finally:
        for process in (ours, another):
            process.kill()
            process.wait()
