"""Keeps the newest folders of a kind and deletes the others."""

import shutil
from collections.abc import Sequence
from pathlib import Path


def drop_old(folders: Sequence[Path], keep: int) -> None:
    """Delete all but the last `keep` of `folders`, which are in order of age, oldest first."""
    for folder in folders[: max(0, len(folders) - keep)]:
        shutil.rmtree(folder, ignore_errors=True)
