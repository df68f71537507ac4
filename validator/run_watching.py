"""Watching the runs of sites that a validator may have to judge: `muster site watch` for each, in a process of its own,
which shows sites and keepers that contradict themselves to the contract and earns a twentieth of their stakes.

It reads a bucket that strangers fill, so it shares nothing with the process that votes but the key that pays the gas.
"""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from protocol.errors import MusterError, unwritten
from runtime.process import KeyConfig, make_home

log = logging.getLogger("muster.validator")
_FIRST_PAUSE, _LONGEST_PAUSE, _STEADY_SECONDS = 5.0, 600.0, 600.0
_MOST_LOG = 1 << 22


@dataclass
class _Watcher:
    """One run's process. `not_before`: when it may be started again (monotonic)."""

    process: "subprocess.Popen[bytes] | None" = None
    since: float = 0.0
    pause: float = 0.0
    not_before: float = 0.0


class RunWatchers:
    """`runs`: by a run's number on chain, a site's or keeper's configuration. `home`: where each has a folder with its
    proofs and its log. `key`: who pays, None: contradictions are only kept. One thread."""

    def __init__(
        self,
        runs: Mapping[int, Path],
        home: Path,
        key: KeyConfig | None = None,
        command: Callable[[Path, Path, KeyConfig | None], Sequence[str]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runs, self._home, self._key, self._clock = dict(runs), home / "runs", key, clock
        self._command = command or watch_command
        self._watchers = {run: _Watcher() for run in self._runs}

    def advance(self) -> None:
        """Start what does not run, after a pause that doubles while it keeps ending. What goes wrong here keeps no
        vote from being cast."""
        now = self._clock()
        for run, watcher in self._watchers.items():
            if watcher.process is not None and watcher.process.poll() is not None:
                code, watcher.process = watcher.process.returncode, None
                self._rest(run, watcher, f"it ended with code {code}")
            if watcher.process is None and now >= watcher.not_before:
                watcher.since = now
                try:
                    watcher.process = self._start(run)
                except (OSError, MusterError) as error:
                    self._rest(run, watcher, unwritten(error) if isinstance(error, OSError) else str(error))

    def _rest(self, run: int, watcher: _Watcher, why: str) -> None:
        now = self._clock()
        steady = now - watcher.since > _STEADY_SECONDS
        watcher.pause = _FIRST_PAUSE if steady else min(max(2 * watcher.pause, _FIRST_PAUSE), _LONGEST_PAUSE)
        watcher.not_before = now + watcher.pause
        log.warning("watching run %d: %s, again in %.0f s; see %s", run, why, watcher.pause, self._log_path(run))

    def close(self) -> None:
        """End what is running."""
        for watcher in self._watchers.values():
            if watcher.process is not None:
                watcher.process.kill()
                watcher.process.wait()
                watcher.process = None

    def _start(self, run: int) -> "subprocess.Popen[bytes]":
        home = self._home / str(run)
        make_home(home)
        argv = list(self._command(self._runs[run], home, self._key))
        with self._log(run) as out:
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def _log(self, run: int) -> IO[bytes]:
        """Its log, begun anew once it is long: what it is about, the chain and the proofs keep."""
        path = self._log_path(run)
        long = path.exists() and path.stat().st_size > _MOST_LOG
        return path.open("wb" if long else "ab")

    def _log_path(self, run: int) -> Path:
        return self._home / str(run) / "watch.log"


def watch_command(config: Path, home: Path, key: KeyConfig | None) -> list[str]:
    """A key whose password only a person knows is not asked for again: nothing is shown with it."""
    words = ["site", "watch", "--config", str(config), "--home", str(home), "--parent", str(os.getpid())]
    if key is not None and key.password_file is not None:
        words += ["--keystore", str(key.keystore), "--password-file", str(key.password_file)]
    return [sys.executable, "-P", "-m", "cli.main", *words]
