"""The documents of a text run: files of JSON lines, and the stream of tokens that a worker trains on."""

import hashlib
import os
import stat
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from diloco.config import DilocoRun, TextTaskConfig
from diloco.partition import shuffled
from protocol.encoding import canonical_json, parse_json, sha256_hex
from protocol.errors import ConfigError
from protocol.files import explained, file_sha256
from protocol.models import TOKENIZER_FILES

MAX_DOCUMENT_BYTES = 16 << 20
_HINT = "check `text.files`"


@dataclass(frozen=True)
class TextFile:
    """A file of JSON lines. `state`: its size and time of change; `sha256`: of all its bytes (hex); `starts`: where
    each line begins that is not blank."""

    path: Path
    state: tuple[int, int]
    sha256: str
    starts: NDArray[np.uint64]


def _state_of(info: os.stat_result, path: Path) -> tuple[int, int]:
    """Return size and time of change, by which a file counts as unchanged. Raises ConfigError for a pipe or a device,
    which cannot be read twice."""
    if not stat.S_ISREG(info.st_mode):
        raise ConfigError(f"{path} is not a regular file", _HINT)
    return info.st_size, info.st_mtime_ns


def index_file(path: Path) -> TextFile:
    """Index a file in one pass. Raises ConfigError for a line that is too long, and a file that changes meanwhile."""
    digest, starts, end = hashlib.sha256(), array("Q"), 0
    with explained(f"read {path}", _HINT):
        state = _state_of(path.stat(), path)
        with path.open("rb") as file:
            while line := file.readline(MAX_DOCUMENT_BYTES + 1):
                if len(line) > MAX_DOCUMENT_BYTES:
                    what = f"{path}, byte {end}: a document of more than {MAX_DOCUMENT_BYTES >> 20} MiB"
                    raise ConfigError(what, "cut it into several")
                digest.update(line)
                if line.strip():
                    starts.append(end)
                end += len(line)
            if _state_of(os.fstat(file.fileno()), path) != state:
                raise ConfigError(f"{path} changed while it was read", "start again once nothing writes to it")
    return TextFile(path, state, digest.hexdigest(), np.frombuffer(starts, np.uint64))


class Corpus:
    """The documents of all files, numbered from 0 in the files' order. `field` holds their text."""

    def __init__(self, files: Sequence[TextFile], field: str) -> None:
        self._files, self._field = tuple(files), field
        self._firsts = np.cumsum([0, *(len(file.starts) for file in files)])

    def __len__(self) -> int:
        return int(self._firsts[-1])

    @property
    def sha256(self) -> tuple[str, ...]:
        """Hash of each file (hex)."""
        return tuple(file.sha256 for file in self._files)

    def text(self, number: int) -> str:
        """Return document `number`. Raises ConfigError for what is none, and where its file was changed since."""
        which = int(np.searchsorted(self._firsts, number, side="right")) - 1
        file = self._files[which]
        start, hint = int(file.starts[number - int(self._firsts[which])]), "put the file back that this run began with"
        with explained(f"read {file.path}", hint), file.path.open("rb") as stream:
            if _state_of(os.fstat(stream.fileno()), file.path) != file.state:
                raise ConfigError(f"{file.path} was changed since this worker read it", hint)
            stream.seek(start)
            line = stream.readline(MAX_DOCUMENT_BYTES + 1)
        where = f"{file.path}, byte {start}"
        try:
            row = parse_json(line)
        except ValueError as error:
            raise ConfigError(f"{where}: it is not JSON: {error}", "write one JSON object a line") from None
        text = row.get(self._field) if isinstance(row, dict) else None
        if not isinstance(text, str):
            raise ConfigError(
                f"{where}: no text in field `{self._field}`", "name the field that holds it: `text.field`"
            )
        return text


def document_files(paths: Sequence[Path]) -> list[Path]:
    """Return the named files, and of folders those of JSON lines, by name. Raises ConfigError where there are none, or
    one twice: a document that is kept apart must not be trained on under another number."""
    files: dict[Path, Path] = {}
    for path in paths:
        with explained(f"read {path}", _HINT):
            inside = sorted(path.iterdir()) if path.is_dir() else [path]
        for file in inside:
            if path.is_dir() and file.suffix not in (".jsonl", ".ndjson"):
                continue
            if file.resolve() in files:
                raise ConfigError(f"{file} is named twice", "name each file once in `text.files`")
            files[file.resolve()] = file
    if not files:
        raise ConfigError(f"no file of JSON lines in {', '.join(map(str, paths))}", _HINT)
    return list(files.values())


def text_corpus(config: TextTaskConfig) -> Corpus:
    """Open the documents that a worker's configuration names. Raises ConfigError."""
    corpus = Corpus([index_file(path) for path in document_files(config.files)], config.field)
    if len(corpus) <= config.heldout:
        raise ConfigError(
            f"{len(corpus)} documents, of which {config.heldout} are kept apart", "lower `text.heldout`, or give more"
        )
    return corpus


# What all workers of a text run must have alike


def data_digest(corpus: Corpus, config: TextTaskConfig, model: Path) -> str:
    """Return the SHA-256 (hex) of a run's data: the documents and their order, which of them are kept apart, and the
    tokenizer of the model in that folder."""
    tokenizer = {name: file_sha256(model / name) for name in TOKENIZER_FILES if (model / name).is_file()}
    facts = {
        "files": list(corpus.sha256), "field": config.field, "heldout": config.heldout, "tokenizer": tokenizer
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
            "use the same files in the same order, `field`, `heldout` and model as the other workers",
        )


# The stream: documents epoch by epoch, in an order that the run's seed decides


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
