"""The state of the whole suite, kept up to date with the chain's events: the one that every process reads.

A published state never changes. `refresh` applies new events to a draft that copies what it touches, and publishes the
draft when all of them are applied, so any thread may read `projection.state` without a lock for as long as it likes.

Copying 100,000 submissions for every block would be slow. A draft therefore copies a record when it is first looked up,
and `finish` copies only the tables of which something was looked up, each by one fast copy of references.
"""

import copy
import threading
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any, Protocol, TypeVar

from chain.indexer.logs import Batch, Event
from chain.indexer.records import Lane
from chain.indexer.reducers import apply
from chain.indexer.state import State

K = TypeVar("K")
V = TypeVar("V")
_SMALL = ("params", "pending_slashes", "roles")
"""Tables that are copied whole."""


class _Table(dict[K, V]):
    """The records of a table that a draft has looked up or added. Reducers get, set and add records by key; iterating
    and deleting are not supported."""

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


def begin(published: State) -> State:
    """Return a draft with the records of `published`, for reducers to change."""
    return State(**{field.name: _drafted(field.name, getattr(published, field.name)) for field in fields(State)})


def finish(draft: State) -> State:
    """Return the state that `draft` has become; it shares what did not change with the state it started from."""
    return State(**{field.name: _finished(getattr(draft, field.name)) for field in fields(State)})


def _drafted(name: str, value: Any) -> Any:
    if isinstance(value, list) or name in _SMALL:
        return value.copy()
    return _Table(value) if isinstance(value, dict) else value


def _finished(value: Any) -> Any:
    if not isinstance(value, _Table):
        return value
    return value.published | value if value else value.published


def _copied(record: V) -> V:
    """A copy of a record with its own containers; frozen records in them are shared."""
    if isinstance(record, int):
        return record
    out = copy.copy(record)
    for name, value in vars(record).items():
        if isinstance(value, list | dict | set):
            setattr(out, name, value.copy())
    if isinstance(out, Lane):
        out.rounds = [_copied(one) for one in out.rounds]
    return out


# ---- The projection


FINAL_BLOCKS = 512
"""Blocks below the head that no reorganisation is expected to reach: about 17 minutes on Base."""


class EventSource(Protocol):
    """What a projection needs of a follower."""

    @property
    def head(self) -> int: ...
    def history(self) -> Iterable[Event]: ...
    def poll(self) -> Batch: ...


class Projection:
    """The state by the events of `source`, beginning with those that it has stored. Thread-safe.

    A state's `version` grows with every change, by new events or a rollback, not with a new head alone. `generation`
    grows with every rollback: what was derived from states of an older generation may be wrong.

    A checkpoint of the state at finality and the events after it are kept, so that a reorganisation costs what is not
    final, whatever the length of the history.
    """

    def __init__(self, source: EventSource) -> None:
        self.source = source
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
        """Poll the chain once; return whether the state changed. Raises UnreachableError when the chain does not
        answer.

        When a reducer fails, its error is raised and the state stays as it was. The next refresh rebuilds it, because
        the source does not deliver the same events twice.
        """
        with self._lock:
            batch = self.source.poll()
            rolled_back = batch.rollback_to is not None
            self._generation += rolled_back
            rebuild = self._rebuild or rolled_back
            self._rebuild = True
            if batch.rollback_to is not None:
                self._recent = [event for event in self._recent if event.block <= batch.rollback_to]
                self._replay = self._replay or batch.rollback_to < self._checkpoint.head
            self._recent += batch.events
            if self._replay:
                state = self._replayed()
            else:
                state = self._advanced(self._checkpoint, self._recent) if rebuild else self._appended(batch.events)
                state.head = batch.head
            self._rebuild = self._replay = False
            changed = rebuild or bool(batch.events)
            state.version = self._state.version + changed
            state.generation = self._generation
            self._state = state
            self._move_checkpoint()
            return changed

    def _replayed(self) -> State:
        """The state by the whole stored history, and a new checkpoint."""
        checkpoint, recent, final = State(), list[Event](), self.source.head - FINAL_BLOCKS
        for event in self.source.history():
            if event.block <= final:
                apply(checkpoint, event)
            else:
                recent.append(event)
        checkpoint.head = max(final, 0)
        state = self._advanced(checkpoint, recent)
        state.head = self.source.head
        self._checkpoint, self._recent = checkpoint, recent
        return state

    def _appended(self, events: list[Event]) -> State:
        return self._advanced(self._state, events) if events else replace(self._state)

    def _advanced(self, state: State, events: list[Event]) -> State:
        draft = begin(state)
        for event in events:
            apply(draft, event)
        return finish(draft)

    def _move_checkpoint(self) -> None:
        """Move it every FINAL_BLOCKS, since each move copies the tables that changed."""
        final = self._state.head - FINAL_BLOCKS
        if final >= self._checkpoint.head + FINAL_BLOCKS:
            checkpoint = self._advanced(self._checkpoint, [event for event in self._recent if event.block <= final])
            checkpoint.head = final
            self._checkpoint, self._recent = checkpoint, [event for event in self._recent if event.block > final]
