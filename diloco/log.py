"""Following a run's log, making its outer steps again, and writing it.

The log is one line of signed entries, each naming the one before, from which every replica computes the same members
and outer steps. Its coordinator orders what happens; it can neither forge a contribution nor choose which counts."""

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from diloco.messages import (
    MAX_ENTRY_BYTES,
    MAX_EVENTS,
    MAX_NUMBER,
    NO_ENTRY,
    CommitRecord,
    Contribution,
    Expected,
    LogEntry,
    LogEvent,
    MalformedEntry,
    MessageEvent,
    seal,
)
from diloco.outer import Admitted, OuterState, OuterStepError, Payloads, ReadShard, settle
from diloco.state_machine import Schedule
from diloco.transport import MAX_TAKEN, Transport
from protocol.accounts import LocalAccount
from protocol.encoding import canonical_json, sha256_hex
from protocol.errors import IntegrityError, MusterError

log = logging.getLogger("muster.diloco")
_AROUND = 1024  # bytes of an entry besides its events
_WRONG = "stop: the run's coordinator is wrong, or this machine is"


@dataclass
class Log:
    """How far the log of a run was read. `commit`: the commit record that began the step under way, in entry `epoch`;
    `number`: of the next entry; `tip`: hash of the newest entry; `messages`: for each worker, its first message that is
    not in the log; `ended`: the schedule that this commit ended, if that was read."""

    transport: Transport
    commit: CommitRecord
    epoch: int
    number: int
    tip: str
    schedule: Schedule
    messages: dict[str, int] = field(default_factory=dict)
    ended: Schedule | None = None

    @classmethod
    def at(cls, transport: Transport, epoch: int) -> "Log":
        """Read up to the commit record that ends entry `epoch`. Raises IntegrityError if there is none."""
        log_entry = transport.entry(epoch)
        commit = None if log_entry is None else log_entry[0].commit
        if log_entry is None or commit is None:
            raise IntegrityError(f"entry {epoch} of the log begins no outer step", "ask the run's coordinator")
        schedule = Schedule.begin(commit, transport.run)
        return cls(transport, commit, epoch, epoch + 1, log_entry[1], schedule, dict(commit.messages))

    @classmethod
    def newest(cls, transport: Transport) -> "Log | None":
        """Read up to the newest commit record; None where nobody has begun a log. The newest entry is found by doubling
        and halving: entries have no gaps. Where strangers took places it may be an older one, from which the log is
        read on."""
        if not transport.has_entry(0):
            return None
        low, high = 0, 1
        while high < MAX_NUMBER and transport.has_entry(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if transport.has_entry(middle) else (low, middle)
        log_entry = transport.entry(low)
        if log_entry is None:
            raise IntegrityError(f"entry {low} of the log is gone", "see who deletes from the bucket")
        return cls.at(transport, log_entry[0].epoch)

    def advance(self) -> LogEntry | None:
        """Take the next entry, if there is one. Raises IntegrityError for one that no honest coordinator writes."""
        log_entry = self.transport.next_entry(self.number, self.tip)
        if log_entry is None:
            return None
        self.take(*log_entry)
        return log_entry[0]

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
        """Apply an event, without the entry's number and hash. Raises IntegrityError for one that cannot come now."""
        current, updated = self.schedule, self.schedule.after(event)
        if updated is current:
            raise IntegrityError(f"the log has an event of kind {event.kind} that changes nothing")
        if isinstance(event, CommitRecord):
            if (event.step, event.previous, event.made_of) != (current.step + 1, self.epoch, current.contributors):
                raise IntegrityError(f"the log's commit record {event.step} does not follow from what was opened")
            if Schedule.begin(event, self.transport.run) != updated:
                raise IntegrityError(f"the log's commit record {event.step} has other members than follow from the log")
            self.commit, self.messages, self.ended = event, dict(event.messages), current
        elif isinstance(event, MessageEvent):
            self.messages[event.worker] = event.message + 1
        self.schedule = updated

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


def schedule_before(transport: Transport, commit: CommitRecord) -> Schedule:
    """Return the schedule that `commit` ended, by the log. Raises IntegrityError, UnreachableError."""
    assert commit.previous is not None, "the first commit record ends no outer step"
    reader = Log.at(transport, commit.previous)
    while reader.epoch == commit.previous and reader.advance() is not None:
        pass
    if reader.commit != commit or reader.ended is None:
        raise IntegrityError(f"the log does not say what outer step {commit.step - 1} trained on")
    return reader.ended


# Making the log's outer steps again


def expected_at(log_: Log, state: OuterState) -> Expected:
    """Return what a contribution to the attempt under way must look like."""
    return Expected(log_.transport.run, state.step, state.digest.hex(), state.layout, log_.schedule.partition)


def make_step(
    transport: Transport,
    state: OuterState,
    commit: CommitRecord,
    ended: Schedule | None = None,
    read: ReadShard | None = None,
) -> tuple[OuterState, Admitted]:
    """Make the step from `state` that `commit` commits, and return the state and which contributions counted. `ended`:
    the schedule that `commit` ended, None to read it in the log; `read` returns a file of a payload. Raises
    IntegrityError if the step does not lead to what the log names; MissingObjectError, UnreachableError."""
    run = transport.run
    run.check_workers(commit.made_of)
    partition = (ended or schedule_before(transport, commit)).partition if run.assigned else None
    expected = Expected(run, state.step, state.digest.hex(), state.layout, partition)
    contributions = _contributions(transport, commit, expected)
    updated: OuterState | None
    too_few = partition is not None and len(partition.items) < run.settings.admission.minimum
    if not contributions and too_few:
        updated, admitted = state.skipped(), Admitted({}, {})
    else:
        try:
            updated, admitted = settle(Payloads(state, expected, contributions, read or transport.shard))
        except OuterStepError as error:
            raise IntegrityError(f"outer step {state.step}: {error.what}", _WRONG) from None
    recomputed = None if updated is None else (updated.step, updated.digest.hex(), sorted(admitted.weights))
    if updated is None or recomputed != (commit.step, commit.digest, sorted(commit.counted)):
        what = f"outer step {commit.step - 1} does not lead to the state and the workers that the log names"
        raise IntegrityError(what, _WRONG)
    return updated, admitted


def _contributions(transport: Transport, commit: CommitRecord, expected: Expected) -> dict[str, Contribution]:
    """Fetch what a committed step was made of."""
    made_of = sorted(commit.made_of.items())
    return {worker: transport.contribution(document, worker, expected) for worker, document in made_of}


def catch_up(transport: Transport, state: OuterState, log_: Log) -> Iterator[OuterState]:
    """Yield the states after `state` up to the log's newest, one by one, from a published one on where `state` is too
    old or none of the log's. Raises IntegrityError where neither leads there; MissingObjectError, UnreachableError."""
    missing: list[CommitRecord] = []
    for _, commit in log_.commits_back():
        if (commit.step, commit.digest) == (state.step, state.digest.hex()):
            break
        published = published_state(transport, commit, state)
        if published is not None:
            state = published
            yield state
            break
        missing.append(commit)
    else:
        what = "the log does not contain the state that this process holds, nor a published one"
        raise IntegrityError(what, "name the run's own base model, or another home")
    for commit in reversed(missing):
        state, _ = make_step(transport, state, commit)
        yield state


def published_state(transport: Transport, commit: CommitRecord, state: OuterState) -> OuterState | None:
    """Return the state that `commit` begins as it was published, None where it cannot be had. `state`: any of the
    run, for its layout."""
    if commit.state is None:
        return None
    try:
        held = transport.state(commit.state, commit.step, commit.digest, state.layout)
    except MusterError as error:
        log.warning("state %d cannot be had, looking for an older one: %s", commit.step, error)
        return None
    log.info("took outer state %d from the bucket", commit.step)
    return held


@dataclass(frozen=True)
class MadeStep:
    """An outer step as the log and the bucket tell it, made in attempt `attempt`. `counted`: the admitted contributions
    by worker; `files`: the files (hex) of every worker that contributed."""

    step: int
    attempt: int
    counted: Mapping[str, Contribution]
    files: Mapping[str, tuple[str, ...]]

    def worker_of(self, item: str) -> str:
        """Return whose training on a file counts; empty for nobody's."""
        return next((worker for worker, items in self.files.items() if item in items and worker in self.counted), "")


def read_step(transport: Transport, log_: Log, state: OuterState, step: int) -> MadeStep:
    """Read what made outer step `step`; `state`: any of the run. Raises IntegrityError where the log has no such step;
    MissingObjectError, UnreachableError."""
    commits: dict[int, CommitRecord] = {}
    for _, commit in log_.commits_back():
        commits[commit.step] = commit
        if commit.step <= step:
            break
    if not {step, step + 1} <= commits.keys():
        raise IntegrityError(f"outer step {step} is not in the log")
    after = commits[step + 1]
    partition = schedule_before(transport, after).partition
    expected = Expected(transport.run, step, commits[step].digest, state.layout, partition)
    contributions = _contributions(transport, after, expected)
    counted = {worker: contribution for worker, contribution in contributions.items() if worker in after.counted}
    return MadeStep(step, after.attempt, counted, {worker: expected.items(worker) for worker in contributions})


# Writing the log


def begin_log(transport: Transport, account: LocalAccount, first: OuterState) -> None:
    """Write the log's first entry, from the run's first state, unless there is one. Raises IntegrityError where its
    place is a stranger's; UnreachableError."""
    commit = CommitRecord(step=0, digest=first.digest.hex(), state=transport.publish_state(first))
    run = transport.run
    entry = LogEntry(run=run.digest, number=0, previous=NO_ENTRY, epoch=0, time=time.time(), events=[commit])
    if not transport.append(0, seal(entry, run, account)) and not transport.has_entry(0):
        raise IntegrityError(f"a stranger took the first place of the log of {run.name}", "open another run")


class LogWriter:
    """The coordinator's log: `written`, as far as it is in the bucket, and `draft`, with the `events` of the next
    entry. An entry whose write got no answer may have arrived, so it is written again byte for byte until that is
    known. A restarted coordinator reads the log to its end instead."""

    def __init__(self, written: Log, account: LocalAccount) -> None:
        self.written, self._transport, self._account = written, written.transport, account
        self._unsure: tuple[LogEntry, bytes] | None = None
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
        for number in range(self.written.number, self.written.number + MAX_TAKEN):
            epoch = number if isinstance(events[-1], CommitRecord) else self.written.epoch
            entry = LogEntry(
                run=self._transport.run.digest, number=number, previous=self.written.tip, epoch=epoch, time=time.time(),
                events=events,
            )  # fmt: skip
            self._unsure = entry, seal(entry, self._transport.run, self._account)
            if self.retry():
                return
            log.warning("place %d of the log is taken by somebody who is not its coordinator", number)
        raise IntegrityError(f"strangers took {MAX_TAKEN} places of the log", "see who writes to the bucket")

    def retry(self) -> bool:
        """Write the entry again of which it is not known whether it arrived, if there is one; return whether it is
        there, False where a stranger has its place. Raises as `write`."""
        if self._unsure is None:
            return False
        entry, data = self._unsure
        placed = self._transport.append(entry.number, data) or self._is_there(entry, data)
        self._unsure = None
        if placed:
            self.written.take(entry, sha256_hex(data))
            log.info("entry %d: %s", entry.number, "; ".join(map(_summary, entry.events)))
            self._reset()
        return placed

    def _is_there(self, entry: LogEntry, data: bytes) -> bool:
        """Return whether the taken place holds this very entry, from a try whose answer was lost. Raises IntegrityError
        where another process writes as the coordinator."""
        try:
            log_entry = self._transport.entry(entry.number, entry.previous)
        except MalformedEntry:
            return False
        if log_entry is None or log_entry[1] != sha256_hex(data):
            raise IntegrityError(f"another process wrote entry {entry.number} of the log", "run one coordinator")
        return True


def _summary(event: LogEvent) -> str:
    if isinstance(event, CommitRecord):
        return f"outer step {event.step} begins with {len(event.members)} workers, from {event.digest[:16]}…"
    return f"{event.worker}: {event.kind}" if isinstance(event, MessageEvent) else event.kind
