"""What `muster weights serve` sets for its whole process."""

import sys
from pathlib import Path

import pytest

from runtime import relay
from storage.relay.cache import SWITCH_SECONDS


def test_its_threads_seldom_ask_for_the_interpreters_lock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before, seen = sys.getswitchinterval(), list[float]()
    monkeypatch.setattr(relay, "start", lambda *_: seen.append(sys.getswitchinterval()))
    try:
        relay.run(tmp_path)
    finally:
        sys.setswitchinterval(before)
    assert seen == [pytest.approx(SWITCH_SECONDS)]
    assert before < SWITCH_SECONDS
