"""Processes that share a port: each answers, one that dies is replaced, none outlives its parent."""

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from protocol.errors import ConfigError
from protocol.waits import wait_for
from runtime.http_server import bound, held
from runtime.prefork import FIRST_PAUSE, LONGEST_PAUSE, Forked, Prefork
from tests.conftest import free_port

SERVICE = """
import logging, os, socket, sys, threading
from protocol.errors import ConfigError
from runtime.http_server import bound, held
from runtime import prefork
from runtime.prefork import Prefork
from runtime.process import serve

logging.basicConfig(level="INFO", stream=sys.stdout, format="%(message)s")
prefork.SAY_SECONDS = 0.5
port, folder = int(sys.argv[1]), sys.argv[2]

if os.path.exists(f"{folder}/slow fork"):
    die_with_parent = prefork.die_with_parent
    prefork.die_with_parent = lambda parent: (die_with_parent(parent), threading.Event().wait(2))

class Says:
    def __init__(self, number):
        if os.path.exists(f"{folder}/killed"):
            os.kill(os.getpid(), 9)
        if os.path.exists(f"{folder}/broken"):
            raise ConfigError("it is broken", "mend it")
        if number and os.path.exists(f"{folder}/slow"):
            threading.Event().wait(60)
        self.number, self.asked = number, threading.Event()
        self.listener = bound("127.0.0.1", port, shared=True)
    def run(self):
        threading.Thread(target=self.answer, daemon=True).start()
        self.asked.wait(60)
        open(f"{folder}/stopped-{self.number}", "w").close()
        return 0
    def answer(self):
        while True:
            one, _ = self.listener.accept()
            one.sendall(f"{self.number} {os.getpid()}".encode())
            one.close()
    def stop(self):
        self.asked.set()

try:
    serve(Prefork(3, Says, held("127.0.0.1", port)))
except ConfigError as error:
    print(error, flush=True)
    os._exit(7)
"""


class PreforkService:
    """The program above as a process."""

    def __init__(self, folder: Path, before: Callable[[], object] | None = None) -> None:
        self.port, self.folder = free_port(), folder
        command = [sys.executable, "-c", SERVICE, str(self.port), str(folder)]
        with self.log.open("w") as out:
            self.parent = subprocess.Popen(command, stdout=out, preexec_fn=before)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def asked(self) -> tuple[int, int] | None:
        """Number and process of one that answers; None when nobody does."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as line:
                number, pid = line.recv(100).split()
        except (OSError, ValueError):
            return None
        return int(number), int(pid)

    def seen(self, times: int = 200) -> dict[int, int]:
        """Process by number of all that answer one of so many connections."""
        return dict(found for _ in range(times) if (found := self.asked()) is not None)

    def all_serve(self) -> dict[int, int]:
        found: dict[int, int] = {}

        def complete() -> bool:
            nonlocal found
            found = self.seen(50)
            return len(found) == 3

        wait_for("all processes", complete, 60)
        return found


@pytest.fixture
def service(tmp_path: Path) -> Iterator[PreforkService]:
    one = PreforkService(tmp_path)
    yield one
    with suppress(ProcessLookupError):
        one.parent.kill()
    one.parent.wait(30)


def gone(pids: list[int]) -> Callable[[], bool]:
    def look() -> bool:
        return not any(Path(f"/proc/{pid}").exists() for pid in pids)

    return look


def test_each_answers_and_one_that_is_killed_is_replaced_while_the_others_serve(service: PreforkService) -> None:
    before = service.all_serve()
    assert len({*before.values(), service.parent.pid}) == 4

    os.kill(before[1], signal.SIGKILL)
    wait_for("the end of one", gone([before[1]]), 30)
    answers = [service.asked() for _ in range(20)]

    assert None not in answers, "a connection went to one that has died"
    after = service.all_serve()
    assert after[1] != before[1]
    assert (after[0], after[2]) == (before[0], before[2])


def test_no_connection_waits_for_one_that_is_not_built_yet(service: PreforkService) -> None:
    before = service.all_serve()
    (service.folder / "slow").touch()
    os.kill(before[2], signal.SIGKILL)
    wait_for("the end of one", gone([before[2]]), 30)

    assert set(service.seen()) == {0, 1}


def test_none_outlives_a_parent_that_is_killed_and_the_port_is_free(service: PreforkService) -> None:
    pids = list(service.all_serve().values())

    service.parent.kill()
    service.parent.wait(30)

    wait_for("the end of all", gone(pids), 30)
    bound("127.0.0.1", service.port).close()


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
def test_a_parent_that_is_asked_to_end_lets_all_end_in_order(service: PreforkService, asked: signal.Signals) -> None:
    service.all_serve()

    service.parent.send_signal(asked)

    assert service.parent.wait(30) == 0
    assert {path.name for path in service.folder.glob("stopped-*")} == {"stopped-0", "stopped-1", "stopped-2"}


def test_what_keeps_the_first_from_being_built_is_said_once_and_ends_all(tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    service = PreforkService(tmp_path)

    assert service.parent.wait(60) == 7
    assert service.log.read_text().count("it is broken") == 1


def test_it_is_said_when_the_first_is_killed_while_it_is_built(tmp_path: Path) -> None:
    (tmp_path / "killed").touch()
    service = PreforkService(tmp_path)

    assert service.parent.wait(60) == 1
    assert "process 1 of 3 ended with -9 before it served" in service.log.read_text()


def test_one_that_is_not_built_in_time_is_named_also_when_others_serve(service: PreforkService) -> None:
    before = service.all_serve()
    (service.folder / "slow").touch()
    os.kill(before[2], signal.SIGKILL)

    wait_for("a word", lambda: service.log.read_text().count("waiting for process 3 of 3 since") > 1, 20)


def test_asked_to_end_while_one_was_just_forked_it_does_not_wait_for_that_one(tmp_path: Path) -> None:
    (tmp_path / "slow fork").touch()
    service = PreforkService(tmp_path)
    children = Path(f"/proc/{service.parent.pid}/task/{service.parent.pid}/children")
    wait_for("a fork", lambda: bool(children.read_text().split()), 30, poll=0.05)

    service.parent.send_signal(signal.SIGTERM)

    assert service.parent.wait(6) == 0


def test_whoever_starts_it_may_ignore_the_ends_of_children(tmp_path: Path) -> None:
    service = PreforkService(tmp_path, lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    before = service.all_serve()

    os.kill(before[1], signal.SIGKILL)
    wait_for("the end of one", gone([before[1]]), 30)

    assert service.all_serve()[0] == before[0]
    service.parent.send_signal(signal.SIGTERM)
    assert service.parent.wait(30) == 0


def test_a_machine_that_cannot_fork_for_a_while_costs_no_more_than_that_while(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = Prefork(1, lambda number: pytest.fail("nothing is forked"), socket.socket())
    parent._is_up = True
    files = len(os.listdir("/proc/self/fd"))

    def refused() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refused)
    assert parent._look(100.0) is None
    assert parent._look(100.0 + FIRST_PAUSE / 2) is None
    (one,) = parent._processes
    assert (one.pid, one.due) == (None, 100.0 + FIRST_PAUSE)
    assert len(os.listdir("/proc/self/fd")) == files
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ()), "it can still be asked to end"

    parent._is_up = False
    with pytest.raises(BlockingIOError):
        parent._look(200.0)


def test_what_keeps_one_from_being_built_again_does_not_end_the_others(service: PreforkService) -> None:
    before = service.all_serve()
    (service.folder / "broken").touch()
    os.kill(before[0], signal.SIGKILL)
    wait_for("the end of one", gone([before[0]]), 30)
    assert set(service.seen()) == {1, 2}

    (service.folder / "broken").unlink()

    assert service.all_serve()[1] == before[1]


def test_a_port_of_others_is_refused_also_when_they_share_it() -> None:
    port = free_port()
    with bound("127.0.0.1", port, shared=True), pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
        held("127.0.0.1", port)
    with held("127.0.0.1", port):
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
            held("127.0.0.1", port)
        with bound("127.0.0.1", port, shared=True), bound("127.0.0.1", port, shared=True):
            with pytest.raises(ConfigError, match="cannot listen"):
                bound("127.0.0.1", port)
    held("127.0.0.1", port).close()


def test_pauses_double_up_to_a_bound_and_begin_anew_after_a_long_life() -> None:
    one, now = Forked("one"), 10.0
    pauses = []
    for _ in range(9):
        pauses.append(one.wait_longer(now))
        assert one.due == now + pauses[-1]

    assert pauses == [FIRST_PAUSE * 2**power for power in range(7)] + [LONGEST_PAUSE] * 2
    one.started(os.getpid(), -1, now := 1000.0)
    assert one.wait_longer(now + LONGEST_PAUSE) == LONGEST_PAUSE
    assert one.wait_longer(now + LONGEST_PAUSE + 1) == FIRST_PAUSE
