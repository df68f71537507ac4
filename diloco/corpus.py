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
from typing import NamedTuple, Protocol
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
_HINT = "check `text.files`"


class TextFormat(NamedTuple):
    """`field`: of a JSON line, that holds the text. `separator`: the line that ends a document of a plain file; None: a
    plain file is one document."""

    field: str = "text"
    separator: str | None = None


@dataclass(frozen=True)
class IndexedFile:
    """`state`: size and time of change when it was read; `sha256`: of all its bytes (hex). Document k lies at bytes
    `starts[k]` to `ends[k]`."""

    path: Path
    state: tuple[int, int]
    sha256: str
    starts: NDArray[np.uint64]
    ends: NDArray[np.uint64]


def _state_of(info: os.stat_result, path: Path) -> tuple[int, int]:
    """Return size and time of change, by which a file counts as unchanged. Raises ConfigError for a pipe or a device,
    which cannot be read twice."""
    if not stat.S_ISREG(info.st_mode):
        raise ConfigError(f"{path} is not a regular file", _HINT)
    return info.st_size, info.st_mtime_ns


def index_file(path: Path, form: TextFormat) -> IndexedFile:
    """Index a file in one pass. Documents without any text are left out.

    Raises ConfigError that names file and line for what is not text, or too long, and for a file that changes
    meanwhile."""
    digest, bounds = hashlib.sha256(), array("Q")
    with explained(f"read {path}", _HINT):
        state = _state_of(path.stat(), path)
        with path.open("rb") as file:
            for span in _documents(file, path, form, digest.update):
                bounds.extend(span)
            if _state_of(os.fstat(file.fileno()), path) != state:
                raise ConfigError(f"{path} changed while it was read", "start again once nothing writes to it")
    spans = np.frombuffer(bounds, np.uint64).reshape(-1, 2)
    return IndexedFile(path, state, digest.hexdigest(), spans[:, 0].copy(), spans[:, 1].copy())


def _documents(
    file: BufferedReader, path: Path, form: TextFormat, note: Callable[[bytes], None]
) -> Iterator[tuple[int, int]]:
    """Yield where each document begins and ends; `note` every line. A line of JSON is one, a plain file ends them by a
    separator."""
    json_lines, separator = path.suffix.lower() in _JSON, (form.separator or "").encode().strip()
    start = end = number = 0
    filled = False
    while line := file.readline(MAX_DOCUMENT_BYTES + 1):
        number, begin, end = number + 1, end, end + len(line)
        where = f"{path}, line {number}"
        if end - (begin if json_lines else start) > MAX_DOCUMENT_BYTES and (json_lines or line.strip() != separator):
            raise ConfigError(f"{where}: a document of more than {MAX_DOCUMENT_BYTES >> 20} MiB", "cut it into several")
        note(line)
        if json_lines:
            if line.strip() and _json_text(line, form.field, where).strip():
                yield begin, end
        elif form.separator is not None and line.strip() == separator:
            if filled:
                yield start, begin
            start, filled = end, False
        else:
            filled = bool(_plain_text(line, where).strip()) or filled
    if filled:
        yield start, end


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
        hint = "put the file back that this run began with"
        with explained(f"read {file.path}", hint), file.path.open("rb") as stream:
            if _state_of(os.fstat(stream.fileno()), file.path) != file.state:
                raise ConfigError(f"{file.path} was changed since this worker read it", hint)
            stream.seek(start)
            data = stream.read(end - start)
        where, json_lines = f"{file.path}, bytes {start} to {end}", file.path.suffix.lower() in _JSON
        return _json_text(data, self._form.field, where) if json_lines else _plain_text(data, where)


def open_corpus(paths: Sequence[Path], form: TextFormat, cache: Path) -> Corpus:
    """Open the documents of files and folders. Files whose size and time of change are those in `cache` are not read
    again. Raises ConfigError, also where there is no document at all."""
    corpus = Corpus([_indexed(path, form, cache) for path in document_files(paths)], form)
    if not len(corpus):
        raise ConfigError(f"no document in {', '.join(map(str, paths))}", _HINT)
    return corpus


def document_files(paths: Sequence[Path]) -> list[Path]:
    """Return the named files, and of folders those whose ending is known, by name. Raises ConfigError where there are
    none, or one twice: a document that is kept apart must not be trained on under another number."""
    files: dict[Path, Path] = {}
    for path in paths:
        with explained(f"read {path}", _HINT):
            inside = sorted(path.iterdir()) if path.is_dir() else [path]
        for file in inside:
            if file.suffix.lower() not in _JSON + _PLAIN:
                if file == path:
                    kinds = ", ".join(sorted(_JSON + _PLAIN))
                    raise ConfigError(f"{path}: its name ends in none of {kinds}", "write it as JSON lines")
                continue
            if file.resolve() in files:
                raise ConfigError(f"{file} is named twice", "name each file once in `text.files`")
            files[file.resolve()] = file
    if not files:
        raise ConfigError(f"no file of documents in {', '.join(map(str, paths))}", _HINT)
    return list(files.values())


def _indexed(path: Path, form: TextFormat, cache: Path) -> IndexedFile:
    with explained(f"read {path}", _HINT):
        state = _state_of(path.stat(), path)
    kept = cache / f"{sha256_hex(canonical_json([1, str(path.resolve()), *state, *form]))}.npz"
    try:
        with np.load(kept) as data:
            return IndexedFile(path, state, str(data["sha256"]), data["starts"], data["ends"])
    except (OSError, EOFError, ValueError, KeyError, BadZipFile):
        if state[0] >= _SLOW_BYTES:
            log.info("reading %s, %.0f MB", path, state[0] / 1e6)
    indexed, out = index_file(path, form), io.BytesIO()
    np.savez(out, sha256=np.array(indexed.sha256), starts=indexed.starts, ends=indexed.ends)
    with explained(f"write {kept}", "free the disk"):
        write_atomic(kept, out.getvalue())
    return indexed


def _json_text(data: bytes, field: str, where: str) -> str:
    try:
        row = parse_json(data)
    except ValueError as error:
        raise ConfigError(f"{where}: it is not JSON: {error}", "write one JSON object a line") from None
    text = row.get(field) if isinstance(row, dict) else None
    if not isinstance(text, str):
        raise ConfigError(f"{where}: no text in field `{field}`", "name the field that holds it in `text.field`")
    return text


def _plain_text(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: it is not UTF-8 text", "write the file in UTF-8") from None


# ---- What all workers of a text run must have alike


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


# ---- The stream: documents epoch by epoch, in an order that the run's seed decides


class Documents(Protocol):
    """Documents by number, from 0."""

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
        self._cached: tuple[int, tuple[int, ...]] | None = None  # position and tokens of the newest document

    def take(self, cursor: Cursor, tokens: int, owns: Callable[[int], bool]) -> tuple[list[tuple[int, ...]], Cursor]:
        """Return the next pieces of two tokens or more, `tokens` together or one less, and where they end; fewer where
        a whole epoch has no more that the worker owns (`owns`, by position)."""
        pieces: list[tuple[int, ...]] = []
        position, offset, passed = cursor.position, cursor.offset, 0
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
        return pieces, Cursor(position, offset)

    def _tokens(self, position: int) -> tuple[int, ...]:
        if self._cached is None or self._cached[0] != position:
            epoch, at = divmod(position, self._count)
            number = shuffled(self._seed, epoch, at, self._count)
            self._cached = position, self._encode(self._documents.text(number))
        return self._cached[1]
