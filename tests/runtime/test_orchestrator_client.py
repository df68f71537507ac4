"""Heartbeats go on through failures of the service and of our own, and say so once."""

import contextlib
import logging
import subprocess
import sys
import threading

import pytest

from protocol import VERSION
from protocol.api.work import HeartbeatRequest, HeartbeatResponse
from protocol.errors import UnreachableError
from protocol.waits import WAITS
from runtime.orchestrator_client import Heartbeats, heartbeat


class HeartbeatTaker:
    """Takes beats, except while `down`."""

    def __init__(self) -> None:
        self.taken: list[HeartbeatRequest] = []
        self.down, self.version, self.notice = True, "", ""
        self.asked = threading.Semaphore(0)

    def heartbeat(self, beat: HeartbeatRequest) -> HeartbeatResponse:
        self.asked.release()
        if self.down:
            raise UnreachableError("it does not answer", "wait")
        self.taken.append(beat)
        return HeartbeatResponse(next=10.0, step=None, lease_expires=None, version=self.version, notice=self.notice)


def test_they_outlive_every_failure(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "muster.service")
    service, broken = HeartbeatTaker(), [RuntimeError("dictionary changed size during iteration")]

    def beat() -> HeartbeatRequest:
        if broken:
            raise broken.pop()
        return HeartbeatRequest(role="worker")

    beats = Heartbeats(service, beat, 0.01)  # type: ignore[arg-type]
    beats.start()
    for _ in range(3):
        assert service.asked.acquire(timeout=60)
    service.down = False
    for _ in range(4):
        assert service.asked.acquire(timeout=60)
    beats.stop()
    assert service.taken[0] == HeartbeatRequest(role="worker")
    said = [record.getMessage() for record in caplog.records]
    assert said.count("a heartbeat failed") == 1
    assert sum(line.startswith("heartbeats are not accepted: it does not answer") for line in said) == 1
    assert said.count("heartbeats are accepted again") == 1


@pytest.mark.parametrize(
    ("version", "notice", "warning"),
    [
        (
            "9.9.9",
            "",
            f"the pool's service is muster 9.9.9, this process muster {VERSION}: upgrade the older of the two",
        ),
        (VERSION, "another process works with this key", "another process works with this key"),
    ],
)
def test_another_version_of_the_service_and_its_notice_are_logged_once(
    caplog: pytest.LogCaptureFixture, version: str, notice: str, warning: str
) -> None:
    service = HeartbeatTaker()
    service.down, service.version, service.notice = False, version, notice
    beats = Heartbeats(service, lambda: HeartbeatRequest(role="worker"), 0.01)  # type: ignore[arg-type]
    beats.start()
    for _ in range(4):
        assert service.asked.acquire(timeout=60)
    beats.stop()
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [warning]


def test_a_process_has_one_name_for_itself_and_no_other_has_it() -> None:
    beat = 'heartbeat("worker", "w", phase="", metrics={}).instance'
    own = {heartbeat("worker", "w", phase="", metrics={}).instance for _ in range(2)}
    script = f"from runtime.orchestrator_client import heartbeat; print({beat})"
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
    assert len(own) == 1
    assert "" != other not in own


def test_what_is_too_long_or_unfit_is_cut_and_the_heartbeat_is_sent() -> None:
    with contextlib.ExitStack() as stack:
        for n in range(20):
            stack.enter_context(WAITS.on(f"{n:02} \0" + "x" * 500))
        beat = heartbeat(
            "worker", "w1", phase="y" * 500, engine="\0" + "z" * 500, leases=["ab" * 16], metrics={"made": 1}
        )
    assert (beat.role, beat.name, beat.leases, beat.metrics) == ("worker", "w1", ["ab" * 16], {"made": 1.0})
    assert beat.phase == "y" * 63 + "…"
    assert beat.engine == "?" + "z" * 62 + "…"
    assert [wait.what[:4] for wait in beat.waits] == [f"{n:02} ?" for n in range(16)]
