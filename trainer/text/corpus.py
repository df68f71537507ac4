"""The documents of a text run: where each lies in its file, found in one pass, so that any of them is read by number.

Formats, by a file's ending: JSON lines (`.jsonl`, `.ndjson`), one object a line, and plain text (`.txt`, `.md`). Never
more than one document is in memory, besides 16 bytes for each that say where it lies.
"""

import hashlib
import os
import stat
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protocol.encoding import parse_json
from protocol.errors import ConfigError
from protocol.files import explained

MAX_DOCUMENT_BYTES = 16 << 20
U64 = NDArray[np.uint64]
_JSON, _PLAIN = (".jsonl", ".ndjson"), (".txt", ".md")
_Spans = Iterator[tuple[int, int]]


@dataclass(frozen=True)
class TextFormat:
    """`field`: of a JSON object, that holds the text. `separator`: the line that ends a document of a plain file;
    None: a plain file is one document."""

    field: str = "text"
    separator: str | None = None


@dataclass(frozen=True)
class FileState:
    """By which a file is taken for unchanged: its size in bytes, and when it was changed, in nanoseconds."""

    size: int
    changed: int

    @classmethod
    def of(cls, info: os.stat_result, path: Path) -> "FileState":
        """Raises ConfigError for a pipe or a device, which has no document twice."""
        if not stat.S_ISREG(info.st_mode):
            raise ConfigError(f"{path} is not a regular file", "check `text.files`")
        return cls(info.st_size, info.st_mtime_ns)


@dataclass(frozen=True)
class IndexedFile:
    """`state`: when it was read. `sha256`: of all its bytes, in hex. Document k lies at bytes `starts[k]` to
    `ends[k]`."""

    path: Path
    state: FileState
    sha256: str
    starts: U64
    ends: U64


def index_file(path: Path, form: TextFormat) -> IndexedFile:
    """One pass over a file. Documents without any text are left out. Raises ConfigError that names file and line for
    what is not text, or too long, and for a file that changes meanwhile."""
    read = _READERS.get(path.suffix.lower())
    if read is None:
        kinds = ", ".join(sorted(_READERS))
        raise ConfigError(f"{path} is no file of documents: its name ends in none of {kinds}", "write it as JSON lines")
    with explained(f"read {path}", "check `text.files`"):
        state = FileState.of(path.stat(), path)
    with explained(f"read {path}", "check `text.files`"), path.open("rb") as file:
        lines = _CountedLines(file, path)
        ends = array("Q")
        for span in read(lines, form):
            ends.extend(span)
        after = FileState.of(os.fstat(file.fileno()), path)
    if after != state:
        raise ConfigError(f"{path} changed while it was read", "start again once nothing writes to it")
    spans = np.frombuffer(ends, np.uint64).reshape(-1, 2)
    return IndexedFile(path, state, lines.digest.hexdigest(), spans[:, 0].copy(), spans[:, 1].copy())


class Corpus:
    """The documents of all `files`, numbered from 0 in the files' order."""

    def __init__(self, files: Sequence[IndexedFile], form: TextFormat) -> None:
        self._files, self._form = tuple(files), form
        self._firsts = np.cumsum([0, *(len(one.starts) for one in files)])

    def __len__(self) -> int:
        return int(self._firsts[-1])

    @property
    def sha256(self) -> tuple[str, ...]:
        """Of each file, in hex."""
        return tuple(one.sha256 for one in self._files)

    def text(self, number: int) -> str:
        """Document `number`. Raises ConfigError where its file is no longer what was indexed."""
        which = int(np.searchsorted(self._firsts, number, side="right")) - 1
        found = self._files[which]
        at = number - int(self._firsts[which])
        start, end = int(found.starts[at]), int(found.ends[at])
        cure = "put the file back that this run began with"
        with explained(f"read {found.path}", cure), found.path.open("rb") as file:
            if FileState.of(os.fstat(file.fileno()), found.path) != found.state:
                raise ConfigError(f"{found.path} was changed since this site read it", cure)
            file.seek(start)
            data = file.read(end - start)
        where = f"{found.path}, bytes {start} to {end}"
        if found.path.suffix.lower() in _JSON:
            return _json_text(data, self._form.field, where)
        return _plain_text(data, where)


def documents_of(paths: Sequence[Path]) -> list[Path]:
    """The files that are named, and of folders those whose ending is known, by name. Raises ConfigError where there
    are none, or one twice: a document that is kept apart must not be trained on as another one."""
    found: dict[Path, Path] = {}
    for path in paths:
        with explained(f"read {path}", "check `text.files`"):
            inside = (
                sorted(one for one in path.iterdir() if one.suffix.lower() in _READERS) if path.is_dir() else [path]
            )
        for one in inside:
            if one.resolve() in found:
                raise ConfigError(f"{one} is named twice", "name each file once in `text.files`")
            found[one.resolve()] = one
    if not found:
        raise ConfigError(f"no file of documents in {', '.join(map(str, paths))}", "check `text.files`")
    return list(found.values())


class _CountedLines:
    """The lines of a file with where they lie, and the digest of what was read."""

    def __init__(self, file: BufferedReader, path: Path) -> None:
        self._file, self.path = file, path
        self.digest = hashlib.sha256()
        self.number, self.at = 0, 0

    def __iter__(self) -> Iterator[bytes]:
        while line := self._file.readline(MAX_DOCUMENT_BYTES + 1):
            self.number += 1
            if len(line) > MAX_DOCUMENT_BYTES:
                raise self.too_long()
            self.digest.update(line)
            yield line
            self.at += len(line)

    @property
    def where(self) -> str:
        return f"{self.path}, line {self.number}"

    def too_long(self) -> ConfigError:
        return ConfigError(
            f"{self.where}: a document of more than {MAX_DOCUMENT_BYTES >> 20} MiB", "cut it into several"
        )


def _json_lines(lines: _CountedLines, form: TextFormat) -> _Spans:
    for line in lines:
        if line.strip() and _json_text(line, form.field, lines.where).strip():
            yield lines.at, lines.at + len(line)


def _plain_documents(lines: _CountedLines, form: TextFormat) -> _Spans:
    separator = None if form.separator is None else form.separator.encode()
    start, filled = 0, False
    for line in lines:
        if separator is not None and line.strip() == separator.strip():
            if filled:
                yield start, lines.at
            start, filled = lines.at + len(line), False
            continue
        filled = bool(_plain_text(line, lines.where).strip()) or filled
        if lines.at + len(line) - start > MAX_DOCUMENT_BYTES:
            raise lines.too_long()
    if filled:
        yield start, lines.at


def _json_text(data: bytes, field: str, where: str) -> str:
    try:
        found = parse_json(data)
    except ValueError as error:
        raise ConfigError(f"{where}: it is not JSON: {error}", "write one JSON object a line") from None
    text = found.get(field) if isinstance(found, dict) else None
    if not isinstance(text, str):
        raise ConfigError(f"{where}: no text in field `{field}`", "name the field that holds it in `text.field`")
    return text


def _plain_text(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: it is not UTF-8 text", "write the file in UTF-8") from None


_READERS: dict[str, Callable[[_CountedLines, TextFormat], _Spans]] = {
    **dict.fromkeys(_JSON, _json_lines),
    **dict.fromkeys(_PLAIN, _plain_documents),
}
