"""Journals of benchmarks that go on after a kill: a line of JSON for everything that is done."""

import json
from pathlib import Path
from typing import Any

from protocol.files import write_atomic

Line = dict[str, Any]


def lines(path: Path) -> list[Line]:
    """A journal's lines, none if there is no file; one that a kill cut off is left out."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def resumed(path: Path) -> list[Line]:
    """`lines`, and the file ends with the last of them: what is appended must not stand behind half a line. For the one
    process that writes."""
    kept = lines(path)
    write_atomic(path, "".join(map(_written, kept)).encode())
    return kept


def append(path: Path, line: Line) -> None:
    with path.open("a") as stream:
        stream.write(_written(line))


def _written(line: Line) -> str:
    return json.dumps(line) + "\n"
