"""Data files as other programs write them: JSON lines, a JSON array, gzip of either, Parquet; brought into strict JSON
lines, the one form that pools use, before a file gets its hash."""

import ast
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from environments.scorers.latex import nesting
from protocol.config import MAX_FILE_BYTES, MAX_ROW_BYTES
from protocol.encoding import parse_json
from protocol.errors import IntegrityError, first_line, printable

_HINT = "write JSON lines in UTF-8, or Parquet"
_PYTHON = re.compile(r"(?:c?python|py)[\s_-]*(?:3(?:\.\d+)*)?", re.IGNORECASE)


def json_rows(path: Path, most: int = MAX_FILE_BYTES) -> Iterator[bytes]:
    """Yield the rows of a file as JSON texts; empty lines are skipped, of a row that is too long only its beginning is
    kept. `most`: unpacked bytes. Raise IntegrityError for what is neither JSON, gzip of it, nor Parquet."""
    with path.open("rb") as file:
        begin = file.read(4)
    if begin == b"PAR1":
        yield from _parquet_rows(path)
        return
    opener = gzip.open if begin.startswith(b"\x1f\x8b") else open
    room, is_first = most, True
    with opener(path, "rb") as file:
        try:
            while line := file.readline(MAX_ROW_BYTES + 2):
                if is_first:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                    if line.lstrip().startswith(b"[") or line.strip() == b"{":
                        yield from _document_rows(line + file.read(MAX_FILE_BYTES + 1), path.name)
                        return
                room -= len(line)
                rest = line
                while not rest.endswith(b"\n") and (rest := file.readline(1 << 20)):
                    room -= len(rest)
                if room < 0:
                    raise IntegrityError(f"{path.name} has more than {most} bytes", "split it")
                if not (row := line.strip()):
                    continue
                if is_first and not row.startswith(b"{"):
                    what = f"{path.name} is no JSON: it begins with {printable(row[:60].decode(errors='replace'))!r}"
                    raise IntegrityError(what, _HINT)
                is_first = False
                yield row
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise IntegrityError(f"{path.name} is damaged: {error}", "fetch it again") from None


def _parquet_rows(path: Path) -> Iterator[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        for batch in pq.ParquetFile(path, page_checksum_verification=True).iter_batches(256):
            for row in batch.to_pylist():
                # not a number is how pandas writes that a value is missing
                fields = {name: value for name, value in row.items() if value is not None and value == value}
                yield json.dumps(fields, ensure_ascii=False, separators=(",", ":"), default=_as_text).encode()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise IntegrityError(f"{path.name}: the Parquet library refuses it: {first_line(error)}", _HINT) from None


def _as_text(value: object) -> str:
    """Return what JSON has no form for; texts are binary in files of older writers."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _document_rows(data: bytes, name: str) -> Iterator[bytes]:
    """Yield the rows of one JSON document over many lines: an array, an object that holds one, or a single row."""
    if len(data) > MAX_FILE_BYTES:
        raise IntegrityError(f"{name} has more than {MAX_FILE_BYTES} bytes", "split it")
    try:
        document = parse_json(data)
    except ValueError as error:
        what = printable(str(error), 100)
        raise IntegrityError(f"{name} is neither JSON lines nor one JSON document: {what}", _HINT) from None
    if isinstance(document, dict):
        lists = [value for value in document.values() if isinstance(value, list)]
        is_row = "problem_id" in document or "messages" in document or len(lists) != 1
        document = [document] if is_row else lists[0]
    yield from map(_encoded, document)


def normalised(line: bytes) -> bytes:
    """Return a row in the form of a pool's data file: without nulls, names as text, objects instead of texts of JSON or
    Python literals, a language spelt as scorers know it. Raise ValueError for what is no JSON object."""
    fields = parse_json(line)
    if not isinstance(fields, dict):
        raise ValueError("it is not a JSON object")
    fields = {name: value for name, value in fields.items() if value is not None}
    for name in ("problem_id", "source", "in_source_id"):
        if isinstance(fields.get(name), int | float) and not isinstance(fields[name], bool):
            fields[name] = str(fields[name])
    for name in ("verification_info", "metadata"):
        if isinstance(fields.get(name), str):
            fields[name] = parsed(fields[name])
    if isinstance(info := fields.get("verification_info"), dict):
        fields["verification_info"] = info = _verification(info)
        if fields.get("task_type") in ("verifiable_code", "prime_rl_code") and "ground_truth" in info:
            tests = parsed(info["ground_truth"]) if isinstance(info["ground_truth"], str) else info["ground_truth"]
            info["ground_truth"] = _verification(tests) if isinstance(tests, dict) else tests
    return _encoded(fields)


def _verification(info: dict[str, Any]) -> dict[str, Any]:
    info = {name: value for name, value in info.items() if value is not None}
    language = info.get("language")
    if isinstance(language, str) and _PYTHON.fullmatch(language.strip()):
        info["language"] = "python"
    for name in ("test_cases", "inputs", "outputs"):
        if isinstance(info.get(name), str):
            with suppress(ValueError):
                values = parsed(info[name])
                info[name] = values if isinstance(values, list) else info[name]
    if isinstance(info.get("test_cases"), dict):  # columns side by side, as some exports have tests
        columns = info.pop("test_cases")
        info |= {name: columns[name] for name in ("inputs", "outputs", "fn_name") if name in columns}
    return info


def parsed(text: str, chars: int = 1 << 20, depth: int = 200) -> Any:
    """Return what a text of JSON or of a Python literal (`python_literal`) holds. Raise ValueError."""
    with suppress(ValueError):
        return parse_json(text)
    return python_literal(text, chars, depth)


def python_literal(text: str, chars: int, depth: int) -> Any:
    """Return a Python literal as JSON has it. Raise ValueError, also for one that is too long or too deep."""
    if len(text) > chars or nesting(text) > depth:
        raise ValueError("it is too long or too deep")
    try:
        return json.loads(json.dumps(ast.literal_eval(text.strip()), allow_nan=False))
    except (SyntaxError, TypeError, MemoryError, RecursionError, ValueError) as error:
        raise ValueError(f"no Python literal: {printable(str(error), 100)}") from None


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
