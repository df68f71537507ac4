"""Following a run's log, and writing it.

The log is one line of signed entries, each naming the one before, from which every replica computes the same members
and the same outer steps. The coordinator orders what happens. It cannot forge a contribution nor choose which
counts: both follow from published bytes that everybody checks.
"""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from diloco.messages import (
    MAX_ENTRY_BYTES,
    MAX_EVENTS,
    MAX_NUMBER,
    NO_ENTRY,
    CommitRecord,
    LogEntry,
    LogEvent,
    MalformedEntry,
    MessageEvent,
    seal_entry,
)
from diloco.outer import OuterState
from diloco.partition import Partition
from diloco.state_machine import Schedule
from diloco.transport import MAX_TAKEN, Transport
from protocol.accounts import LocalAccount
from protocol.encoding import canonical_json, sha256_hex
from protocol.errors import IntegrityError

log = logging.getLogger("muster.diloco")
_AROUND = 1024  # bytes of an entry besides its events


@dataclass
class Log:
    """How far the log of a run was read.

    `commit`: the commit record that began the step under way, in entry `epoch`; `number`: of the next entry; `tip`:
    hash of the newest entry; `messages`: for each worker, its first message that is not in the log;
    `last_partition`: how the files of the step before this commit were split, if that was read."""

    transport: Transport
    commit: CommitRecord
    epoch: int
    number: int
    tip: str
    schedule: Schedule
    messages: dict[str, int] = field(default_factory=dict)
    last_partition: Partition | None = None

    @classmethod
    def at(cls, transport: Transport, epoch: int) -> "Log":
        """Read up to the commit record that ends entry `epoch`. Raises IntegrityError if there is none."""
        found = transport.entry(epoch)
        commit = None if found is None else found[0].commit
        if found is None or commit is None:
            raise IntegrityError(f"entry {epoch} of the log begins no outer step", "ask the run's coordinator")
        schedule = Schedule.begin(commit, transport.run)
        return cls(transport, commit, epoch, epoch + 1, found[1], schedule, dict(commit.messages))

    @classmethod
    def newest(cls, transport: Transport) -> "Log | None":
        """Read up to the newest commit record; None where nobody has begun a log."""
        head = _head(transport)
        if head < 0:
            return None
        found = transport.entry(head)
        if found is None:
            raise IntegrityError(f"entry {head} of the log is gone", "see who deletes from the bucket")
        return cls.at(transport, found[0].epoch)

    def advance(self) -> LogEntry | None:
        """Take the next entry, if there is one. Raises IntegrityError for one that no honest coordinator writes."""
        found = self.transport.next_entry(self.number, self.tip)
        if found is None:
            return None
        self.take(*found)
        return found[0]

    def take(self, entry: LogEntry, digest: str) -> None:
        """Apply the next entry, whose bytes have the SHA-256 `digest`: all its events, or none where one of them cannot
        come then (IntegrityError)."""
        if entry.epoch != (entry.number if entry.commit is not None else self.epoch):
            raise IntegrityError(f"entry {entry.number} of the log names another commit record than the newest")
        draft = self.draft()
        for event in entry.events:
            draft.apply(event)
        draft.epoch, draft.number, draft.tip = entry.epoch, entry.number + 1, digest
        vars(self).update(vars(draft))

    def draft(self) -> "Log":
        """Return a copy: what is applied to it does not change this one."""
        return replace(self, messages=dict(self.messages))

    def apply(self, event: LogEvent) -> None:
        """Apply an event, but for the entry's number and hash. Raises IntegrityError for one that cannot come now."""
        before, after = self.schedule, self.schedule.apply(event)
        if isinstance(event, CommitRecord):
            if (event.step, event.previous, event.made_of) != (before.step + 1, self.epoch, before.contributors):
                raise IntegrityError(f"the log's commit record {event.step} does not follow from what was opened")
            if Schedule.begin(event, self.transport.run) != after:
                raise IntegrityError(f"the log's commit record {event.step} has other members than follow from the log")
            self.commit, self.messages, self.last_partition = event, dict(event.messages), before.partition
        elif isinstance(event, MessageEvent):
            self.messages[event.worker] = event.message + 1
        self.schedule = after

    def commits_back(self) -> Iterator[tuple[int, CommitRecord]]:
        """Yield this commit record and those before it, newest first, with their entries' numbers."""
        number, commit = self.epoch, self.commit
        while True:
            yield number, commit
            if commit.previous is None:
                return
            if commit.previous >= number:
                raise IntegrityError(f"commit record {commit.step} of the log follows a later one")
            number = commit.previous
            commit = Log.at(self.transport, number).commit


def files_assigned(transport: Transport, epoch: int) -> tuple[str, ...]:
    """Return the files of the outer step that the commit record in entry `epoch` began; none if not assigned yet."""
    reader = Log.at(transport, epoch)
    while reader.schedule.items is None and reader.advance() is not None and reader.epoch == epoch:
        pass
    return reader.schedule.items or () if reader.epoch == epoch else ()


def partition_before(transport: Transport, commit: CommitRecord) -> Partition | None:
    """Return how the files of the step that led to `commit` were split, by the log; None where workers read their own
    data. Raises IntegrityError, UnreachableError."""
    if not transport.run.assigned or commit.previous is None:
        return None
    reader = Log.at(transport, commit.previous)
    while reader.epoch == commit.previous and reader.advance() is not None:
        pass
    if reader.commit != commit or reader.last_partition is None:
        raise IntegrityError(f"the log does not say what outer step {commit.step - 1} trained on")
    return reader.last_partition


def _head(transport: Transport) -> int:
    """Return the number of the newest entry, −1 where there is none, by doubling and halving: entries have no gaps.
    Where strangers took places it may be an older one, from which the log is read on."""
    if not transport.has_entry(0):
        return -1
    low, high = 0, 1
    while high < MAX_NUMBER and transport.has_entry(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if transport.has_entry(middle) else (low, middle)
    return low


def begin_log(transport: Transport, account: LocalAccount, first: OuterState) -> None:
    """Write the log's first entry, from the run's first state, unless there is one. Raises IntegrityError where its
    place is a stranger's; UnreachableError."""
    commit = CommitRecord(step=0, digest=first.digest.hex(), state=transport.publish_state(first))
    run = transport.run
    entry = LogEntry(run=run.digest, number=0, previous=NO_ENTRY, epoch=0, time=time.time(), events=[commit])
    if not transport.append(0, seal_entry(entry, run, account)) and not transport.has_entry(0):
        raise IntegrityError(f"a stranger took the first place of the log of {run.name}", "open another run")


class LogWriter:
    """The coordinator's log: `written`, as far as it is in the bucket, and `draft`, with the `events` of the next
    entry.

    An entry whose write got no answer may have arrived, so it is written again byte for byte until that is known. A
    restarted coordinator reads the log to its end instead."""

    def __init__(self, written: Log, account: LocalAccount) -> None:
        self.written, self._transport, self._account = written, written.transport, account
        self._unsure: tuple[LogEntry, bytes] | None = None
        self._free = 0
        self._reset()

    def _reset(self) -> None:
        self.draft, self.events, self._bytes = self.written.draft(), list[LogEvent](), _AROUND

    def add(self, event: LogEvent) -> None:
        """Add an event to the next entry; a full one is written first. Raises IntegrityError for an event that cannot
        come now; UnreachableError."""
        size = len(canonical_json(event.model_dump(mode="json"))) + 1
        ended = bool(self.events) and isinstance(self.events[-1], CommitRecord)
        if ended or len(self.events) == MAX_EVENTS or self._bytes + size > MAX_ENTRY_BYTES:
            self.write()
        self.draft.apply(event)
        self.events.append(event)
        self._bytes += size

    def takes(self, event: LogEvent) -> bool:
        """Return whether an event can come now, and changes something."""
        try:
            return self.draft.schedule.after(event) is not self.draft.schedule
        except IntegrityError:
            return False

    def write(self) -> None:
        """Write the next entry, if it has any event. Raises IntegrityError where another process writes the log;
        UnreachableError, after which `retry` writes it again."""
        events, messages = self.events, self.draft.messages
        self._reset()
        if events:
            self._append(events)
        self.written.messages = dict(messages)  # also of messages that the log does not mention
        self._reset()

    def _append(self, events: list[LogEvent]) -> None:
        first = max(self.written.number, self._free)
        for number in range(first, first + MAX_TAKEN):
            epoch = number if isinstance(events[-1], CommitRecord) else self.written.epoch
            entry = LogEntry(
                run=self._transport.run.digest, number=number, previous=self.written.tip, epoch=epoch, time=time.time(),
                events=events,
            )  # fmt: skip
            if self._place(entry, seal_entry(entry, self._transport.run, self._account)):
                return
            log.warning("place %d of the log is taken by somebody who is not its coordinator", number)
        raise IntegrityError(f"strangers took {MAX_TAKEN} places of the log", "see who writes to the bucket")

    def retry(self) -> None:
        """Write the entry again of which it is not known whether it arrived, if there is one. Raises as `write`."""
        if self._unsure is not None and self._place(*self._unsure):
            self._reset()

    def _place(self, entry: LogEntry, data: bytes) -> bool:
        """Put an entry at its place and take it; False where a stranger has the place."""
        self._unsure = entry, data
        placed = self._transport.append(entry.number, data) or self._is_there(entry, data)
        self._unsure = None
        self._free = entry.number + 1
        if placed:
            self.written.take(entry, sha256_hex(data))
            log.info("entry %d: %s", entry.number, "; ".join(map(_summary, entry.events)))
        return placed

    def _is_there(self, entry: LogEntry, data: bytes) -> bool:
        """Return whether the taken place holds this very entry, from a try whose answer was lost. Raises IntegrityError
        where another process writes as the coordinator."""
        try:
            found = self._transport.entry(entry.number, entry.previous)
        except MalformedEntry:
            return False
        if found is None or found[1] != sha256_hex(data):
            raise IntegrityError(f"another process wrote entry {entry.number} of the log", "run one coordinator")
        return True


def _summary(event: LogEvent) -> str:
    if isinstance(event, CommitRecord):
        return f"outer step {event.step} begins with {len(event.members)} workers, from {event.digest[:16]}…"
    return f"{event.worker}: {event.kind}" if isinstance(event, MessageEvent) else event.kind
