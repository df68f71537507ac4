"""What `muster site status` reads: how a site, or a keeper, stands, and what it waits for."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from protocol.encoding import canonical_json
from protocol.files import write_atomic
from protocol.sites.outer import OuterState
from protocol.waits import WAITS
from trainer.sites.events import OuterPhase
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


def awaited(book: Logbook) -> str:
    """What holds the outer step under way up, for a person."""
    now = book.schedule
    if book.exchange.run.work == "given" and book.items is None:
        return f"what outer step {now.step} trains on"
    if not now.members:
        return f"sites: {len(now.waiting)} have joined, {now.quorum} are needed"
    missing = now.members - now.documents.keys() if now.phase == OuterPhase.COLLECT else set(now.documents)
    missing = now.untold if now.reducers else missing - now.opened
    bad = "".join(f"; a site cannot use file {item[:16]}…" for item in sorted(book.named)[:3])
    return f"{_AWAITED[now.phase]} outer step {now.step}: of {', '.join(sorted(missing)) or 'others'}{bad}"


_AWAITED = {
    OuterPhase.COLLECT: "contributions to",
    OuterPhase.OPEN: "payloads to",
    OuterPhase.PRODUCTS: "what shards add to admission in",
    OuterPhase.MEANS: "means of",
    OuterPhase.CHECK: "word of all means of",
    OuterPhase.SETTLE: "contributions that count to",
}


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
