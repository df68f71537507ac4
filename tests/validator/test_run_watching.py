"""A validator's watchers: started again when they end, ended with the validator, and no reason not to vote."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from runtime.process import KeyConfig
from validator.run_watching import RunWatchers, watch_command

WAITING = [sys.executable, "-c", "import time; print('watching', flush=True); time.sleep(600)"]


class WatchedRun:
    """Watchers of run 3 whose command is `argv`, with a clock of the test's own."""

    def __init__(self, home: Path, argv: list[str]) -> None:
        self.now, self.argv, self.started = 0.0, argv, 0
        self.log = home / "runs" / "3" / "watch.log"
        self.watchers = RunWatchers({3: Path("run.json")}, home, None, self._command, lambda: self.now)

    def _command(self, config: Path, home: Path, key: KeyConfig | None) -> list[str]:
        self.started += 1
        return self.argv

    @property
    def process(self) -> int | None:
        found = self.watchers._watchers[3].process
        return None if found is None else found.pid

    def ended(self) -> None:
        """Wait until its process has ended."""
        found = self.watchers._watchers[3].process
        assert found is not None
        found.wait(60)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[WatchedRun]:
    made = WatchedRun(tmp_path, WAITING)
    yield made
    made.watchers.close()


def test_it_runs_once_and_is_ended_with_the_validator(watched: WatchedRun) -> None:
    for _ in range(3):
        watched.watchers.advance()
    assert watched.started == 1
    pid, end = watched.process, time.monotonic() + 60
    while b"watching" not in watched.log.read_bytes():
        assert time.monotonic() < end
        time.sleep(0.02)
    watched.watchers.close()
    assert pid is not None
    assert not psutil.pid_exists(pid)


def test_one_that_ends_is_started_again_more_and_more_seldom(watched: WatchedRun) -> None:
    watched.argv, pauses = [sys.executable, "-c", "raise SystemExit(2)"], list[float]()
    watched.watchers.advance()
    for _ in range(10):
        watched.ended()
        watched.watchers.advance()
        assert watched.process is None
        ended = watched.now
        while watched.process is None:
            watched.now += 5
            watched.watchers.advance()
        pauses.append(watched.now - ended)
    assert watched.started == 11
    assert pauses == [5, 10, 20, 40, 80, 160, 320, 600, 600, 600]


def test_one_that_ran_for_long_is_started_again_soon(watched: WatchedRun) -> None:
    watched.argv = [sys.executable, "-c", "raise SystemExit(2)"]
    watched.watchers.advance()
    watched.ended()
    watched.now += 10_000
    watched.watchers.advance()
    watched.now += 5
    watched.watchers.advance()
    assert watched.started == 2


def test_what_cannot_be_started_keeps_nobody_from_voting(watched: WatchedRun) -> None:
    watched.argv = ["/nowhere/python"]
    watched.watchers.advance()
    watched.watchers.advance()
    assert (watched.process, watched.started) == (None, 1)
    watched.log.unlink(missing_ok=True)
    watched.log.parent.rmdir()
    watched.log.parent.write_text("not a folder")
    watched.now += 1000
    watched.watchers.advance()
    assert watched.process is None


def test_a_key_is_named_only_with_the_file_of_its_password(tmp_path: Path) -> None:
    config, home = tmp_path / "run.json", tmp_path / "home"
    without = watch_command(config, home, KeyConfig(keystore=tmp_path / "key.json"))
    assert "--keystore" not in without
    words = watch_command(config, home, KeyConfig(keystore=tmp_path / "key.json", password_file=tmp_path / "password"))
    assert words[words.index("--keystore") + 1] == str(tmp_path / "key.json")
    assert words[words.index("--password-file") + 1] == str(tmp_path / "password")
    assert words[words.index("--home") + 1] == str(home)
