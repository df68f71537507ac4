"""The state of the whole suite, kept up to date with the chain's events."""

from collections.abc import Iterable
from typing import Protocol

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
    """A state kept up to date with a follower. `generation` grows with every rollback: hold no records across it."""

    def __init__(self, follower: EventSource) -> None:
        self._follower = follower
        self.generation = 0
        self.state = self._replayed()

    def refresh(self) -> bool:
        """Poll the chain once; whether the state changed (new events or a rollback; not for a new head alone)."""
        batch = self._follower.poll()
        if batch.rollback_to is not None:
            self.generation += 1
            self.state = self._replayed()
            return True
        for event in batch.events:
            apply(self.state, event)
        self.state.head = batch.head
        return bool(batch.events)

    def _replayed(self) -> State:
        state = replay(self._follower.history())
        state.head = self._follower.head
        return state
