"""Says where a disputed file is that our seats had, and lets go of files whose outcome stands."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from chain.indexer.records import Submission
from chain.indexer.state import State
from chain.suite import Suite
from chain.transactions import Receipt
from protocol.encoding import canonical_json
from protocol.errors import IntegrityError
from protocol.files import write_atomic
from validator import selectors
from validator.config import KEPT
from validator.custody import needed, to_show
from validator.kept_files import FileName, FilePlace, KeptFiles
from validator.shelves import FileShelf
from validator.transaction_tasks import TransactionTasks

log = logging.getLogger("muster.validator")
_SWEEP_SECONDS = 30.0
_AT_ONCE = 8
"""Announcements under way."""


@dataclass(frozen=True)
class Holdings:
    """`files` that our seats may have to show, and the `shelf` on which they do; None: they cannot."""

    files: KeptFiles
    shelf: FileShelf | None

    def close(self) -> None:
        if self.shelf is not None:
            self.shelf.close()


class Custodian:
    """For the seats of `voters` (each with its contracts), in all pools. `home`: where it writes what
    `muster validator status` says of it."""

    def __init__(self, holdings: Holdings, voters: Mapping[str, Suite], home: Path) -> None:
        self._files, self._shelf = holdings.files, holdings.shelf
        self._voters, self._home = voters, home
        # Votes must not wait for a bucket that hangs, however many files are disputed.
        self._tasks = TransactionTasks(_AT_ONCE)
        self._announced: set[FilePlace] = set()
        self._mourned: set[FilePlace] = set()
        self._unwanted: set[FileName] = set()
        self._sweep_at = 0.0
        self._written = b""

    def forget(self) -> None:
        """After a reorganisation: what was announced may not be any more."""
        self._announced.clear()
        self._tasks.forget()

    def close(self) -> None:
        """Announce nothing more."""
        self._tasks.stop()

    def advance(self, state: State, now: int) -> None:
        """Start what is due."""
        seats = selectors.seats_of(state, self._voters)
        showing = tuple(to_show(state, seats))
        if self._shelf is not None:
            self._shelf.shown = frozenset(file.sha256 for file, _ in showing)
        for file, seat in showing:
            self._show(state, file, seat)
        if time.monotonic() >= self._sweep_at:
            self._sweep_at = time.monotonic() + _SWEEP_SECONDS
            self.sweep(state, now)

    def sweep(self, state: State, now: int) -> None:
        """Drop what is needed no more; what a reorganisation may have hidden for a moment, at the second look."""
        files = self._files.files
        unwanted = {(place, sha256) for place, sha256 in files if not needed(state, place, sha256, now)}
        for place, sha256 in unwanted & self._unwanted:
            self._files.drop(place, sha256)
        self._unwanted = unwanted
        self._report()

    def _show(self, state: State, file: Submission, seat: int) -> None:
        place = file.pool, file.sequence
        if not self._files.has(place, file.sha256) or self._shelf is None:
            return self._mourn(place)
        url, known = self._shelf.url(file.sha256), state.mirrors.get(place)
        if place in self._announced or (known is not None and known.seats.get(seat) == url):
            return None
        what = f"file {file.sequence} of pool {file.pool}, which is disputed, is announced at {url}"
        task = partial(self._announce, self._shelf, file, seat, self._voters[state.seats[seat].voter])
        self._tasks.run(("announce", *place), state.head, what, task)
        return None

    def _announce(self, shelf: FileShelf, file: Submission, seat: int, suite: Suite) -> Receipt:
        data = self._files.read(file.sha256)
        if data is None:
            raise IntegrityError(f"the bytes of file {file.sequence} of pool {file.pool} are gone", "see the disk")
        shelf.show(file.sha256, data)
        receipt = suite.pools.announce_mirror(file.pool, file.sequence, shelf.url(file.sha256)).send()
        self._announced.add((file.pool, file.sequence))
        return receipt

    def _mourn(self, place: FilePlace) -> None:
        if place not in self._mourned:
            self._mourned.add(place)
            why = "its bytes are not kept" if self._shelf else "neither `serve` nor `republish` says where"
            log.error(
                "file %d of pool %d, on which our seats voted, is disputed and WE CANNOT SHOW IT: %s; if its owner "
                "does not serve it either, who accepted it is fined", place[1], place[0], why,
            )  # fmt: skip

    def _report(self) -> None:
        files, shelf = self._files.files.values(), self._shelf
        report = {
            "files": len(files),
            "bytes": sum(file.size for file in files),
            "oldest": int(min((file.since for file in files), default=0)),
            "where": shelf.public_url if shelf else "",
            "problem": self._files.problem,
        }
        document = canonical_json(report)
        if document != self._written:
            try:
                write_atomic(self._home / KEPT, document)
                self._written = document
            except OSError as error:  # a full disk must not keep our seats from voting
                log.error("cannot say in %s what is kept: %s", self._home / KEPT, error)
