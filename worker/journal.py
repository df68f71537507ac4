"""The worker's journal: every finished file is on disk before anybody hears of it, and every finished row of the files
under way.

An entry is two files: the rollout file, then a small JSON note whose existence makes the entry. Both are synced, so a
kill leaves either the whole entry or none. Rows are lines that are appended as they finish: a kill costs the rows that
the engine was computing, the end of the machine also those of its last second.
"""

import hashlib
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from pydantic import TypeAdapter

from engines.base import Completion, Generator, Request, Sampling
from protocol.api.work import UNSIGNED, SubmissionRequest, UploadReceipt
from protocol.encoding import HEX_RECORD, Bytes32
from protocol.errors import IntegrityError, first_line
from protocol.files import write_atomic
from protocol.seeds import Work
from worker.produce import Produced

log = logging.getLogger("muster.worker")


@dataclass(frozen=True)
class JournalEntry:
    """A finished file, with the service's receipt once the bucket has it. `overdue`: the receipt's promise is over."""

    __pydantic_config__ = HEX_RECORD

    counter: int
    step: int
    step_seed: Bytes32
    manifest: Bytes32
    sha256: Bytes32
    root: Bytes32
    units: int
    rows: int
    receipt: UploadReceipt | None = None
    overdue: bool = False

    def submission(self, size: int) -> SubmissionRequest:
        """Return what the node is to sign to submit the file, of `size` bytes."""
        return SubmissionRequest(
            step=self.step,
            counter=self.counter,
            units=self.units,
            rows=self.rows,
            root=self.root.hex(),
            sha256=self.sha256.hex(),
            size=size,
            seed=self.step_seed.hex(),
            signature=UNSIGNED,
        )

    @property
    def stem(self) -> str:
        return f"{self.counter:08d}-{self.sha256.hex()[:16]}"


_ENTRY = TypeAdapter(JournalEntry)
_SYNC_SECONDS = 1.0


class FinishedRows(Generator):
    """An engine for one file: what it completed for the file before is in `lines`, and what it completes is appended.
    Lines that were not written whole, or by a version that wrote others, are ignored."""

    def __init__(self, engine: Generator, lines: IO[bytes]) -> None:
        self._engine, self._lines, self.info = engine, lines, engine.info
        self._known, self._synced = dict[str, Completion](), time.monotonic()
        whole = 0
        for line in lines:
            check, _, text = line.partition(b" ")
            if check != _check(text):
                break
            try:
                self._known |= _ROW.validate_json(text)
            except ValueError:
                break
            whole += len(line)
        lines.seek(whole)
        lines.truncate()

    def load(self, weights: Path) -> None:
        self._engine.load(weights)

    def stream(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        names = [_name(request, sampling) for request in requests]
        missing = [index for index, name in enumerate(names) if name not in self._known]
        for index, name in enumerate(names):
            if name in self._known:
                yield index, self._known[name]
        for number, completion in self._engine.stream([requests[index] for index in missing], sampling):
            self._append(names[missing[number]], completion)
            yield missing[number], completion

    def _append(self, name: str, completion: Completion) -> None:
        text = _ROW.dump_json({name: completion}) + b"\n"
        self._lines.write(_check(text) + b" " + text)
        self._lines.flush()
        if time.monotonic() >= self._synced + _SYNC_SECONDS:
            os.fsync(self._lines.fileno())
            self._synced = time.monotonic()


_ROW = TypeAdapter(dict[str, Completion], config=HEX_RECORD)


def _name(request: Request, sampling: Sampling) -> str:
    """Return what names a request and everything that its completion follows from, besides the model."""
    return hashlib.sha256(repr((request, sampling)).encode()).hexdigest()


def _check(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest()[:16].encode()


class Journal:
    """Entries under `folder`, by counter. One process at a time; thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        self.entries: dict[str, JournalEntry] = {}
        for note in sorted(folder.glob("*.json")):
            try:
                entry = _ENTRY.validate_json(note.read_bytes())
                self.entries[entry.stem] = entry
            except (OSError, ValueError) as error:
                log.warning("journal note %s is damaged (%s): its file will be made again", note, first_line(error))
                note.rename(note.with_suffix(".damaged"))

    def all(self) -> list[JournalEntry]:
        with self._lock:
            return [self.entries[stem] for stem in sorted(self.entries)]

    @contextmanager
    def rows(self, work: Work, engine: Generator, sampling: Sampling) -> Iterator[Generator]:
        """Return an engine for one file that keeps its finished rows until the file is an entry."""
        path = self._folder / f"{work.id.counter:08d}-{_digest(work, engine)}.rows"
        for other in self._folder.glob(f"{work.id.counter:08d}-*.rows"):
            if other != path:
                other.unlink()
        path.touch()
        with path.open("r+b") as lines:
            yield FinishedRows(engine, lines)

    def add(self, work: Work, produced: Produced) -> JournalEntry:
        done = produced.commitment
        identity = (work.id.counter, work.id.step, work.step_seed, work.manifest)
        entry = JournalEntry(*identity, done.sha256, done.root, done.units, done.rows)
        write_atomic(self._data(entry), produced.data)
        self._note(entry)
        self._forget_rows(entry.counter)
        return entry

    def change(self, entry: JournalEntry, **changes: Any) -> JournalEntry:
        changed = replace(entry, **changes)
        self._note(changed)
        return changed

    def data(self, entry: JournalEntry) -> bytes:
        """Return the file's bytes. Raises IntegrityError, and removes the entry, if the disk lost or changed them."""
        try:
            data = self._data(entry).read_bytes()
        except OSError:
            data = b""
        if hashlib.sha256(data).digest() != entry.sha256:
            self.forget(entry)
            raise IntegrityError(f"the journal's file {self._data(entry)} is damaged", "it will be made again")
        return data

    def forget(self, entry: JournalEntry) -> None:
        """Remove an entry, note first."""
        with self._lock:
            self.entries.pop(entry.stem, None)
        (self._folder / f"{entry.stem}.json").unlink(missing_ok=True)
        self._data(entry).unlink(missing_ok=True)

    def prune(self, before: int) -> None:
        """Drop entries with a counter below `before`, whose outcome is final."""
        for entry in self.all():
            if entry.counter < before:
                self.forget(entry)
        for path in self._folder.glob("*.rows"):
            if int(path.name.partition("-")[0]) < before:
                path.unlink(missing_ok=True)

    def _forget_rows(self, counter: int) -> None:
        for path in self._folder.glob(f"{counter:08d}-*.rows"):
            path.unlink(missing_ok=True)

    def _data(self, entry: JournalEntry) -> Path:
        return self._folder / f"{entry.stem}.parquet"

    def _note(self, entry: JournalEntry) -> None:
        write_atomic(self._folder / f"{entry.stem}.json", _ENTRY.dump_json(entry))
        with self._lock:
            self.entries[entry.stem] = entry


def _digest(work: Work, engine: Generator) -> str:
    """Return what names a file's work, its weights and the arithmetic of its rows."""
    return hashlib.sha256(repr((work, engine.info)).encode()).hexdigest()[:16]
