"""Whether one of our processes runs on this machine, by its home folder: a running process holds the lock of its chain
events there, and loses it however it ends."""

import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from protocol.errors import printable
from protocol.files import is_locked

STALLED = "stalled"  # file in a home while the computation there does not move: since when (Unix seconds), and what
CRASH_MESSAGE = "crash-message"  # file in a home after a process could not go on: why
# Those of a service's further workers lie in the service's home.
_EVENTS = ("events.sqlite", "*/events.sqlite", "*/process-*/events.sqlite")
_TAIL_BYTES = 4096


def runs(home: Path) -> bool:
    return any(is_locked(path) for name in _EVENTS for path in home.glob(f"{name}.lock"))


def last_sign(home: Path) -> float:
    """Return when something of the process in `home` was last written (Unix seconds); 0 if it never was started."""
    paths = (log_of(home), *(path for name in _EVENTS for path in home.glob(f"{name}*")))
    return max(map(_written, paths), default=0.0)


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def gone(home: Path) -> str:
    """Return what to say when no process works in `home`, with why the last one ended; empty while one works."""
    if runs(home):
        return ""
    if home.is_dir() and not os.access(home, os.R_OK | os.X_OK):
        return f"whether a process works in {home} cannot be seen: the folder is not readable"
    message = crash_message(home)
    return f"no process works in {home}" + (f"; the last one ended with: {message}" if message else "")


def log_of(home: Path) -> Path:
    """Return the log of a process under `up`. It lies beside the home, where an isolated process cannot replace it."""
    return home.parent / "logs" / f"{home.name}.log"


def crash_message(home: Path) -> str:
    """Return what the last process in `home` ended with, by its own file or its log; empty if neither exists."""
    return last_line(home / CRASH_MESSAGE) or last_line(log_of(home))


def keep_crash_message(home: Path, message: str) -> None:
    """Write why a process ends, or remove the file of the one before if `message` is empty. A full disk is ignored."""
    path = home / CRASH_MESSAGE
    with suppress(OSError):
        if message:
            path.write_text(message + "\n")
        else:
            path.unlink(missing_ok=True)


def stalled(home: Path) -> str:
    """Return what to say of a process in `home` whose computation does not move; empty if it moves, or is gone."""
    since, _, what = last_line(home / STALLED).partition(" ")
    try:
        waited = time.time() - float(since)
    except ValueError:
        return ""
    return f"{what}, for {waited:.0f} s now" if runs(home) else ""


def last_line(path: Path) -> str:
    """Return the newest line of a log, made printable; empty without one, and for anything but a plain file."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return ""
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return printable(lines[-1], 200) if lines else ""
