"""Tables as files: CSV for spreadsheets, JSON for programs, Parquet for both. Amounts stay exact in all three."""

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from protocol.errors import ConfigError
from protocol.files import explained

Rows = Iterable[Mapping[str, Any]]


def write_table(path: Path, rows: Rows) -> int:
    """Write rows of one shape as the file's ending says: .csv, .json or .parquet; returns how many there were.

    Raises ConfigError for another ending, or a folder that cannot be written to.
    """
    writers = {".csv": _csv, ".json": _json, ".parquet": _parquet}
    write = writers.get(path.suffix)
    if write is None:
        raise ConfigError(f"{path.name} says no format", f"end it in {', '.join(writers)}")
    kept = list(rows)
    with explained(f"write {path}", "check the folder"):
        write(path, kept)
    return len(kept)


def _csv(path: Path, rows: list[Mapping[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)


def _json(path: Path, rows: list[Mapping[str, Any]]) -> None:
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def _parquet(path: Path, rows: list[Mapping[str, Any]]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    kinds = {bool: pa.bool_(), int: pa.int64(), str: pa.string()}
    # Base units outgrow 64 bits: a token has a thousand million of them.
    types = {
        name: pa.decimal128(38, 0) if name.endswith("_grains") else kinds[type(value)]
        for name, value in (rows[0] if rows else {}).items()
    }
    columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in types.items()}
    parquet.write_table(pa.table(columns), path)
