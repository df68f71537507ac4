"""The run's keeper: reads what sites say, fetches and judges what they publish, and writes the log.

It holds a replica of the outer state and no secret but its key. All that it knows follows from the log, the bucket and
the run's first state: a kill at any moment costs the time since.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eth_account.signers.local import LocalAccount

from protocol.encoding import sha256_hex
from protocol.errors import IntegrityError, MusterError, UnreachableError
from protocol.sites.contribution import Contribution
from protocol.sites.layout import Tensors
from protocol.sites.log import (
    FIRST,
    Boundary,
    ContributionOpened,
    Failed,
    LogEntry,
    LogEvent,
    MalformedEntry,
    Noted,
    TimeUp,
    WorkGiven,
    seal_entry,
)
from protocol.sites.notes import SiteNote
from protocol.sites.outer import OuterState, OuterStepError
from storage.keys import MissingObjectError
from trainer.sites.catching_up import caught_up, limits_at
from trainer.sites.exchange import MAX_TAKEN, SiteExchange
from trainer.sites.logbook import Logbook, first_boundary
from trainer.sites.replica import judge, settled_by
from trainer.sites.replica_store import StateFolder
from trainer.sites.schedule import OuterPhase
from trainer.sites.timeouts import Timeouts

log = logging.getLogger("muster.sites")
_NOTES_AT_ONCE = 16
OnStep = Callable[[OuterState, Boundary], None]


class SitesKeeper:
    """Of one run. `start` brings it to the log's end, `turn` does whatever can be done now."""

    def __init__(
        self,
        exchange: SiteExchange,
        account: LocalAccount,
        first: OuterState,
        home: Path,
        on_step: OnStep | None = None,
    ) -> None:
        self.exchange, self._account = exchange, account
        self.run, settings = exchange.run, exchange.run.settings
        self._states = StateFolder(home / "outer", first.layout, settings.shards)
        self.state = self._states.newest() or first
        self._first, self._on_step = first, on_step
        self.timeouts = Timeouts.of_run(exchange.run)
        self.excluded: dict[str, str] = {}
        self._opened: dict[str, Tensors] = {}
        self._signed: dict[str, Contribution] = {}
        self._refused: set[str] = set()
        self._started = time.time()
        self._book: Logbook | None = None

    @property
    def book(self) -> Logbook:
        assert self._book is not None, "call `start` first"
        return self._book

    def start(self) -> None:
        """Follow the log to its end, or begin it. Raises IntegrityError if it is another run's, UnreachableError."""
        book = Logbook.newest(self.exchange)
        if book is None:
            self._begin_log()
            book = Logbook.newest(self.exchange)
            assert book is not None, "it was written just now"
        for state in caught_up(self.exchange, self.state, book):
            self._hold(state)
        self._book = book
        while book.advance() is not None:
            if book.boundary.step > self.state.step:
                raise IntegrityError("another process keeps this log", "run one keeper")
        log.info("keeping the log of %s: outer step %d, entry %d", self.run.name, self.state.step, book.number)

    def give(self, items: Sequence[str]) -> None:
        """Say what the outer step under way trains on (SHA-256 of each item), unless that was said."""
        if self.book.items is None:
            self._tell(WorkGiven(step=self.state.step, items=list(items)))

    def turn(self) -> bool:
        """Do what can be done now; whether anything was. Raises IntegrityError if another process writes the log,
        UnreachableError."""
        number = self.book.number
        self._read_notes()
        phase = self.book.schedule.phase
        if phase == OuterPhase.COLLECT:
            self._forget()
        elif phase == OuterPhase.OPEN:
            self._open()
        elif phase == OuterPhase.SETTLE:
            self._settle()
        if self.book.number == number:
            self._look_at_the_clock()
        return self.book.number > number

    def waiting_for(self) -> str:
        """What holds the step under way up, for a person."""
        now = self.book.schedule
        if self.run.work == "given" and self.book.items is None:
            return f"what outer step {now.step} trains on"
        if not now.members:
            return f"sites: {len(now.waiting)} have joined, {now.quorum} are needed"
        missing = now.members - now.documents.keys() if now.phase == OuterPhase.COLLECT else set(now.documents)
        missing = missing - now.opened
        what = {"collect": "contributions", "open": "payloads", "settle": "contributions that count"}[now.phase.value]
        return f"{what} to outer step {now.step}: of {', '.join(sorted(missing)) or 'others'}"

    def status(self) -> dict[str, Any]:
        """What people may be shown of it."""
        now = self.book.schedule
        return {
            "keeper": self.run.keeper, "run": self.run.name, "step": self.state.step,
            "digest": self.state.digest.hex(), "phase": now.phase.value, "attempt": now.attempt,
            "members": sorted(now.members), "waiting": sorted(now.waiting), "excluded": self.excluded,
            "items": None if self.book.items is None else len(self.book.items),
        }  # fmt: skip

    def _begin_log(self) -> None:
        boundary = first_boundary(self._first.digest, self.exchange.publish_state(self._first))
        entry = LogEntry(run=self.run.digest, number=0, previous=FIRST, chapter=0, time=time.time(), event=boundary)
        self.exchange.append(0, seal_entry(entry, self.run, self._account))

    def _tell(self, event: LogEvent) -> None:
        """Write an event at the first place that no stranger has taken. Raises IntegrityError for one that cannot come
        now, or where another keeper writes."""
        book = self.book
        book.next(event)
        for number in range(book.number, book.number + MAX_TAKEN):
            chapter = number if isinstance(event, Boundary) else book.chapter
            entry = LogEntry(
                run=self.run.digest, number=number, previous=book.tip, chapter=chapter, time=time.time(), event=event
            )
            data = seal_entry(entry, self.run, self._account)
            if self.exchange.append(number, data) or self._is_ours(number, data):
                book.take(entry, sha256_hex(data))
                log.info("entry %d: %s", number, _words(event))
                return
            log.warning("place %d of the log is taken by somebody who is not its keeper", number)
        raise IntegrityError(f"{MAX_TAKEN} places of the log are taken by strangers", "see who writes to the bucket")

    def _is_ours(self, number: int, data: bytes) -> bool:
        """Whether the entry at a place that is taken is this very one, from a try whose answer was lost. Raises
        IntegrityError where another process writes as the keeper."""
        try:
            found = self.exchange.entry(number, self.book.tip)
        except MalformedEntry:
            return False
        if found is None or found[1] != sha256_hex(data):
            raise IntegrityError(f"entry {number} of the log was written by another process", "run one keeper")
        return True

    def _changes(self, event: LogEvent) -> bool:
        try:
            self.book.next(event)
        except IntegrityError:
            return False
        return True

    def _read_notes(self) -> None:
        for site in self.run.sites:
            for _ in range(_NOTES_AT_ONCE):
                number = self.book.notes.get(site, 0)
                try:
                    note = self.exchange.note(site, number)
                except UnreachableError:
                    raise
                except MusterError as error:
                    log.warning("note %d of %s: %s", number, site, error)
                    self.book.notes[site] = number + 1
                    continue
                if note is None:
                    break
                self._heed(note)
                self.book.notes[site] = number + 1

    def _heed(self, note: SiteNote) -> None:
        """Take a note into the log, if it says something that counts now."""
        now = self.book.schedule
        event = Noted(site=note.site, note=note.number, what=note.what, digest=note.digest)
        if note.what == "sign" and (note.step, note.attempt) != (now.step, now.attempt):
            return
        if not self._changes(event):
            return
        if note.what == "sign":
            assert note.digest is not None, "a note that signs names it"
            try:
                self.exchange.contribution(note.digest, note.site, limits_at(self.exchange, self.state))
            except UnreachableError:
                raise
            except MusterError as error:
                log.warning("the contribution of %s is refused: %s", note.site, error)
                return
        self._tell(event)

    def _open(self) -> None:
        limits = limits_at(self.exchange, self.state)
        for site, document in sorted(self.book.schedule.documents.items()):
            if site in self.book.schedule.opened or document in self._refused:
                continue
            try:
                made = self._signed.get(document) or self.exchange.contribution(document, site, limits)
                self._signed[document] = made
                if not self.exchange.is_open(made):
                    continue
                self._opened[document] = self.exchange.gradient(made, limits, self.state)
            except (UnreachableError, MissingObjectError) as error:
                log.info("the payload of %s: %s", site, error)
                continue
            except MusterError as error:
                log.warning("the payload of %s is refused: %s", site, error)
                self._refused.add(document)
                continue
            if self._changes(event := ContributionOpened(site=site, document=document)):
                self._tell(event)

    def _settle(self) -> None:
        contributors = self.book.schedule.contributors
        try:
            gradients = self._gradients(contributors)
        except UnreachableError:
            raise
        except MusterError as error:
            log.warning("outer step %d begins again, a payload that was opened is gone: %s", self.state.step, error)
            self._fail()
            return
        judged = judge(self.state, gradients, self.run.settings)
        if self.excluded != judged.excluded:
            self.excluded = dict(judged.excluded)
            for site, why in self.excluded.items():
                log.warning("the contribution of %s to outer step %d does not count: %s", site, self.state.step, why)
        try:
            after = settled_by(self.state, gradients, judged, self.run.settings)
        except OuterStepError as error:
            log.error("outer step %d cannot be made: %s", self.state.step, error)
            after = None
        if after is not None:
            self._advance(after, contributors, sorted(judged.shares))
        elif self.book.schedule.waiting or self._waited() > self.timeouts.window:
            self._fail()

    def _gradients(self, contributors: Mapping[str, str]) -> dict[str, Tensors]:
        """Those that were opened before a restart are fetched again. Raises MusterError where one is gone since."""
        limits = limits_at(self.exchange, self.state)
        for site, document in contributors.items():
            if document not in self._opened:
                made = self.exchange.contribution(document, site, limits)
                self._opened[document] = self.exchange.gradient(made, limits, self.state)
        return {site: self._opened[document] for site, document in contributors.items()}

    def _fail(self) -> None:
        self._tell(Failed(attempt=self.book.schedule.attempt))

    def _forget(self) -> None:
        """What was fetched for an attempt that is over; pseudo-gradients are as large as the model."""
        for kept in (self._opened, self._signed, self._refused):
            kept.clear()

    def _advance(self, after: OuterState, contributors: Mapping[str, str], counted: list[str]) -> None:
        book, now = self.book, self.book.schedule
        due = after.step % self.run.settings.state_every == 0
        listed = self.exchange.publish_state(after) if due else None
        digest = after.digest.hex()
        bare = Boundary(step=after.step, digest=digest, attempt=now.attempt)
        begun = now.after_boundary(bytes.fromhex(bare.digest))
        boundary = bare.model_copy(
            update={
                "members": sorted(begun.members),
                "waiting": sorted(begun.waiting),
                "made_of": dict(contributors),
                "counted": counted,
                "before": book.chapter,
                "state": listed,
                "notes": {site: number for site, number in sorted(book.notes.items()) if number},
            }
        )
        self._tell(boundary)
        self._hold(after)
        if self._on_step is not None:
            self._on_step(after, boundary)

    def _hold(self, state: OuterState) -> None:
        self._states.keep(state)
        self.state = state

    def _waited(self) -> float:
        """Seconds in this phase; a keeper that was gone has not waited meanwhile."""
        return time.time() - max(self.book.since, self._started)

    def _look_at_the_clock(self) -> None:
        now = self.book.schedule
        if not now.members or now.phase == OuterPhase.SETTLE or (self.run.work == "given" and self.book.items is None):
            return
        limit = self.timeouts.collect if now.phase == OuterPhase.COLLECT else self.timeouts.window
        if self._waited() > limit:
            log.warning("time is up for %s", self.waiting_for())
            self._tell(TimeUp(attempt=now.attempt, phase="collect" if now.phase == OuterPhase.COLLECT else "open"))


def _words(event: LogEvent) -> str:
    if isinstance(event, Boundary):
        return f"outer step {event.step} begins with {len(event.members)} sites, from {event.digest[:16]}…"
    if isinstance(event, Noted):
        return f"{event.site}: {event.what}"
    if isinstance(event, ContributionOpened):
        return f"{event.site} opened its contribution"
    return event.kind
