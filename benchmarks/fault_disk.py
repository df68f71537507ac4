"""A disk of its own for a folder, which can be full: a tmpfs, so that every write to it fails as on any full disk."""

import contextlib
import os
import subprocess
from pathlib import Path

from protocol.errors import ConfigError, MusterError

_ROOMY, _SPARE, _FILLER = "16g", 4 << 20, "filler"


class SmallDisk:
    """Mounted over `folder` until `close`. Raises ConfigError where this user may not mount."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={_ROOMY}", "tmpfs", str(folder)], capture_output=True, check=False
        )
        if done.returncode:
            raise ConfigError(f"a disk cannot be mounted: {done.stderr.decode().strip()}", "run it as root")

    def fill(self) -> None:
        """No byte more fits."""
        found = os.statvfs(self._folder)
        used = (found.f_blocks - found.f_bfree) * found.f_frsize
        self._resize(str(used + _SPARE))  # room for what is written meanwhile: a disk cannot be smaller than its files
        with contextlib.suppress(OSError), (self._folder / _FILLER).open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    def empty(self) -> None:
        self._resize(_ROOMY)
        (self._folder / _FILLER).unlink()

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", str(self._folder)], capture_output=True, check=False)

    def _resize(self, size: str) -> None:
        order = ["mount", "-o", f"remount,size={size}", str(self._folder)]
        done = subprocess.run(order, capture_output=True, check=False)
        if done.returncode:
            raise MusterError(f"the disk cannot be made {size} large: {done.stderr.decode().strip()}")
