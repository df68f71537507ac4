"""A state in the making: changes like any state, while the published one that it begins from stays as it is.

Copying 100,000 submissions for every block would be slow, so a draft copies a record when it is first looked up, and
`finish` copies only those tables of which something was looked up, each by one fast copy of references.
"""

import copy
from dataclasses import fields
from typing import Any, TypeVar

from chain.judging import Lane
from chain.state import State

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
