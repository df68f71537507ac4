"""Whether a process of ours runs on this machine, by its home folder: it holds the lock of its chain events there, and
lets go of it however it ends."""

import os
import time
from contextlib import suppress
from pathlib import Path

from protocol.errors import printable
from protocol.files import is_locked

STALLED = "stalled"
"""In a home while the computation there does not move: since when (Unix seconds), and what."""
LAST_WORDS = "last-words"
"""In a home after a process that could not go on: what it said last."""
_EVENTS = ("events.sqlite", "*/events.sqlite", "*/process-*/events.sqlite")
"""A role's home may lie in that of a profile, and those of a service's further processes in the service's."""
_TAIL_BYTES = 4096


def runs(home: Path) -> bool:
    """Whether a process works in `home`."""
    return any(is_locked(path) for name in _EVENTS for path in home.glob(f"{name}.lock"))


def last_sign(home: Path, log: Path) -> float:
    """When something of the process in `home` was last written (Unix seconds); 0 if it never was started."""
    paths = (log, *(path for name in _EVENTS for path in home.glob(f"{name}*")))
    return max(map(_written, paths), default=0.0)


def _written(path: Path) -> float:
    """When a file was written last (Unix seconds); 0 for one that is not there, or no longer."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def gone(home: Path) -> str:
    """What to say when no process works in `home`, with what it said last; empty while one does."""
    if runs(home):
        return ""
    if home.is_dir() and not os.access(home, os.R_OK | os.X_OK):
        return f"whether a process works in {home} cannot be seen: the folder is not readable"
    said = last_said(home)
    return f"no process works in {home}" + (f"; the last one said: {said}" if said else "")


def last_said(home: Path) -> str:
    """What the last process in `home` ended with, by itself or by its newest log; empty if neither is known."""
    if words := last_line(home / LAST_WORDS):
        return words
    logs = sorted((home / "logs").glob("*.log"), key=_written)
    return last_line(logs[-1]) if logs else ""


def keep_last_words(home: Path, words: str) -> None:
    """For whoever looks after a process has ended; empty: it works. A disk that is full costs no more than that."""
    path = home / LAST_WORDS
    with suppress(OSError):
        if words:
            path.write_text(words + "\n")
        else:
            path.unlink(missing_ok=True)


def stalled(home: Path) -> str:
    """What to say of a process in `home` whose computation does not move; empty of one that moves, or is gone."""
    try:
        since, _, what = (home / STALLED).read_text().partition(" ")
        waited = time.time() - float(since)
    except (OSError, ValueError):
        return ""
    return f"{printable(what, 200)}, for {waited:.0f} s now" if runs(home) else ""


def last_line(path: Path) -> str:
    """The newest line of a log, made printable; empty without one."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return printable(lines[-1], 200) if lines else ""
