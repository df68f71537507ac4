"""The state of the whole suite, kept up to date with the chain's events: the one that every process uses.

A state that was published never changes again. `refresh` applies new events to a draft that copies what it touches
(`chain.draft`), and publishes the draft only when all of them are applied: so any thread may read `projection.state`
without a lock for as long as it likes, and an event is never seen half applied.
"""

import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from chain.draft import begin, finish
from chain.events import Batch, Event
from chain.reducers import apply, replay
from chain.state import State


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
