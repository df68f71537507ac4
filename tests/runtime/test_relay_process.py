"""What `muster relay run` sets for its whole process."""

import sys
from pathlib import Path

import pytest

from runtime.relay import main
from storage.relay.flights import SWITCH_SECONDS


def test_its_threads_seldom_ask_for_the_interpreters_lock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before, seen = sys.getswitchinterval(), list[float]()
    monkeypatch.setattr(main, "start", lambda *_: seen.append(sys.getswitchinterval()))
    try:
        main.run(tmp_path)
    finally:
        sys.setswitchinterval(before)
    assert seen == [pytest.approx(SWITCH_SECONDS)]
    assert before < SWITCH_SECONDS
