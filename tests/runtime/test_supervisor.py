import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.errors import MusterError
from protocol.waits import wait_for
from runtime.supervisor import Child, Supervisor


def child(name: str, code: str, tmp_path: Path, **options: object) -> Child:
    return Child(name, [sys.executable, "-c", code], tmp_path / f"{name}.log", env=dict(os.environ), **options)  # type: ignore[arg-type]


def check_until(supervisor: Supervisor, done: Callable[[], bool]) -> None:
    def checked() -> bool | None:
        supervisor.check()
        return done() or None

    wait_for("the children", checked, 60, poll=0.05)


def test_a_killed_child_comes_back(tmp_path: Path) -> None:
    said: list[str] = []
    supervisor = Supervisor(said.append)
    one = supervisor.start(child("one", "import time; time.sleep(60)", tmp_path))
    first = one.pid
    supervisor.kill("one")
    check_until(supervisor, lambda: one.pid not in (None, first))
    assert any("SIGKILL" in line for line in said)
    supervisor.stop()
    assert one.pid is None


def test_a_child_that_comes_back_has_not_said_what_it_said_before(tmp_path: Path) -> None:
    one = child("one", "print('READY')", tmp_path)
    one.start().wait(60)
    assert "READY" in one.said()
    one.argv = [sys.executable, "-c", "print('starting')"]
    one.start().wait(60)
    assert one.said().split() == ["starting"]
    assert one.log_path.read_text().split() == ["READY", "starting"]


def test_a_child_that_keeps_failing_ends_the_run_with_its_last_words(tmp_path: Path) -> None:
    supervisor = Supervisor(lambda _: None)
    supervisor.start(child("bad", "raise SystemExit('no such pool')", tmp_path, max_restarts=1))
    with pytest.raises(MusterError, match="no such pool"):
        check_until(supervisor, lambda: False)


def test_a_death_is_told_with_the_childs_last_line(tmp_path: Path) -> None:
    said: list[str] = []
    supervisor = Supervisor(said.append)
    supervisor.start(child("one", "print('loading'); print('no such model'); raise SystemExit(2)", tmp_path))
    check_until(supervisor, lambda: bool(said))
    supervisor.stop()
    assert said[0].startswith("one died (exit 2): no such model; restart in ")


def test_a_child_that_is_done_is_left_alone(tmp_path: Path) -> None:
    supervisor = Supervisor(lambda _: None)
    one = supervisor.start(child("one", "pass", tmp_path))
    check_until(supervisor, lambda: one.finished)
    assert one.pid is None


def test_children_die_with_their_supervisor(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from runtime.supervisor import Child, Supervisor\n"
        "c = Supervisor().start(Child('c', [sys.executable, '-c', 'import time; time.sleep(60)'], Path(sys.argv[1])))\n"
        "print(c.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    stat = Path(f"/proc/{int(parent.stdout.readline())}/stat")
    parent.kill()
    parent.wait()
    wait_for("its end", lambda: not stat.exists() or stat.read_text().split()[2] == "Z" or None, 60, poll=0.05)
