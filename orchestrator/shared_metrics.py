"""Histograms of several processes as one, by prometheus_client's files in a folder that they share."""

import os
import shutil
from pathlib import Path

from prometheus_client import values

from protocol.errors import ConfigError
from protocol.files import explained, is_locked

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Where the library looks for it."""
ROOM = 1 << 20
"""Bytes of a process's file: more than all routes with all kinds of status take."""


def forget_metrics(home: Path) -> None:
    """Begin from nothing in `home`, before processes count there. Raises ConfigError while a service works there, whose
    counts these are, and for a folder that cannot be emptied."""
    if is_locked(home / "events.sqlite.lock"):
        raise ConfigError(f"another process works in {home}", "stop it, or give each a `home` of its own")
    folder = home / "metrics"
    with explained(f"empty {folder}", "check `home`"):
        if folder.exists():
            shutil.rmtree(folder)


def share_metrics(home: Path, number: int) -> None:
    """Count, from now on, with the other processes of the service in `home`. Each `number` has one file, which the next
    process of that number goes on with. Raises ConfigError for a file that cannot be made."""
    path = home / "metrics" / f"histogram_{number}.db"
    with explained(f"make {path}", "make room on its disk, and check `home`"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            # At once: the kernel kills who writes into a mapped file when the disk has no room for it.
            os.posix_fallocate(file.fileno(), 0, ROOM)
    os.environ[FOLDER] = str(path.parent)
    values.ValueClass = values.MultiProcessValue(lambda: number)  # type: ignore[no-untyped-call]


def are_shared() -> bool:
    """Whether metrics are counted with other processes."""
    return FOLDER in os.environ
