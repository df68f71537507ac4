"""Folders that are either complete or absent: filled aside, synced, renamed into place."""

import os
import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from protocol.files import file_sha256, sync_folder


def write_folder(target: Path, fill: Callable[[Path], None]) -> Path:
    """Let `fill` write files into a fresh folder, sync them, and put the folder at `target`, replacing any other.

    A crash at any point leaves either the old folder, the new one, or none; leftovers are named `.<name>.<random>`
    or `.<name>.<random>.old`, and hinder nobody.
    """
    aside = folder_aside(target)
    try:
        fill(aside)
        put_folder(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return target


def folder_aside(target: Path) -> Path:
    """A fresh folder beside `target`, for `put_folder` to put there once it is filled. Raises OSError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.parent / f".{target.name}.{uuid.uuid4().hex[:12]}"
    aside.mkdir()
    return aside


def put_folder(aside: Path, target: Path) -> None:
    """Sync a folder of the same parent, and put it at `target`, replacing any other. A crash leaves one of them."""
    _sync(aside)
    if target.exists():
        # Named by this call alone: what a kill left of an earlier one's must not stand in the way.
        old = aside.with_name(f"{aside.name}.old")
        target.rename(old)
        aside.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    else:
        aside.rename(target)
    sync_folder(target.parent)


def remove_leftovers(parent: Path) -> None:
    """Delete what an interrupted `write_folder` left in `parent`; only for a folder that one process owns."""
    for path in parent.glob(".*.*"):
        shutil.rmtree(path, ignore_errors=True)


def drop_old(folders: Sequence[Path], keep: int) -> None:
    """Delete all but the last `keep` of `folders`, which are in order of age, oldest first."""
    for folder in folders[: max(0, len(folders) - keep)]:
        shutil.rmtree(folder, ignore_errors=True)


def file_digests(folder: Path, skip: tuple[str, ...] = ()) -> dict[str, str]:
    """SHA-256 (hex) of each plain file directly in `folder`, by name."""
    paths = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name not in skip]
    return {path.name: file_sha256(path) for path in paths}


def _sync(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
    sync_folder(folder)
