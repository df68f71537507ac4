"""Finished rows of a benchmark, one JSON line each, which survive a kill and which `--resume` takes up."""

import json
from pathlib import Path
from typing import Any


def keep(path: Path, row: dict[str, Any]) -> None:
    """Append a row, after ending a line that a kill cut off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cut = path.is_file() and not path.read_bytes().endswith(b"\n")
    with path.open("a") as file:
        file.write("\n" * cut + json.dumps(row) + "\n")


def kept(path: Path, resume: bool = True) -> list[dict[str, Any]]:
    """Return the rows of former calls, without those that a kill cut off. Without `resume`, delete them."""
    if not resume:
        path.unlink(missing_ok=True)
    rows = []
    for line in path.read_text().splitlines() if path.is_file() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows
