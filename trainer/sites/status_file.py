"""What `muster site status` reads: how a site, or a keeper, stands, and what it waits for."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from protocol.encoding import canonical_json
from protocol.files import write_atomic
from protocol.sites.outer import OuterState
from protocol.waits import WAITS
from trainer.sites.logbook import Logbook

STATUS, _SHOW_SECONDS = "status.json", 1.0


class StatusFile:
    """In `home`: written when it changes, at most once a second."""

    def __init__(self, home: Path, made: Callable[[], dict[str, Any]]) -> None:
        self._path, self._made, self._last, self._at = home / STATUS, made, b"", 0.0

    def __call__(self) -> None:
        if time.monotonic() - self._at >= _SHOW_SECONDS:
            self.write()

    def write(self) -> None:
        data = canonical_json({**self._made(), "waits": WAITS.report()})
        self._at = time.monotonic()
        if data != self._last:
            write_atomic(self._path, data)
            self._last = data


def standing(state: OuterState, book: Logbook | None) -> dict[str, Any]:
    """Where a process stands that holds `state` and has read the log so far (null: it has not started yet)."""
    now = None if book is None else book.schedule
    return {
        "step": state.step,
        "digest": state.digest.hex(),
        "phase": "starting" if now is None else now.phase.value,
        "attempt": 0 if now is None else now.attempt,
        "members": [] if now is None else sorted(now.members),
        "waiting": [] if now is None else sorted(now.waiting),
        "left_out": {} if now is None else {site: now.marks[site].until for site in sorted(now.left_out)},
    }
