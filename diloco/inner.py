"""What a worker does between two outer steps: whose data is whose by a public rule, the interface of inner tasks
(diloco/tasks.py has them), and the documents of a text run."""

import hashlib
import stat
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from diloco.codec import Tensors
from diloco.config import DilocoRun, TextTaskConfig
from protocol.encoding import canonical_json, parse_json, sha256_hex, tagged_hash
from protocol.errors import ConfigError, MusterError
from protocol.files import explained, file_sha256
from protocol.models import TOKENIZER_FILES

MAX_ITEMS = 512  # files that one outer step may train on
MAX_DOCUMENT_BYTES = 16 << 20
POSITION = "documents"  # the metric by which workers report how many documents of the stream they have passed
_TAG = "muster.diloco.partition.v1"
_ROUNDS = 6
_HINT = "check `text.files`"


# Whose data is whose


def owner(seed: bytes, item: bytes, workers: Iterable[str]) -> str:
    """Return the worker whose hash with the item is highest (rendezvous hashing): when members change, an item moves
    only from a worker that left or to one that joined. `seed`: 32 bytes; `item`: a document's position in the stream of
    all epochs as 32 bytes. Raises ValueError for no workers."""
    return max(workers, key=lambda worker: (tagged_hash(_TAG, seed, item, worker), worker.lower()))


@dataclass(frozen=True)
class Partition:
    """How the files of one attempt at an outer step are split: `items` (hex) among `members`, by a `seed` (hex)."""

    seed: str
    items: tuple[str, ...]
    members: tuple[str, ...]

    @cached_property
    def split(self) -> dict[str, tuple[bytes, ...]]:
        """Each member's files, whose numbers differ by one at most: files and members are ordered by their hashes with
        the seed and assigned round-robin. Repeated ones count once."""
        seed = bytes.fromhex(self.seed)
        ranked = sorted(set(self.members), key=lambda worker: (tagged_hash(_TAG, seed, seed, worker), worker.lower()))
        ordered = sorted(set(map(bytes.fromhex, self.items)), key=lambda item: tagged_hash(_TAG, seed, item))
        return {worker: tuple(ordered[at :: len(ranked)]) for at, worker in enumerate(ranked)}

    def of(self, worker: str) -> tuple[str, ...]:
        """Return the worker's files (hex, ascending); none for one that is no member."""
        return tuple(sorted(item.hex() for item in self.split.get(worker, ())))


def shuffled(seed: bytes, epoch: int, position: int, count: int) -> int:
    """Return which of `count` documents is at position `at` of an epoch. Every epoch is a new permutation. A Feistel
    network over the next power of four, repeated until the result is a document, so that nobody holds the order in
    memory."""
    if not 0 <= position < count:
        raise ValueError(f"position {position} of {count} documents")
    bits = ((count - 1).bit_length() + 1) // 2
    mask, key = (1 << bits) - 1, seed + epoch.to_bytes(8, "big")
    while True:
        left, right = position >> bits, position & mask
        for round_ in range(_ROUNDS):
            digest = hashlib.sha256(key + bytes([round_]) + right.to_bytes(8, "big")).digest()
            left, right = right, left ^ (int.from_bytes(digest[:8], "big") & mask)
        position = left << bits | right
        if position < count:
            return position


@dataclass(frozen=True)
class DataShare:
    """Which of a run's data is `worker`'s in outer step `step`, while `members` take part. `seed`: 32 bytes (hex).
    `files`: those of the step's files that it trains on. `positions`: documents of the stream that the makers of the
    newest outer step had passed, ascending, if this worker is none of them."""

    seed: str
    worker: str
    members: tuple[str, ...]
    files: tuple[bytes, ...] = ()
    step: int = 0
    positions: tuple[int, ...] = ()

    @property
    def position(self) -> int:
        """Where in the stream this worker begins at least: the lower median of `positions`, which no minority moves; 0
        where it goes on from its own."""
        return self.positions[(len(self.positions) - 1) // 2] if self.positions else 0

    def owns(self, position: int) -> bool:
        """Return whether the document at a position of the stream is this worker's."""
        return owner(bytes.fromhex(self.seed), position.to_bytes(32, "big"), self.members) == self.worker


# The interface of inner tasks


class FilesUnusableError(MusterError):
    """A worker cannot train on `items`, files of its share; `for_good`: however long it waits."""

    def __init__(self, items: Sequence[bytes], why: str, for_good: bool) -> None:
        more = f" and {len(items) - 1} more" if len(items) > 1 else ""
        super().__init__(f"file {items[0].hex()[:16]}…{more} cannot be used: {why}")
        self.items, self.for_good = tuple(items), for_good


class InnerTask(Protocol):
    """Weights, an optimizer and a position in the data. One thread uses it."""

    def weights(self) -> Tensors:
        """Return a copy, float32."""

    def load(self, weights: Tensors) -> None:
        """Continue from these weights; optimizer and position stay."""

    def train(self, share: DataShare, number: int) -> int:
        """Take inner step `number` of an outer step; return how many tokens it was trained on, 0 if there is nothing
        left to train on until the next outer step. Raises FilesUnusableError."""

    def metrics(self) -> Mapping[str, float]:
        """Return metrics of the inner steps since `load` or `restore`."""

    def save(self, folder: Path) -> None:
        """Begin to write everything that continuing exactly here needs into a new folder; what happens meanwhile
        changes nothing of it. Nothing else is saved or restored before `finish_save`. Raises MusterError."""

    def saved(self) -> bool:
        """Return whether `finish_save` need not wait any longer."""

    def finish_save(self) -> None:
        """Return once what `save` began is written. Raises MusterError."""

    def restore(self, folder: Path) -> None:
        """Restore what `save` wrote. Raises IntegrityError where it is damaged."""


# The documents of a text run


class Corpus:
    """The documents of files of JSON lines, numbered from 0 in the files' order; blank lines are none. `field` holds
    their text; `hashes` has the SHA-256 of each file (hex). Raises ConfigError for a document that is too long, and a
    file that is no plain file or changes meanwhile."""

    def __init__(self, paths: Sequence[Path], field: str) -> None:
        self._field, self._paths = field, tuple(paths)
        self._states = [_state_of(path) for path in paths]
        indexed = [_index(path) for path in paths]
        self.hashes = [digest for digest, _ in indexed]
        self._starts = [starts for _, starts in indexed]  # of each file, where each document begins
        self._firsts = np.cumsum([0, *map(len, self._starts)])
        for which in range(len(paths)):
            self._check(which)

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def text(self, number: int) -> str:
        """Return document `number`. Raises ConfigError for what is none, and where its file was changed since."""
        which = int(np.searchsorted(self._firsts, number, side="right")) - 1
        start = int(self._starts[which][number - int(self._firsts[which])])
        self._check(which)
        with explained(f"read {self._paths[which]}", _HINT), self._paths[which].open("rb") as stream:
            stream.seek(start)
            line = stream.readline(MAX_DOCUMENT_BYTES + 1)
        where = f"{self._paths[which]}, byte {start}"
        try:
            row = parse_json(line)
        except ValueError as error:
            raise ConfigError(f"{where}: it is not JSON: {error}", "write one JSON object a line") from None
        text = row.get(self._field) if isinstance(row, dict) else None
        if not isinstance(text, str):
            what = f"{where}: no text in field `{self._field}`"
            raise ConfigError(what, "name the field that holds it: `text.field`")
        return text

    def _check(self, which: int) -> None:
        if _state_of(self._paths[which]) != self._states[which]:
            what = f"{self._paths[which]} was changed since this worker began to read it"
            raise ConfigError(what, "put the file back that this run began with")


def _index(path: Path) -> tuple[str, NDArray[np.uint64]]:
    """Return a file's SHA-256 (hex), and where each line begins that is not blank. Raises ConfigError."""
    digest, starts, end = hashlib.sha256(), array("Q"), 0
    with explained(f"read {path}", _HINT), path.open("rb") as file:
        while line := file.readline(MAX_DOCUMENT_BYTES + 1):
            if len(line) > MAX_DOCUMENT_BYTES:
                what = f"{path}, byte {end}: a document of more than {MAX_DOCUMENT_BYTES >> 20} MiB"
                raise ConfigError(what, "cut it into several")
            digest.update(line)
            if line.strip():
                starts.append(end)
            end += len(line)
    return digest.hexdigest(), np.frombuffer(starts, np.uint64)


def _state_of(path: Path) -> tuple[int, int]:
    """Return size and time of change, by which a file counts as unchanged. Raises ConfigError for a pipe or a device,
    which cannot be read twice."""
    with explained(f"read {path}", _HINT):
        info = path.stat()
    if not stat.S_ISREG(info.st_mode):
        raise ConfigError(f"{path} is not a regular file", _HINT)
    return info.st_size, info.st_mtime_ns


def document_files(paths: Sequence[Path]) -> list[Path]:
    """Return the named files, and of folders those of JSON lines, by name. Raises ConfigError where there are none, or
    one twice: a document that is kept apart must not be trained on under another number."""
    files: dict[Path, Path] = {}
    for path in paths:
        inside = [path]
        with explained(f"read {path}", _HINT):
            if path.is_dir():
                inside = sorted(file for file in path.iterdir() if file.suffix in (".jsonl", ".ndjson"))
        for file in inside:
            if file.resolve() in files:
                raise ConfigError(f"{file} is named twice", "name each file once in `text.files`")
            files[file.resolve()] = file
    if not files:
        raise ConfigError(f"no file of JSON lines in {', '.join(map(str, paths))}", _HINT)
    return list(files.values())


def text_corpus(config: TextTaskConfig) -> Corpus:
    """Open the documents that a worker's configuration names. Raises ConfigError."""
    corpus = Corpus(document_files(config.files), config.field)
    if len(corpus) <= config.heldout:
        what = f"{len(corpus)} documents, of which {config.heldout} are kept apart"
        raise ConfigError(what, "lower `text.heldout`, or give more")
    return corpus


def data_digest(corpus: Corpus, config: TextTaskConfig, model: Path) -> str:
    """Return the SHA-256 (hex) of what all workers of a text run must have alike: the documents and their order, which
    of them are kept apart, and the tokenizer of the model in that folder."""
    tokenizer = {name: file_sha256(model / name) for name in TOKENIZER_FILES if (model / name).is_file()}
    facts = {"files": corpus.hashes, "field": config.field, "heldout": config.heldout, "tokenizer": tokenizer}
    return sha256_hex(canonical_json(facts))


def check_data(run: DilocoRun, digest: str) -> None:
    """Raise ConfigError unless this worker's documents and tokenizer are those of the run."""
    if run.assigned:
        raise ConfigError(f"the workers of {run.name} train on files that are assigned", "set `assigned` to false")
    if run.data is None:
        what = f"{run.name} does not say what its workers train on: each might have other documents"
        raise ConfigError(what, f'set `data` to "{digest}", which is what this worker has')
    if run.data != digest:
        raise ConfigError(
            f"this worker's documents and tokenizer are {digest[:16]}…, those of {run.name} {run.data[:16]}…",
            "use the same files in the same order, `field`, `heldout` and model as the other workers",
        )


# The stream: documents epoch by epoch, in an order that the run's seed decides


@dataclass(frozen=True)
class Cursor:
    """`position`: documents of the stream that were passed, all epochs together. `offset`: the token of the document
    there that is seen next; 0 where it was not begun."""

    position: int = 0
    offset: int = 0


class TextStream:
    """The stream of the first `count` documents, whose text `text` returns by number. A document longer than `longest`
    tokens, or than what is left of a batch, is cut. The next piece begins with the last token of the one before, so
    each token but a document's first is predicted exactly once an epoch."""

    def __init__(
        self,
        text: Callable[[int], str],
        count: int,
        encode: Callable[[str], tuple[int, ...]],
        seed: bytes,
        longest: int,
    ) -> None:
        self._text, self._count, self._encode = text, count, encode
        self._seed, self._longest = seed, longest
        self._cached: tuple[int, tuple[int, ...]] = -1, ()  # position and tokens of the newest document

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
        if self._cached[0] != position:
            number = shuffled(self._seed, *divmod(position, self._count), self._count)
            self._cached = position, self._encode(self._text(number))
        return self._cached[1]
