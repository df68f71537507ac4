"""Whatever the owner's process waits for, its log says so."""

import logging
import re
import threading

import pytest

from protocol.errors import IntegrityError, UnreachableError
from protocol.waits import WAITS
from trainer.waiting import Waiting, WaitLog


@pytest.fixture(autouse=True)
def every_word(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="muster.trainer")


def test_a_wait_is_logged_with_its_reason_and_ever_more_rarely(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    said = WaitLog("2 accepted files for step 1", lambda: now)

    def words(seconds: float, why: str) -> list[str]:
        nonlocal now
        caplog.clear()
        for _ in range(round(seconds)):
            now += 1.0
            said.update(why)
        return caplog.messages

    (first,) = words(8, "no node may work")
    assert re.fullmatch(r"waiting for 2 accepted files for step 1 since \d\d:\d\d:\d\d: no node may work", first)
    assert len(words(15, "no node may work")) == 0
    assert len(words(1, "no node may work")) == 1
    assert len(words(8, "1 not judged")) == 1, "another reason is said soon"
    assert len(words(600, "1 not judged")) in (10, 11)


def test_what_is_waited_for_is_shown_and_a_failure_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    left, shown, meanwhile = [3], list[str](), list[int]()

    def attempt() -> str | None:
        shown.extend(wait["what"] for wait in WAITS.report())
        left[0] -= 1
        if left[0] == 1:
            raise UnreachableError("no bucket")
        return None if left[0] else "there"

    waiting = Waiting(threading.Event(), 0.001, lambda: meanwhile.append(1))
    assert waiting.until("a file", attempt, why=lambda: f"{left[0]} to go") == "there"
    assert shown == ["a file", "a file: 2 to go", "a file: 1 to go"]
    assert caplog.messages == ["no bucket; trying again"]
    assert len(meanwhile) == 2
    assert WAITS.report() == []


def test_what_no_waiting_mends_is_raised_and_a_stop_is_heard() -> None:
    def wrong() -> None:
        raise IntegrityError("other weights")

    stopping = threading.Event()
    with pytest.raises(IntegrityError, match="other weights"):
        Waiting(stopping, 0.001, lambda: None).until("a file", wrong)
    waiting = Waiting(stopping, 60.0, stopping.set)
    assert waiting.until("a file", lambda: None) is None
