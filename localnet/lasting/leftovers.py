"""Processes of a lasting network whose supervisor was killed: the kernel ends its children, this whatever is left."""

from collections.abc import Iterator
from pathlib import Path

import psutil

MARK = "MUSTER_NETWORK"
"""The variable that every process of a network carries: its folder."""


def leftovers(root: Path) -> Iterator[psutil.Process]:
    """Every process of this user, other than this one, that carries the mark of the network in `root`."""
    me = psutil.Process().pid
    for process in psutil.process_iter():
        try:
            if process.pid != me and process.environ().get(MARK) == str(root):
                yield process
        except (psutil.Error, OSError):
            continue  # somebody else's, or it has just ended


def clean_up(root: Path, seconds: float = 10.0) -> list[str]:
    """SIGKILL them: each survives that by design. Returns their names and numbers once they have ended, or `seconds`
    later."""
    found = list(leftovers(root))
    names = []
    for process in found:
        try:
            names.append(f"{process.name()} (pid {process.pid})")
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(found, timeout=seconds)
    return names
