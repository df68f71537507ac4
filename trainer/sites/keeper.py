"""The run's keeper: reads what sites say, fetches and judges what they publish, and writes the log.

It holds a replica of the outer state and no secret but its key. All that it knows follows from the log, the bucket and
the run's first state: a kill at any moment costs the time since.
"""

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from protocol.accounts import LocalAccount
from protocol.errors import MusterError, UnreachableError, printable
from protocol.sites.contribution import ContributionLimits
from protocol.sites.forms import MalformedContribution
from protocol.sites.log import (
    MAX_WORDS,
    Boundary,
    ContributionOpened,
    ContributionRefused,
    Failed,
    LogEvent,
    Noted,
    TimeUp,
    Unusable,
    WorkGiven,
)
from protocol.sites.notes import SiteNote
from protocol.sites.outer import OuterState
from trainer.sites.boundaries import boundary_to
from trainer.sites.catching_up import caught_up, limits_at
from trainer.sites.drafted_log import DraftedLog
from trainer.sites.events import OuterPhase
from trainer.sites.exchange import SiteExchange
from trainer.sites.handed_in import HandedIn, StepOutcome
from trainer.sites.keeping_parts import PARTS, PartsKeeping
from trainer.sites.kept_states import KeptStates
from trainer.sites.log_writer import LogWriter
from trainer.sites.logbook import Logbook
from trainer.sites.note_reader import NoteReader
from trainer.sites.replica import passed_over
from trainer.sites.schedule import Schedule
from trainer.sites.status_file import awaited, standing
from trainer.sites.timeouts import Timeouts

log = logging.getLogger("muster.sites")
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
        self.exchange = exchange
        self.run = exchange.run
        self._states = KeptStates(exchange, home / "outer", first)
        self.state = self._states.newest
        self._first, self._on_step = first, on_step
        self.timeouts = Timeouts.of_run(exchange.run)
        self.excluded: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._writer, self._handed = LogWriter(exchange, account, home), HandedIn(exchange)
        self._parts = PartsKeeping(exchange, self._handed, random.SystemRandom())
        self._notes = NoteReader(exchange)
        self._started = time.time()
        self._log: DraftedLog | None = None

    @property
    def book(self) -> Logbook:
        """The log as far as it is written."""
        return self._written.book

    @property
    def _written(self) -> DraftedLog:
        assert self._log is not None, "call `start` first"
        return self._log

    @property
    def _next(self) -> Logbook:
        """The log with what its next entry is to tell."""
        return self._written.next

    def start(self) -> None:
        """Follow the log to its end, or begin it. Raises IntegrityError if it is another run's, UnreachableError."""
        book = Logbook.newest(self.exchange)
        if book is None:
            self._writer.begin(self._first)
            book = Logbook.newest(self.exchange)
            assert book is not None, "it was written just now"
        while book.advance() is not None:  # also past a boundary, where strangers' places hid it
            pass
        self._writer.finish(book)
        for state in caught_up(self.exchange, self.state, book):
            self._hold(state)
        if book.boundary.state is not None:
            self._states.publish_again(self.state, book.boundary.state)
        self._log = DraftedLog(self._writer, book)
        log.info("keeping the log of %s: outer step %d, entry %d", self.run.name, self.state.step, book.number)

    def give(self, items: Sequence[str]) -> None:
        """Say what the outer step under way trains on (SHA-256 of each item), unless that was said."""
        self._finish()
        if self._next.items is None:
            self._tell(WorkGiven(step=self.state.step, items=list(items)))

    def turn(self, patience: float = 0.0) -> bool:
        """Do what can be done now, and write what that came to into the log as one entry; whether anything was written.
        What changes nothing for anybody waits for what else happens within `patience` seconds. Raises IntegrityError if
        another process writes the log, UnreachableError."""
        number = self.book.number
        self._states.tend()
        self._finish()
        self._read_notes()
        self._handed.begin(self._next.schedule.step, self._next.schedule.attempt)
        self._parts.begin(self._next.schedule.step, self._next.schedule.attempt)
        if self._next.schedule.phase == OuterPhase.OPEN:
            self._open()
        if self._next.schedule.reducers:
            self._reduce()
        elif self._next.schedule.phase == OuterPhase.SETTLE:
            self._settle()
        # Whatever else there is to tell: or whoever says something new every second would stop the clock.
        self._look_at_the_clock()
        self._written.end_turn(patience)
        return self.book.number > number

    def finish(self) -> None:
        """Return once the newest state is on the disk, and what was to be published is. Raises MusterError."""
        self._states.finish()

    def waiting_for(self) -> str:
        """What holds the step under way up, for a person."""
        return awaited(self._next)

    def status(self) -> dict[str, Any]:
        """What people may be shown of it, also before it has started."""
        book = None if self._log is None else self._log.book
        items = None if book is None else book.items
        skipped = frozenset[str]() if book is None else book.named | book.skipped
        return {
            "keeper": self.run.keeper, "run": self.run.name, **standing(self.state, book),
            "excluded": self.excluded, "items": None if items is None else len(items), "unusable": sorted(skipped),
        }  # fmt: skip

    def _finish(self) -> None:
        """Write again what became of whose writing is not known; where that began an outer step, take it over."""
        self._written.finish()
        boundary = self.book.boundary
        if boundary.step == self.state.step:
            return
        for state in caught_up(self.exchange, self.state, self.book):
            self._hold(state)
        if self._on_step is not None:
            self._on_step(self.state, boundary)

    def _tell(self, event: LogEvent) -> None:
        """At once, with what is to be told before it."""
        self._written.add(event)
        self._written.write()

    def _read_notes(self, every: bool = False) -> None:
        for note in self._notes.new(self._next, every):
            self._heed(note)
        self._tell_parts()

    def _heed(self, note: SiteNote) -> None:
        """Take a note into the log, if it says something that counts now."""
        now = self._next.schedule
        if note.what not in ("join", "leave") and (note.step, note.attempt) != (now.step, now.attempt):
            return
        if note.what in PARTS:
            self._parts.begin(now.step, now.attempt)
            self._parts.heed(note, self._next, self._limits(), self.state)
            return
        self._tell_parts()
        event: LogEvent | None
        if note.what == "unusable":
            event = Unusable(site=note.site, note=note.number, items=note.items)
        else:
            event = Noted.model_validate(note.model_dump(include={"site", "what", "digest"}) | {"note": note.number})
        if isinstance(event, Noted) and event.what == "sign" and self._written.takes(event):
            event = self._judged(note, event)
        if event is not None and self._written.takes(event):
            self._written.add(event)

    def _tell_parts(self) -> None:
        """Before anything else of who told them."""
        if (parts := self._parts.gathered(self._next)) is not None:
            self._written.add(parts)

    def _judged(self, note: SiteNote, signed: Noted) -> Noted | ContributionRefused | None:
        """What is to be written of a note that signs a contribution; nothing of one that cannot be had, which time ends
        the wait for."""
        assert note.digest is not None, "a note that signs names it"
        now = self._next.schedule
        self._handed.begin(now.step, now.attempt)
        try:
            self._handed.document(note.site, note.digest, self._limits())
        except UnreachableError:
            raise
        except MalformedContribution as error:
            why = self._refused[note.site] = printable(error.what, MAX_WORDS - 1)
            log.warning("the contribution of %s is refused: %s", note.site, why)
            return ContributionRefused(site=note.site, note=note.number, document=note.digest, why=why)
        except MusterError as error:
            log.warning("the contribution of %s cannot be had: %s", note.site, error)
            return None
        return signed

    def _limits(self) -> ContributionLimits:
        return limits_at(self.exchange, self.state, self._next.dealing)

    def _open(self) -> None:
        now, limits = self._next.schedule, self._limits()
        for site in self._opened(now, limits):
            event = ContributionOpened(site=site, document=now.documents[site])
            if self._written.takes(event):
                self._written.add(event)

    def _opened(self, now: Schedule, limits: ContributionLimits) -> Iterator[str]:
        if self.run.reducing:
            return self._handed.published(now, limits, self._waited() > self.timeouts.window)
        waiting = sorted(site for site in now.documents if site not in now.opened)
        return (one for one in waiting if self._handed.is_open(one, now.documents[one], limits, self.state))

    def _reduce(self) -> None:
        """Hear what the reducers' parts lead to; the step is settled once all members have said that they have them."""
        now, parts = self._next.schedule, self._parts
        late = self._waited() > self.timeouts.window
        try:
            wrong = parts.look(self._next, self._limits(), self.state)
        except UnreachableError:
            raise
        except MusterError as error:
            log.warning("outer step %d begins again, a part that was told is gone: %s", self.state.step, error)
            self._fail()
            return
        if wrong is not None:
            log.warning("%s is wrong in shard %d: %s", wrong.site, wrong.shard, wrong.why)
            self._written.add(wrong)
        elif parts.outcome is None:
            if late and (parts.stuck or now.phase == OuterPhase.SETTLE):
                self._fail()
        else:
            self._end_by(parts.outcome)

    def _end_by(self, found: StepOutcome) -> None:
        """Make the step that is known, or begin it again where too little counts and somebody may come, or time is
        up."""
        now = self._next.schedule
        self.excluded, self._refused = self._refused | dict(found.excluded), {}
        if found.after is None:
            if now.entering or self._waited() > self.timeouts.window:
                self._fail()
        elif now.phase == OuterPhase.SETTLE:
            self._advance(found.after, now.contributors, found.shares)

    def _settle(self) -> None:
        contributors = self._next.schedule.contributors
        if not contributors:
            self._advance(passed_over(self.state), {}, {})
            return
        try:
            found = self._handed.outcome(contributors, self._limits(), self.state)
        except UnreachableError:
            raise
        except MusterError as error:
            log.warning("outer step %d begins again, a payload that was opened is gone: %s", self.state.step, error)
            self._fail()
            return
        self._end_by(found)

    def _fail(self) -> None:
        self._written.add(Failed(attempt=self._next.schedule.attempt))

    def _advance(self, after: OuterState, contributors: Mapping[str, str], shares: Mapping[str, Fraction]) -> None:
        due = after.step % self.run.settings.state_every == 0
        listed = self._states.publish(after) if due else None
        boundary = boundary_to(self._next, after, contributors, sorted(shares), listed)
        self._tell(boundary)
        self._hold(after)
        if self._on_step is not None:
            self._on_step(after, boundary)

    def _hold(self, state: OuterState) -> None:
        self.state = state
        self._states.keep(state)

    def _waited(self) -> float:
        """Seconds in this phase; a keeper that was gone has not waited meanwhile."""
        return time.time() - max(self._next.since, self._started)

    def _look_at_the_clock(self) -> None:
        """Time is up for those only of whom there is nothing yet."""
        now = self._next.schedule
        if not now.members or now.phase == OuterPhase.SETTLE or (self.run.work == "given" and self._next.items is None):
            return
        limit = self.timeouts.collect if now.phase == OuterPhase.COLLECT else self.timeouts.window
        if self._waited() <= limit:
            return
        self._read_notes(every=True)
        if self._next.schedule.phase == now.phase == OuterPhase.OPEN:
            self._open()
        after = self._next.schedule
        if (after.step, after.attempt, after.phase) == (now.step, now.attempt, now.phase):
            log.warning("time is up for %s", self.waiting_for())
            self._written.add(TimeUp.model_validate({"attempt": now.attempt, "phase": now.phase.value}))
