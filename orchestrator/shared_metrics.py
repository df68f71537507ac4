"""Counters and histograms of several processes as one, by prometheus_client's files in a folder that they share."""

import os
import shutil
from pathlib import Path

from protocol.files import explained

_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The library looks for it when it is imported."""


def share_metrics(folder: Path) -> None:
    """Count together, from nothing, what this process and those that it starts will count in `folder`. Before the
    first import of prometheus_client. Raises MusterError for a folder that cannot be made."""
    with explained(f"make {folder}", "check `home`"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    os.environ[_FOLDER] = str(folder)


def are_shared() -> bool:
    """Whether metrics are counted with other processes."""
    return _FOLDER in os.environ
