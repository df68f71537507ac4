"""The documents of a text run: files on disk, their index, and the stream of tokens that a worker trains on."""

import hashlib
import io
import logging
import os
import stat
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Protocol
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from diloco.config import DilocoRun, TextTaskConfig
from diloco.partition import shuffled
from protocol.encoding import canonical_json, parse_json, sha256_hex
from protocol.errors import ConfigError
from protocol.files import explained, file_sha256, write_atomic
from protocol.models import TOKENIZER_FILES

log = logging.getLogger("muster.diloco")
MAX_DOCUMENT_BYTES = 16 << 20
_SLOW_BYTES = 100 << 20
_JSON, _PLAIN = (".jsonl", ".ndjson"), (".txt", ".md")
_CURE = "check `text.files`"


@dataclass(frozen=True)
class TextFormat:
    """`field`: of a JSON line, that holds the text. `separator`: the line that ends a document of a plain file; None: a
    plain file is one document."""

    field: str = "text"
    separator: str | None = None


@dataclass(frozen=True)
class FileState:
    """Size in bytes and time of change in nanoseconds, by which a file counts as unchanged."""

    size: int
    changed: int

    @classmethod
    def of(cls, info: os.stat_result, path: Path) -> "FileState":
        """Raise ConfigError for a pipe or a device, which cannot be read twice."""
        if not stat.S_ISREG(info.st_mode):
            raise ConfigError(f"{path} is not a regular file", _CURE)
        return cls(info.st_size, info.st_mtime_ns)


@dataclass(frozen=True)
class IndexedFile:
    """`state`: when it was read; `sha256`: of all its bytes (hex). Document k lies at bytes `starts[k]` to
    `ends[k]`."""

    path: Path
    state: FileState
    sha256: str
    starts: NDArray[np.uint64]
    ends: NDArray[np.uint64]


def index_file(path: Path, form: TextFormat) -> IndexedFile:
    """Index a file in one pass. Documents without any text are left out.

    Raises ConfigError that names file and line for what is not text, or too long, and for a file that changes
    meanwhile."""
    if (read := _READERS.get(path.suffix.lower())) is None:
        kinds = ", ".join(sorted(_READERS))
        raise ConfigError(f"{path} is no file of documents: its name ends in none of {kinds}", "write it as JSON lines")
    with explained(f"read {path}", _CURE):
        state = FileState.of(path.stat(), path)
        with path.open("rb") as file:
            lines, ends = _Lines(file, path), array("Q")
            for span in read(lines, form):
                ends.extend(span)
            after = FileState.of(os.fstat(file.fileno()), path)
    if after != state:
        raise ConfigError(f"{path} changed while it was read", "start again once nothing writes to it")
    spans = np.frombuffer(ends, np.uint64).reshape(-1, 2)
    return IndexedFile(path, state, lines.digest.hexdigest(), spans[:, 0].copy(), spans[:, 1].copy())


class Corpus:
    """The documents of all files, numbered from 0 in the files' order."""

    def __init__(self, files: Sequence[IndexedFile], form: TextFormat) -> None:
        self._files, self._form = tuple(files), form
        self._firsts = np.cumsum([0, *(len(one.starts) for one in files)])

    def __len__(self) -> int:
        return int(self._firsts[-1])

    @property
    def sha256(self) -> tuple[str, ...]:
        """Hash of each file (hex)."""
        return tuple(one.sha256 for one in self._files)

    def text(self, number: int) -> str:
        """Return document `number`. Raises ConfigError where its file is no longer what was indexed."""
        which = int(np.searchsorted(self._firsts, number, side="right")) - 1
        file, at = self._files[which], number - int(self._firsts[which])
        start, end = int(file.starts[at]), int(file.ends[at])
        cure = "put the file back that this run began with"
        with explained(f"read {file.path}", cure), file.path.open("rb") as stream:
            if FileState.of(os.fstat(stream.fileno()), file.path) != file.state:
                raise ConfigError(f"{file.path} was changed since this worker read it", cure)
            stream.seek(start)
            data = stream.read(end - start)
        where = f"{file.path}, bytes {start} to {end}"
        return _json_text(data, self._form.field, where) if _is_json(file.path) else _plain_text(data, where)


def open_corpus(paths: Sequence[Path], form: TextFormat, cache: Path) -> Corpus:
    """Open the documents of files and folders. Files whose size and time of change are those in `cache` are not read
    again. Raises ConfigError, also where there is no document at all."""
    corpus = Corpus([_indexed(path, form, cache) for path in document_files(paths)], form)
    if not len(corpus):
        raise ConfigError(f"no document in {', '.join(map(str, paths))}", _CURE)
    return corpus


def document_files(paths: Sequence[Path]) -> list[Path]:
    """Return the named files, and of folders those whose ending is known, by name. Raises ConfigError where there are
    none, or one twice: a document that is kept apart must not be trained on under another number."""
    found: dict[Path, Path] = {}
    for path in paths:
        with explained(f"read {path}", _CURE):
            inside = (
                sorted(one for one in path.iterdir() if one.suffix.lower() in _READERS) if path.is_dir() else [path]
            )
        for one in inside:
            if one.resolve() in found:
                raise ConfigError(f"{one} is named twice", "name each file once in `text.files`")
            found[one.resolve()] = one
    if not found:
        raise ConfigError(f"no file of documents in {', '.join(map(str, paths))}", _CURE)
    return list(found.values())


def _indexed(path: Path, form: TextFormat, cache: Path) -> IndexedFile:
    with explained(f"read {path}", _CURE):
        state = FileState.of(path.stat(), path)
    facts = [1, str(path.resolve()), state.size, state.changed, form.field, form.separator]
    kept = cache / f"{sha256_hex(canonical_json(facts))}.npz"
    try:
        with np.load(kept) as data:
            return IndexedFile(path, state, str(data["sha256"]), data["starts"], data["ends"])
    except (OSError, EOFError, ValueError, KeyError, BadZipFile):
        if state.size >= _SLOW_BYTES:
            log.info("reading %s, %.0f MB", path, state.size / 1e6)
    indexed = index_file(path, form)
    out = io.BytesIO()
    np.savez(out, sha256=np.array(indexed.sha256), starts=indexed.starts, ends=indexed.ends)
    with explained(f"write {kept}", "free the disk"):
        write_atomic(kept, out.getvalue())
    return indexed


class _Lines:
    """The lines of a file with where they lie, and the digest of what was read."""

    def __init__(self, file: BufferedReader, path: Path) -> None:
        self._file, self._path = file, path
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
        return f"{self._path}, line {self.number}"

    def too_long(self) -> ConfigError:
        what = f"{self.where}: a document of more than {MAX_DOCUMENT_BYTES >> 20} MiB"
        return ConfigError(what, "cut it into several")


def _json_lines(lines: _Lines, form: TextFormat) -> Iterator[tuple[int, int]]:
    for line in lines:
        if line.strip() and _json_text(line, form.field, lines.where).strip():
            yield lines.at, lines.at + len(line)


def _plain_documents(lines: _Lines, form: TextFormat) -> Iterator[tuple[int, int]]:
    separator = None if form.separator is None else form.separator.encode().strip()
    start, filled = 0, False
    for line in lines:
        if separator is not None and line.strip() == separator:
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


def _is_json(path: Path) -> bool:
    return path.suffix.lower() in _JSON


_READERS: dict[str, Callable[[_Lines, TextFormat], Iterator[tuple[int, int]]]] = {
    **dict.fromkeys(_JSON, _json_lines),
    **dict.fromkeys(_PLAIN, _plain_documents),
}


# What all workers of a text run must have alike.


def text_corpus(config: TextTaskConfig, home: Path) -> Corpus:
    """Open the documents that a worker's configuration names. Raises ConfigError."""
    corpus = open_corpus(config.files, TextFormat(config.field, config.separator), home / "corpus")
    if len(corpus) <= config.heldout:
        raise ConfigError(
            f"{len(corpus)} documents, of which {config.heldout} are kept apart", "lower `text.heldout`, or give more"
        )
    return corpus


def data_digest(corpus: Corpus, config: TextTaskConfig, model: Path) -> str:
    """Return the SHA-256 (hex) of a run's data: the documents and their order, which of them are kept apart, and the
    tokenizer of the model in that folder."""
    tokenizer = {name: file_sha256(model / name) for name in TOKENIZER_FILES if (model / name).is_file()}
    facts = {
        "files": list(corpus.sha256), "field": config.field, "separator": config.separator, "heldout": config.heldout,
        "tokenizer": tokenizer,
    }  # fmt: skip
    return sha256_hex(canonical_json(facts))


def check_data(run: DilocoRun, digest: str) -> None:
    """Raise ConfigError unless this worker's documents and tokenizer are those of the run."""
    if run.assigned:
        raise ConfigError(f"the workers of {run.name} train on files that are assigned", "set `assigned` to false")
    if run.data is None:
        raise ConfigError(
            f"{run.name} does not say what its workers train on: each might have other documents",
            f'set `data` to "{digest}", which is what this worker has',
        )
    if run.data != digest:
        raise ConfigError(
            f"this worker's documents and tokenizer are {digest[:16]}…, those of {run.name} {run.data[:16]}…",
            "use the same files in the same order, `field`, `separator`, `heldout` and model as the other workers",
        )


# The stream: documents epoch by epoch, in an order that the run's seed decides.


class Documents(Protocol):
    """Documents by number, from 0."""

    def __len__(self) -> int: ...

    def text(self, number: int) -> str: ...


@dataclass(frozen=True)
class Cursor:
    """`position`: documents of the stream that were passed, all epochs together. `offset`: the token of the document
    there that is seen next; 0 where it was not begun."""

    position: int = 0
    offset: int = 0


class TextStream:
    """The stream of the first `count` documents, from which a worker takes those it owns.

    A document longer than `longest` tokens, or than what is left of a batch, is cut. The next piece begins with the
    last token of the one before, so each token but a document's first is predicted exactly once an epoch."""

    def __init__(
        self, documents: Documents, count: int, encode: Callable[[str], tuple[int, ...]], seed: bytes, longest: int
    ) -> None:
        self._documents, self._count, self._encode = documents, count, encode
        self._seed, self._longest = seed, longest
        self._held: tuple[int, tuple[int, ...]] | None = None
        self.cursor = Cursor()

    def document(self, position: int) -> int:
        """Return the number of the document at a position of the stream."""
        epoch, at = divmod(position, self._count)
        return shuffled(self._seed, epoch, at, self._count)

    def skip_to(self, position: int) -> None:
        """Pass over what is before `position`; do nothing where that is behind."""
        if position > self.cursor.position:
            self.cursor = Cursor(position)

    def take(self, tokens: int, owns: Callable[[int], bool]) -> list[tuple[int, ...]]:
        """Return the next pieces of two tokens or more, `tokens` together or one less; fewer where a whole epoch has no
        more that the worker owns (`owns`, by position)."""
        pieces: list[tuple[int, ...]] = []
        position, offset, passed = self.cursor.position, self.cursor.offset, 0
        while tokens >= 2 and passed < self._count:
            if not offset and not owns(position):
                position, passed = position + 1, passed + 1
                continue
            document = self._tokens(position)
            piece = document[offset : offset + min(tokens, self._longest)]
            if len(piece) >= 2:
                pieces.append(piece)
                tokens, passed = tokens - len(piece), 0
            if offset + len(piece) < len(document):
                offset += len(piece) - 1
            else:
                position, offset, passed = position + 1, 0, passed + 1
        self.cursor = Cursor(position, offset)
        return pieces

    def _tokens(self, position: int) -> tuple[int, ...]:
        if self._held is None or self._held[0] != position:
            self._held = position, self._encode(self._documents.text(self.document(position)))
        return self._held[1]
