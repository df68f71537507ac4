"""A member's journal: one line of canonical JSON for each round that its weights were trained in."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from protocol.encoding import canonical_json
from protocol.files import write_atomic

JOURNAL, STATUS = "journal.jsonl", "status.json"


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
    """Add those whose round is not there yet: a kill may have come between checkpoint and journal, or cut a line."""
    known = {one["round"] for one in read_journal(path)}
    with path.open("ab") as file:
        file.truncate(path.read_bytes().rfind(b"\n") + 1)
        file.writelines(canonical_json(line) + b"\n" for line in lines if line["round"] not in known)
        file.flush()
        os.fsync(file.fileno())
