"""How each event changes the state: one small function per event, registered by contract and name.

Everything here is pure: the same events give the same state. Nothing is ever undone in place; after a rollback the
state is replayed from the stored history.
"""

from collections.abc import Iterable

from chain.events import Event
from chain.reducers import cases, court, governance, pools, stakes
from chain.reducers.registry import REDUCERS
from chain.state import State

__all__ = ["REDUCERS", "apply", "cases", "court", "governance", "pools", "replay", "stakes"]


def apply(state: State, event: Event) -> None:
    """Change the state, in place, as the event says. Events without meaning for it are ignored."""
    reducer = REDUCERS.get(event.key)
    if reducer is not None:
        reducer(state, event)
    state.head = max(state.head, event.block)


def replay(events: Iterable[Event]) -> State:
    """The state after `events`, in chain order."""
    state = State()
    for event in events:
        apply(state, event)
    return state
