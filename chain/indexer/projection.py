"""A state in the making: changes like any state, while the published one that it begins from stays as it is.

Copying 100,000 submissions for every block would be slow, so a draft copies a record when it is first looked up, and
`finish` copies only those tables of which something was looked up, each by one fast copy of references.
"""

import copy
import threading
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any, Protocol, TypeVar

from chain.indexer.logs import Batch, Event
from chain.indexer.records import Lane
from chain.indexer.reducers import apply, replay
from chain.indexer.state import State

K = TypeVar("K")
V = TypeVar("V")
_SMALL = ("params", "pending_slashes", "roles")
"""Tables that are copied whole."""


class _Table(dict[K, V]):
    """The records of a table that a draft has looked up or added. Reducers get, set and add records by key; this does
    not support going through all of them, nor deleting one."""

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
    """A draft with the records of `published`, for reducers to change."""
    return State(**{field.name: _drafted(field.name, getattr(published, field.name)) for field in fields(State)})


def finish(draft: State) -> State:
    """The state that `draft` has become; it shares what did not change with the one that it began from."""
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
    """A record with containers of its own; frozen records in them are shared."""
    if isinstance(record, int):
        return record
    out = copy.copy(record)
    for name, value in vars(record).items():
        if isinstance(value, list | dict | set):
            setattr(out, name, value.copy())
    if isinstance(out, Lane):
        out.rounds = [_copied(one) for one in out.rounds]
    return out


# ---- The state of the whole suite, kept up to date with the chain's events


class EventSource(Protocol):
    """What a projection needs of a follower."""

    @property
    def head(self) -> int: ...
    def history(self) -> Iterable[Event]: ...
    def poll(self) -> Batch: ...


class Projection:
    """The state by the events of `source`, beginning with those that it has stored. Thread-safe.

    A state's `version` grows with every change, by new events or a rollback, not with a new head alone. `generation`
    grows with every rollback: what was derived from states of an older generation may not hold any more.
    """

    def __init__(self, source: EventSource) -> None:
        self.source = source
        self._lock = threading.Lock()
        self._generation = 0
        self._rebuild = False
        self._state = self._replayed()

    @property
    def state(self) -> State:
        """The newest state. It is read-only: later events change its successors, not this one."""
        return self._state

    def refresh(self) -> bool:
        """Poll the chain once; whether the state changed. Raises UnreachableError when the chain does not answer.

        When a reducer fails, its error is raised and the state stays as it was; the next refresh rebuilds it from the
        stored history, because the source does not hand out the same events twice.
        """
        with self._lock:
            batch = self.source.poll()
            self._generation += batch.rollback_to is not None
            rebuild = self._rebuild or batch.rollback_to is not None
            self._rebuild = True
            state = self._replayed() if rebuild else self._advanced(batch)
            self._rebuild = False
            changed = rebuild or bool(batch.events)
            state.version = self._state.version + changed
            state.generation = self._generation
            self._state = state
            return changed

    def _replayed(self) -> State:
        state = replay(self.source.history())
        state.head = self.source.head
        return state

    def _advanced(self, batch: Batch) -> State:
        if not batch.events:
            return replace(self._state, head=batch.head)
        draft = begin(self._state)
        for event in batch.events:
            apply(draft, event)
        draft.head = batch.head
        return finish(draft)
