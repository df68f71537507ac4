"""A member's journal: one line of canonical JSON for each round that its weights were trained in, ascending."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from protocol.encoding import canonical_json
from protocol.files import write_atomic

JOURNAL, STATUS = "journal.jsonl", "status.json"
_BLOCK = 1 << 16
"""Bytes of a journal's end that are read first."""


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The rounds of a journal, without a last line that a kill cut off."""
    if not path.is_file():
        return []
    lines = path.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines[:-1] if line]


def measured(lines: Iterable[dict[str, Any]]) -> list[tuple[int, float]]:
    """What a member measured of itself: (rounds trained, held-out reward), in order."""
    return [(trained, reward) for line in lines for trained, reward in line.get("held_out", ())]


def rewind(path: Path, number: int) -> None:
    """Forget round `number` and what came after it: their weights are lost, and they are made again."""
    lines = read_journal(path)
    kept = [line for line in lines if line["round"] < number]
    if len(kept) < len(lines):
        write_atomic(path, b"".join(canonical_json(line) + b"\n" for line in kept))


def append(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Add those whose round is not there yet: a kill may have come between checkpoint and journal, or cut a line. Only
    the journal's end is read, so a long one costs no more than a short one."""
    path.touch()
    with path.open("r+b") as file:
        end, newest = _last(file)
        file.seek(end)
        file.truncate()
        file.writelines(canonical_json(line) + b"\n" for line in lines if line["round"] > newest)
        file.flush()
        os.fsync(file.fileno())


def _last(file: BinaryIO) -> tuple[int, int]:
    """Where the last whole line ends, and its round; 0 and -1 where there is none."""
    size, length = file.seek(0, os.SEEK_END), _BLOCK
    while True:
        begin = max(0, size - length)
        file.seek(begin)
        tail = file.read(size - begin)
        whole = tail[: tail.rfind(b"\n") + 1]
        before = whole.rfind(b"\n", 0, -1)
        if begin == 0 and not whole:
            return 0, -1
        if begin == 0 or before >= 0:
            return begin + len(whole), json.loads(whole[before + 1 :])["round"]
        length *= 4
