"""Following a run's log: each entry is checked and moves the schedule, whole or not at all; what no honest keeper
writes is refused."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from protocol.errors import IntegrityError
from protocol.sites.dealing import Dealing
from protocol.sites.log import (
    MAX_ENTRIES,
    Boundary,
    ContributionRefused,
    LogEntry,
    LogEvent,
    Noted,
    PartRefused,
    PartsSaid,
    Unusable,
    WorkGiven,
)
from protocol.sites.run import SitesRun
from trainer.sites.events import NothingLeft, WorkDealt
from trainer.sites.exchange import SiteExchange
from trainer.sites.exclusion import SiteMarks
from trainer.sites.log_events import as_scheduled
from trainer.sites.schedule import Schedule

Check = Callable[["Logbook", LogEvent], None]


def _no_check(book: "Logbook", event: LogEvent) -> None:
    """Of who has checked them, or need not."""


@dataclass
class Logbook:
    """How far the log of a run was read. `boundary`: which began the step under way, in entry `chapter`; `number`: of
    the next entry; `tip`: hash of the newest; `since`: when the phase began by the keeper's clock; `items`: what the
    step trains on, once that is said; `notes`: of each site, its first note that is not in the log; `dealt`: among whom
    the data of the attempt under way is dealt, its members when it began. `named`: items that sites which are out of
    the step cannot use; `skipped`: those that nobody trains on, because all sites were let in again since. `signed`: of
    who signed for the attempt under way, the note that says so; `said`: of the notes with parts of the reduction, by
    what and site. `past`: how the step before this boundary was dealt, if
    it was read here."""

    exchange: SiteExchange
    boundary: Boundary
    chapter: int
    number: int
    tip: str
    since: float
    schedule: Schedule
    notes: dict[str, int] = field(default_factory=dict)
    items: tuple[str, ...] | None = None
    dealt: tuple[str, ...] = ()
    named: frozenset[str] = frozenset()
    skipped: frozenset[str] = frozenset()
    signed: dict[str, int] = field(default_factory=dict)
    said: dict[tuple[str, str], int] = field(default_factory=dict)
    past: Dealing | None = None

    @property
    def dealing(self) -> Dealing | None:
        """Of the attempt under way; None until it is said what it trains on."""
        if self.items is None:
            return None
        left = tuple(bytes.fromhex(one) for one in self.items if one not in self.skipped)
        return Dealing(bytes.fromhex(self.exchange.run.seed), left, self.dealt)

    @classmethod
    def at(cls, exchange: SiteExchange, chapter: int) -> "Logbook":
        """Read up to the boundary that ends entry `chapter`. Raises IntegrityError if there is none."""
        found = exchange.entry(chapter, None)
        boundary = None if found is None else found[0].boundary
        if found is None or boundary is None:
            raise IntegrityError(f"entry {chapter} of the log begins no outer step", "ask the run's keeper")
        entry, digest = found
        schedule = begun(boundary, exchange.run)
        return cls(
            exchange, boundary, chapter, chapter + 1, digest, entry.time, schedule, dict(boundary.notes),
            dealt=tuple(sorted(schedule.members)),
        )  # fmt: skip

    @classmethod
    def newest(cls, exchange: SiteExchange) -> "Logbook | None":
        """Read up to the newest boundary; None where nobody has begun a log."""
        head = _head(exchange)
        if head < 0:
            return None
        found = exchange.entry(head, None)
        if found is None:
            raise IntegrityError(f"entry {head} of the log is gone", "see who deletes from the bucket")
        return cls.at(exchange, found[0].chapter)

    def advance(self) -> LogEntry | None:
        """Take the next entry, if there is one. Raises IntegrityError for an entry that no honest keeper writes."""
        found = self.upcoming()
        if found is None:
            return None
        self.take(*found)
        return found[0]

    def upcoming(self) -> tuple[LogEntry, str] | None:
        """The next entry and the SHA-256 of its bytes, None if it is not there yet. Raises IntegrityError,
        UnreachableError."""
        return self.exchange.next_entry(self.number, self.tip)

    def dealt_as(self, site: str) -> tuple[str, ...]:
        """How data is dealt to a site in the attempt under way: the members, and which items are its own. Work on data
        that is dealt otherwise is of no use."""
        return self.dealt + (self.dealing.of(site) if self.dealing else ())

    def draft(self) -> "Logbook":
        """Another one that stands where this one does: what is applied to it is not in this one."""
        return replace(self, notes=dict(self.notes), signed=dict(self.signed), said=dict(self.said))

    def take(self, entry: LogEntry, digest: str, check: Check = _no_check) -> None:
        """The next entry, of which the bytes have the SHA-256 `digest`: all its events in their order, or, where one of
        them cannot come then or `check` raises, none of them. `check` is told each event, and how the book stands
        before it."""
        if entry.chapter != (entry.number if entry.boundary is not None else self.chapter):
            raise IntegrityError(f"entry {entry.number} of the log names another boundary than the newest")
        draft = self.draft()
        for event in entry.events:
            check(draft, event)
            draft.apply(event, entry.time)
        draft.chapter, draft.number, draft.tip = entry.chapter, entry.number + 1, digest
        vars(self).update(vars(draft))

    def apply(self, event: LogEvent, at: float) -> None:
        """What an event changes that an entry of time `at` tells of, but for place and chapter. Raises IntegrityError
        for one that cannot come now."""
        before, past = self.schedule, self.dealing
        self.schedule = self.next(event)
        self._take_words(event)
        if (before.step, before.attempt, before.phase) != (
            self.schedule.step, self.schedule.attempt, self.schedule.phase,
        ):  # fmt: skip
            self.since = at
        if (before.step, before.attempt) != (self.schedule.step, self.schedule.attempt):
            self.dealt, self.signed, self.said = tuple(sorted(self.schedule.members)), {}, {}
        elif isinstance(event, Noted) and event.what == "sign":
            self.signed[event.site] = event.note
        elif isinstance(event, PartsSaid):
            self.said |= {(event.what, site): note for site, note in event.notes.items()}
        if isinstance(event, Boundary):
            self.boundary, self.items, self.notes = event, None, dict(event.notes)
            self.named, self.skipped, self.past = frozenset(), frozenset(), past
        elif isinstance(event, WorkGiven):
            self.since = at
        elif isinstance(event, Noted | Unusable | ContributionRefused):
            self.notes[event.site] = event.note + 1
        elif isinstance(event, PartsSaid):
            self.pass_over(event.notes)

    def pass_over(self, notes: Mapping[str, int]) -> None:
        """Note `notes[site]` of each site is read, and those before it."""
        self.notes |= {site: max(note + 1, self.notes.get(site, 0)) for site, note in notes.items()}

    def _take_words(self, event: LogEvent) -> None:
        """Which items are left: what was named is skipped once nobody is left who did not name any. Of a step of which
        too little is left nothing is collected."""
        if isinstance(event, WorkGiven):
            self.items = tuple(event.items)
        elif isinstance(event, Unusable):
            self.named |= frozenset(event.items)
        if self.named and not self.schedule.barred:
            self.skipped, self.named = self.skipped | self.named, frozenset()
        dealing = None if isinstance(event, Boundary) else self.dealing
        if dealing is not None and too_few(dealing, self.exchange.run):
            self.schedule = self.schedule.after(NothingLeft(self.schedule.step))

    def next(self, event: LogEvent) -> Schedule:
        """The schedule after an event. Raises IntegrityError for one that cannot come now."""
        now = self.schedule
        if isinstance(event, WorkGiven):
            if self.items is not None or event.step != now.step:
                raise IntegrityError(f"the log gives work for outer step {event.step} out of its turn")
            return now.after(WorkDealt(event.step))
        if isinstance(event, Noted):
            self.exchange.run.check_sites([event.site])
        if isinstance(event, Noted) and event.what == "sign" and self.items is None and now.whole:
            raise IntegrityError(f"{event.site} signed before the log says what outer step {now.step} trains on")
        if isinstance(event, Unusable) and not set(event.items) <= set(self.dealt_as(event.site)):
            raise IntegrityError(f"{event.site} names files that are not dealt to it")
        if isinstance(event, ContributionRefused) and event.site in now.documents:
            raise IntegrityError(f"the log refuses what {event.site} did not sign alone")
        if isinstance(event, PartRefused) and event.document not in published_by(event.site, now):
            raise IntegrityError(f"the log refuses a part that {event.site} did not publish")
        after = now.after(as_scheduled(event, now, self.dealing))
        if after is now:
            raise IntegrityError(f"the log has an event of kind {event.kind} that changes nothing")
        if isinstance(event, Boundary):
            self._check(event, after)
        return after

    def _check(self, boundary: Boundary, after: Schedule) -> None:
        now = self.schedule
        parts = boundary.made_of, boundary.products, boundary.means
        follows = dict(now.contributors), dict(now.products), dict(now.means)
        if (boundary.step, boundary.before, parts) != (now.step + 1, self.chapter, follows):
            raise IntegrityError(f"the log's boundary {boundary.step} does not follow from what was opened")
        if begun(boundary, self.exchange.run) != after:
            raise IntegrityError(
                f"the log's boundary {boundary.step} has other members, or leaves out others, than follow from the log"
            )

    def chapters_back(self) -> Iterator[tuple[int, Boundary]]:
        """This boundary and those before it, newest first, with their entries' numbers."""
        number, boundary = self.chapter, self.boundary
        while True:
            yield number, boundary
            if boundary.before is None:
                return
            if boundary.before >= number:
                raise IntegrityError(f"boundary {boundary.step} of the log follows a later one")
            number = boundary.before
            boundary = Logbook.at(self.exchange, number).boundary


def items_given(exchange: SiteExchange, chapter: int) -> tuple[str, ...]:
    """What the outer step trains on that the boundary at entry `chapter` began; none if nobody has said so yet."""
    book = Logbook.at(exchange, chapter)
    while book.items is None and book.advance() is not None and book.chapter == chapter:
        pass
    return book.items or () if book.chapter == chapter else ()


def dealing_before(exchange: SiteExchange, boundary: Boundary) -> Dealing | None:
    """How the outer step was dealt that led to `boundary`, by the log; None where nothing is given to sites. Raises
    IntegrityError, UnreachableError."""
    if exchange.run.work != "given" or boundary.before is None:
        return None
    book = Logbook.at(exchange, boundary.before)
    while book.chapter == boundary.before and book.advance() is not None:
        pass
    if book.boundary != boundary or book.past is None:
        raise IntegrityError(f"the log does not say what outer step {boundary.step - 1} trained on")
    return book.past


def too_few(dealing: Dealing, run: SitesRun) -> bool:
    """Whether fewer items are left than an outer step needs sites that have some: then it changes nothing."""
    return len(dealing.items) < run.settings.admission.minimum


def begun(boundary: Boundary, run: SitesRun) -> Schedule:
    """The schedule that a boundary begins. Raises IntegrityError where it names who is no site of the run."""
    run.check_sites([*boundary.members, *boundary.waiting, *boundary.made_of])
    return Schedule(
        bytes.fromhex(boundary.digest),
        boundary.step,
        members=frozenset(boundary.members),
        waiting=frozenset(boundary.waiting),
        marks={site: SiteMarks(one.marks, one.until, one.made) for site, one in boundary.marks.items()},
        quorum=run.settings.admission.minimum,
        whole=run.work == "given",
        reducing=run.reducing,
    )


def first_boundary(digest: bytes, state: str) -> Boundary:
    """Of a run that begins from the state of `digest`, whose files are listed in `state`."""
    return Boundary(step=0, digest=digest.hex(), state=state)


def published_by(site: str, now: Schedule) -> set[str]:
    """The documents of a site in the attempt under way, whose parts can be shown to be wrong."""
    return {one[site] for one in (now.contributors, now.products, now.means) if site in one}


def _head(exchange: SiteExchange) -> int:
    """Number of the newest entry, −1 where there is none, found by doubling and halving: entries have no gaps. Where
    strangers took places it may be an older one, from which the log is read on."""
    if not exchange.has_entry(0):
        return -1
    low, high = 0, 1
    while high < MAX_ENTRIES and exchange.has_entry(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if exchange.has_entry(middle) else (low, middle)
    return low
