"""The worker's journal: every finished file is on disk before anybody hears of it.

An entry is two files: the rollout file, then a small JSON note whose existence makes the entry. Both are synced, so a
kill leaves either the whole entry or none.
"""

import hashlib
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

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


class Journal:
    """Entries under `folder`, by counter. One process at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
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
        return [self.entries[stem] for stem in sorted(self.entries)]

    def add(self, work: Work, produced: Produced) -> JournalEntry:
        done = produced.commitment
        place = (work.id.counter, work.id.step, work.step_seed, work.manifest)
        entry = JournalEntry(*place, done.sha256, done.root, done.units, done.rows)
        write_atomic(self._data(entry), produced.data)
        self._note(entry)
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
        self.entries.pop(entry.stem, None)
        (self._folder / f"{entry.stem}.json").unlink(missing_ok=True)
        self._data(entry).unlink(missing_ok=True)

    def prune(self, before: int) -> None:
        """Drop entries with a counter below `before`, whose outcome is final."""
        for entry in self.all():
            if entry.counter < before:
                self.forget(entry)

    def _data(self, entry: JournalEntry) -> Path:
        return self._folder / f"{entry.stem}.parquet"

    def _note(self, entry: JournalEntry) -> None:
        write_atomic(self._folder / f"{entry.stem}.json", _ENTRY.dump_json(entry))
        self.entries[entry.stem] = entry
