import threading
import time

import pytest

from protocol.errors import MusterError
from protocol.waits import Waits, wait_for


def test_what_several_wait_for_is_shown_until_the_last_has_it() -> None:
    waits = Waits()
    with waits.on("a block"):
        (shown,) = waits.report()
        with waits.on("a block"), waits.on("a file"):
            assert [wait["what"] for wait in waits.report()] == ["a block", "a file"]
        assert waits.report() == [shown]
    with pytest.raises(RuntimeError), waits.on("luck"):
        raise RuntimeError
    assert waits.report() == [], "a wait that fails is over"


def test_threads_do_not_disturb_the_report() -> None:
    waits, stop = Waits(), threading.Event()

    def wait(name: str) -> None:
        while not stop.is_set():
            with waits.on(name), waits.on("all"):
                pass

    threads = [threading.Thread(target=wait, args=(str(n),)) for n in range(4)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        assert all(isinstance(wait["since"], float) for wait in waits.report())
    stop.set()
    for thread in threads:
        thread.join(10)
    assert waits.report() == []


def test_a_wait_ends_in_time_and_says_what_for() -> None:
    with pytest.raises(MusterError, match="waited 0 s for rain in vain; sow later"):
        wait_for("rain", lambda: None, 0.05, poll=0.01, hint="sow later")
    with pytest.raises(MusterError, match="stopped while waiting for rain"):
        wait_for("rain", lambda: None, 5, poll=0.01, stop=lambda: True)
    assert wait_for("zero", lambda: 0, 1) == 0, "only None and False are no answer"


def test_what_holds_a_wait_up_is_said_until_it_ends() -> None:
    waits = Waits()
    waits.explain("files", "said too early")
    with waits.on("files"):
        assert [wait["what"] for wait in waits.report()] == ["files"]
        waits.explain("files", "nobody joined")
        since = waits.report()[0]["since"]
        waits.explain("files", "2 are there")
        assert waits.report() == [{"what": "files: 2 are there", "since": since}]
        waits.explain("files", "")
        assert waits.report() == [{"what": "files", "since": since}]
        waits.explain("files", "nobody joined")
    with waits.on("files"):
        assert [wait["what"] for wait in waits.report()] == ["files"]
