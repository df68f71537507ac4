"""The state of the whole suite, kept up to date with the chain's events: the one that every process reads.

A published state never changes. `refresh` applies new events to a draft that copies what it touches, and publishes the
draft when all of them are applied, so any thread may read `projection.state` without a lock for as long as it likes.

A checkpoint of the state at finality is kept on disk, and lanes that are final leave the state for the archive. Memory,
a turn, a restart and a reorganisation therefore cost what is not final, whatever the length of the history.
"""

import copy
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from chain.indexer.logs import Batch, Event
from chain.indexer.records import FileNumbers, Lane
from chain.indexer.reducers import apply
from chain.indexer.state import Records, State
from chain.indexer.store import Archive, FileKey, FinalLane
from protocol.errors import MusterError

K = TypeVar("K")
V = TypeVar("V")
FINAL_BLOCKS = 512  # below the head that no reorganisation is expected to reach: about 17 minutes on Base
_SMALL = ("params", "pending_slashes", "roles")  # tables that are copied whole
_FILE_TABLES = ("submissions", "lanes", "mirrors")
_MOST_RECENT = 20_000  # events of a stored history between two checkpoints


class _Table(dict[K, V]):
    """The records of a table that a draft has copied, as they were looked up, or added. Reducers get, set and add
    records by key only."""

    def __init__(self, published: dict[K, V]) -> None:
        super().__init__()
        self.published = published

    def __missing__(self, key: K) -> V:
        record = self[key] = _copied(self.published[key])
        return record

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self.published

    def get(self, key: K, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def setdefault(self, key: K, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]


def _advanced(state: State, events: Iterable[Event]) -> State:
    draft = State(**{field.name: _drafted(field.name, getattr(state, field.name)) for field in fields(State)})
    for event in events:
        apply(draft, event)
    return State(**{field.name: _finished(getattr(draft, field.name)) for field in fields(State)})


def _drafted(name: str, value: Any) -> Any:
    if isinstance(value, list) or name in _SMALL:
        return value.copy()
    return _Table(value) if isinstance(value, dict) else value


def _finished(value: Any) -> Any:
    if not isinstance(value, _Table):
        return value
    published = value.published
    if not value:
        return published
    return Records(published | value, published.archived) if isinstance(published, Records) else published | value


def _copied(record: V) -> V:
    if isinstance(record, int):
        return record
    out = copy.copy(record)
    for name, value in vars(record).items():
        if isinstance(value, list | dict | set | FileNumbers):
            setattr(out, name, copy.copy(value))
    if isinstance(out, Lane):
        out.rounds = [_copied(entry) for entry in out.rounds]
    return out


# What is final


def _with_archive(state: State, archive: Archive) -> State:
    def archived(table: str, key: FileKey) -> Any:
        pool, number = key
        lane = archive.lane(pool, number if table == "lanes" else number >> 4)
        return lane and lane[table].get(key)

    tables: dict[str, Any] = {name: Records(getattr(state, name), partial(archived, name)) for name in _FILE_TABLES}
    state = replace(state, archive=archive, **tables)
    for key, numbers in _numbers(state):
        numbers.read = partial(archive.numbers, *key)
    return state


def _numbers(state: State) -> Iterator[tuple[tuple[int, str], FileNumbers]]:
    """Yield the numbers of each pool's files, and of each node's in it, by pool and node."""
    for pool in state.pools.values():
        yield (pool.pool, ""), pool.sequences
    for key, account in state.accounts.items():
        yield key, account.sequences


def _is_final(state: State, lane: Lane) -> bool:
    files, keys = state.files_of(lane), [(lane.pool, sequence) for sequence in lane.sequences]
    return (
        all(file.is_final(state.time) and not file.disputed for file in files)
        and not any(closed_round.duties for closed_round in lane.rounds if closed_round.settled)
        and not any(state.accounts[file.pool, file.node].frozen for file in files)
        and all((key not in state.disputes or state.disputes[key].resolved) for key in keys)
        and all((key not in state.canaries or state.canaries[key].concluded) for key in keys)
    )


def _with_files(state: State, lane: Lane) -> FinalLane:
    keys = [(lane.pool, sequence) for sequence in lane.sequences]
    mirrors = {key: state.mirrors[key] for key in keys if key in state.mirrors}
    files = {key: state.submissions[key] for key in keys}
    return {"lanes": {(lane.pool, lane.lane): lane}, "submissions": files, "mirrors": mirrors}


def _without(state: State, lanes: Iterable[FinalLane], payments: int) -> State:
    tables: dict[str, Any] = {name: copy.copy(getattr(state, name)) for name in _FILE_TABLES}
    accounts, pools = dict(state.accounts), dict(state.pools)
    for lane in lanes:
        for name in _FILE_TABLES:
            for key in lane[name]:
                tables[name].pop(key, None)
        for file in lane["submissions"].values():
            account = accounts[file.pool, file.node]
            hint = state.submissions[file.pool, account.archived_hint] if account.archived_hint >= 0 else None
            claimable = file.cumulative > account.units_spent and file.final_time <= (account.barrier or 1 << 62)
            if claimable and (hint is None or file.cumulative > hint.cumulative):
                accounts[file.pool, file.node] = replace(account, archived_hint=file.sequence)
    for of, numbers in _numbers(state):
        # Those behind a file that is not final stay: a search for those that are not begins with them.
        live = (dict.__contains__(tables["lanes"], (of[0], number >> 4)) for number in numbers.kept)
        gone = next((position for position, here in enumerate(live) if here), len(numbers.kept))
        if gone:
            shorter = numbers.after(gone, partial(state.archive.numbers, *of))
            if of[1]:
                accounts[of] = replace(accounts[of], sequences=shorter)
            else:
                pools[of[0]] = replace(pools[of[0]], sequences=shorter)
    archived, left = state.archived_payments + payments, state.payments[payments:]
    return replace(state, accounts=accounts, pools=pools, payments=left, archived_payments=archived, **tables)


class EventSource(Protocol):
    """What a projection needs of a follower."""

    @property
    def head(self) -> int: ...
    @property
    def archive(self) -> Archive: ...
    def history(self, after: int = -1) -> Iterable[Event]: ...
    def poll(self) -> Batch: ...


class Projection:
    """The state by the events of `source`, beginning with those that it has stored. Thread-safe.

    A state's `version` grows with every change, not with a new head alone; its `generation` with every rollback, after
    which what was derived from older states may be wrong.
    """

    def __init__(self, source: EventSource) -> None:
        self.source = source
        self._archive = source.archive
        self._lock = threading.Lock()
        self._generation = 0
        self._rebuild = self._replay = False
        self._checkpoint, self._recent = State(), list[Event]()
        self._state = self._replayed()

    @property
    def state(self) -> State:
        """The newest state, which is read-only: later events change its successors, not this one."""
        return self._state

    def refresh(self) -> bool:
        """Follow the chain to its head; return whether the state changed. Raises UnreachableError when the chain does
        not answer, MusterError when the disk is full, and a failing reducer's error: the state stays as it was, and the
        next refresh rebuilds it."""
        with self._lock:
            batch, changed = self.source.poll(), False
            while batch.more:
                changed |= self._take(batch)
                batch = self.source.poll()
            return self._take(batch) or changed

    def _take(self, batch: Batch) -> bool:
        rolled_back = batch.rollback_to is not None
        self._generation += rolled_back
        rebuild = self._rebuild or rolled_back
        self._rebuild = True
        if batch.rollback_to is not None:
            self._recent = [event for event in self._recent if event.block <= batch.rollback_to]
            self._replay = self._replay or batch.rollback_to < self._checkpoint.head
        self._recent += batch.events
        if self._replay:
            self._archive.clear()
            state = self._replayed()
        elif rebuild:
            state = _advanced(self._checkpoint, self._recent)
        else:
            state = _advanced(self._state, batch.events) if batch.events else replace(self._state)
        state.head = batch.head
        self._rebuild = self._replay = False
        changed = rebuild or bool(batch.events)
        state.version = self._state.version + changed
        state.generation = self._generation
        self._state = state
        if state.head - FINAL_BLOCKS >= self._checkpoint.head + FINAL_BLOCKS:
            self._state = self._settled(state.head - FINAL_BLOCKS, state)
        return changed

    def _replayed(self) -> State:
        stored = self._archive.load()
        self._checkpoint, self._recent = _with_archive(State(**(stored or {})), self._archive), []
        final = self.source.head - FINAL_BLOCKS
        for event in self.source.history(self._checkpoint.head if stored else -1):
            if len(self._recent) >= _MOST_RECENT and self._recent[-1].block < min(event.block, final + 1):
                self._settled(self._recent[-1].block)
            self._recent.append(event)
        if final > self._checkpoint.head:
            self._settled(final)
        state = _advanced(self._checkpoint, self._recent)
        state.head = self.source.head
        return state

    def _settled(self, final: int, current: State | None = None) -> State:
        """Move the checkpoint to block `final`, and lanes that are final to the archive. Return `current` without
        them; what differs there, because of events above the block, stays."""
        checkpoint = _advanced(self._checkpoint, [event for event in self._recent if event.block <= final])
        checkpoint.head = final
        state = current or checkpoint
        keys = {*checkpoint.lanes} | {(pool, sequence >> 4) for pool, sequence in checkpoint.submissions}
        touched = {key: checkpoint.lanes[key] for key in sorted(keys)}
        final_lanes = {key: lane for key, lane in touched.items() if _is_final(checkpoint, lane)}
        lanes = {key: _with_files(checkpoint, lane) for key, lane in final_lanes.items()}
        if current is not None:
            for key, lane in final_lanes.items():
                if _with_files(current, lane) != lanes[key] or not _is_final(current, lane):
                    del lanes[key]
        payments, before = checkpoint.payments, dict(_numbers(checkpoint))
        checkpoint = _without(checkpoint, lanes.values(), len(payments))
        tables = {field.name: getattr(checkpoint, field.name) for field in fields(State) if field.name != "archive"}
        tables |= {name: dict(tables[name]) for name in _FILE_TABLES}
        numbers = {
            (*key, before[key].archived): before[key].kept[: after.archived - before[key].archived]
            for key, after in _numbers(checkpoint)
        }
        try:
            self._archive.save(final, tables, lanes, payments, numbers)
        except sqlite3.OperationalError as error:
            raise MusterError(f"the archive cannot be written: {error}", "make room on its disk") from None
        self._checkpoint = checkpoint
        self._recent = [event for event in self._recent if event.block > final]
        return _without(state, lanes.values(), len(payments))
