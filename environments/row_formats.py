"""Data files as other programs write them: JSON lines, a JSON array, gzip of either, with or without a byte order mark.

Rows are brought into the one form that pools use, before a file gets its hash: a pool's own data file is strict JSON
lines, which every machine reads alike.
"""

import ast
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

from protocol.config import MAX_FILE_BYTES, MAX_ROW_BYTES
from protocol.encoding import parse_json
from protocol.errors import IntegrityError, printable

_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_OTHER_KINDS = {
    b"PK\x03\x04": "a zip archive",
    b"BZh": "compressed by bzip2",
    b"\xfd7zXZ": "compressed by xz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"ARROW1": "an Arrow file",
    b"\xff\xff\xff\xff": "an Arrow stream",
    b"PAR1": "a Parquet file",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
    b"SQLite": "an SQLite database",
    b"\x80": "a pickle",
    b"Obj\x01": "an Avro file",
}
_HINT = "write JSON lines in UTF-8, or Parquet"
_PYTHON = re.compile(r"(?:c?python|py)[\s_-]*(?:3(?:\.\d+)*)?", re.IGNORECASE)
_LITERAL_CHARS = 1 << 20
_CODE = ("verifiable_code", "prime_rl_code")


def json_rows(path: Path, most: int = MAX_FILE_BYTES) -> Iterator[bytes]:
    """Yield the rows of a file as JSON texts, one at a time; empty lines are skipped, and of a row that is too long
    only its beginning is kept. `most`: bytes of an unpacked file. Raises IntegrityError that names the kind of a file
    that holds no JSON."""
    with path.open("rb") as plain:
        compressed = plain.read(2) == _GZIP
        plain.seek(0)
        file = cast(IO[bytes], gzip.GzipFile(fileobj=plain)) if compressed else plain
        try:
            yield from _json_rows(file, path.name, most)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise IntegrityError(f"{path.name} is damaged: {error}", "fetch it again") from None


def _json_rows(file: IO[bytes], name: str, most: int) -> Iterator[bytes]:
    limit, room = MAX_ROW_BYTES + 2, most
    first = True
    while line := file.readline(limit):
        room -= len(line)
        if room < 0:
            raise IntegrityError(f"{name} has more than {most} bytes", "split it")
        if len(line) == limit and not line.endswith(b"\n"):
            while (rest := file.readline(1 << 20)) and not rest.endswith(b"\n"):
                room -= len(rest)
        if first:
            line = line.removeprefix(_BOM)
            _check_kind(line, name)
        if not line.strip():
            continue
        if first and (line.lstrip().startswith(b"[") or line.strip() == b"{"):
            yield from _document_rows(line + file.read(MAX_FILE_BYTES + 1), name)
            return
        first = False
        yield line.strip(b" \t\r\n")


def _document_rows(data: bytes, name: str) -> Iterator[bytes]:
    """The rows of one JSON document over many lines: an array, an object that holds one, or a single row."""
    if len(data) > MAX_FILE_BYTES:
        raise IntegrityError(f"{name} has more than {MAX_FILE_BYTES} bytes", "split it")
    try:
        document = parse_json(data)
    except ValueError as error:
        what = printable(str(error), 100)
        raise IntegrityError(f"{name} is neither JSON lines nor one JSON document: {what}", _HINT) from None
    lists = [value for value in document.values() if isinstance(value, list)] if isinstance(document, dict) else []
    if isinstance(document, dict) and ("problem_id" in document or "messages" in document or len(lists) != 1):
        document = [document]
    for row in lists[0] if isinstance(document, dict) else document:
        yield _encoded(row)


def _check_kind(line: bytes, name: str) -> None:
    for magic, kind in _OTHER_KINDS.items():
        if line.startswith(magic):
            raise IntegrityError(f"{name} is {kind}", _HINT)
    start = line.lstrip()[:1]
    if start and start not in (b"{", b"["):
        text = printable(line[:60].decode(errors="replace"))
        kind = "CSV" if line.count(b",") and b"{" not in line.split(b",", 1)[0] else "no JSON"
        raise IntegrityError(f"{name} is {kind}: it begins with {text!r}", _HINT)


def normalised(line: bytes) -> bytes:
    """Return a row in the form of a pool's data file. Raises ValueError for what is no JSON object.

    Null fields are left out, numbers as names become text, objects that are texts of JSON or of Python literals become
    objects, and a language is spelt as scorers know it. What else is wrong with a row is found when it is read.
    """
    fields = parse_json(line)
    if not isinstance(fields, dict):
        raise ValueError("it is not a JSON object")
    fields = {name: value for name, value in fields.items() if value is not None}
    for name in ("problem_id", "source", "in_source_id"):
        if isinstance(fields.get(name), int | float) and not isinstance(fields[name], bool):
            fields[name] = str(fields[name])
    for name in ("verification_info", "metadata"):
        if isinstance(fields.get(name), str):
            fields[name] = _object(fields[name], name)
    if isinstance(info := fields.get("verification_info"), dict):
        fields["verification_info"] = _verification(info)
        if fields.get("task_type") in _CODE and "ground_truth" in info:  # the tests themselves
            found = _parsed(info["ground_truth"]) if isinstance(info["ground_truth"], str) else info["ground_truth"]
            fields["verification_info"]["ground_truth"] = _verification(found) if isinstance(found, dict) else found
    return _encoded(fields)


def _verification(info: dict[str, Any]) -> dict[str, Any]:
    info = {name: value for name, value in info.items() if value is not None}
    language = info.get("language")
    if isinstance(language, str) and _PYTHON.fullmatch(language.strip()):
        info["language"] = "python"
    for name in ("test_cases", "inputs", "outputs"):
        if isinstance(info.get(name), str):
            with suppress(ValueError):
                found = _parsed(info[name])
                info[name] = found if isinstance(found, list) else info[name]
    if isinstance(info.get("test_cases"), dict):  # columns side by side, as some exports have tests
        columns = info.pop("test_cases")
        info |= {name: columns[name] for name in ("inputs", "outputs", "fn_name") if name in columns}
    return info


def _object(text: str, name: str) -> Any:
    try:
        return _parsed(text)
    except ValueError as error:
        raise ValueError(f"`{name}` is text that holds neither JSON nor a Python literal: {error}") from None


def _parsed(text: str) -> Any:
    """What a text of JSON or of Python literals holds. Raises ValueError."""
    readers: tuple[Callable[[str], Any], ...] = (parse_json, _literal)
    failure: ValueError | None = None
    for reader in readers:
        try:
            return reader(text)
        except ValueError as error:
            failure = failure or error
    raise failure or ValueError("it is empty")


def _literal(text: str) -> Any:
    """A Python literal as JSON has it. The text is a stranger's: bounded, and without anything that is no literal."""
    if len(text) > _LITERAL_CHARS:
        raise ValueError(f"a Python literal of {len(text)} characters, {_LITERAL_CHARS} at most")
    try:
        value = ast.literal_eval(text.strip())
        return parse_json(json.dumps(value, allow_nan=False))
    except (SyntaxError, TypeError, MemoryError, RecursionError, ValueError) as error:
        raise ValueError(f"no Python literal: {printable(str(error), 100)}") from None


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
