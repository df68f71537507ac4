"""Whether a process of ours runs on this machine, by its home folder: it holds the lock of its chain events there, and
lets go of it however it ends."""

import os
from pathlib import Path

from protocol.errors import printable
from protocol.locks import is_locked

_EVENTS = ("events.sqlite", "*/events.sqlite")
_TAIL_BYTES = 4096


def runs(home: Path) -> bool:
    """Whether a process works in `home`."""
    return any(is_locked(path) for name in _EVENTS for path in home.glob(f"{name}.lock"))


def last_sign(home: Path, log: Path) -> float:
    """When something of the process in `home` was last written (Unix seconds); 0 if it never was started."""
    paths = (log, *(path for name in _EVENTS for path in home.glob(f"{name}*")))
    return max((path.stat().st_mtime for path in paths if path.exists()), default=0.0)


def gone(home: Path) -> str:
    """What to say when no process works in `home`, with what it said last; empty while one does."""
    if runs(home):
        return ""
    if home.is_dir() and not os.access(home, os.R_OK | os.X_OK):
        return f"whether a process works in {home} cannot be seen: the folder is not readable"
    logs = sorted((home / "logs").glob("*.log"), key=lambda path: path.stat().st_mtime)
    said = last_line(logs[-1]) if logs else ""
    return f"no process works in {home}" + (f"; the last one said: {said}" if said else "")


def last_line(path: Path) -> str:
    """The newest line of a log, made printable; empty without one."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return printable(lines[-1], 200) if lines else ""
