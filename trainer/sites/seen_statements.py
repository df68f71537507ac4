"""What sites and keeper of a run have signed, as far as it was seen: so that a second statement is noticed that cannot
be true beside the first."""

from collections import OrderedDict
from typing import Generic, TypeVar

from protocol.sites.notes import SiteNote

K = TypeVar("K")
_NOTE_ROOM, _LOG_ROOM = 1 << 20, 1 << 24
"""Bytes: of each site some 2,000 contributions, of the log thousands of entries."""


class SeenStatements:
    """Of one run. What is oldest is forgotten where there is no room."""

    def __init__(self) -> None:
        self._signed: dict[str, _Kept[tuple[int, int]]] = {}
        self._entries: _Kept[int] = _Kept(_LOG_ROOM)

    def signed(self, note: SiteNote, data: bytes) -> bytes:
        """Of a note that signs a contribution, the first one seen of its site for that attempt: `data`, its own stored
        bytes, where there was none."""
        kept = self._signed.setdefault(note.site, _Kept(_NOTE_ROOM))
        return kept.first((note.step, note.attempt), data)

    def entry(self, number: int, data: bytes) -> bytes:
        """The first entry seen at a place of the log: `data` where there was none."""
        return self._entries.first(number, data)

    def entry_at(self, number: int) -> bytes | None:
        return self._entries.get(number)


class _Kept(Generic[K]):
    """By key what was said first, `room` bytes in all."""

    def __init__(self, room: int) -> None:
        self._room, self._said, self._bytes = room, OrderedDict[K, bytes](), 0

    def first(self, key: K, data: bytes) -> bytes:
        known = self._said.get(key)
        if known is not None:
            return known
        self._said[key] = data
        self._bytes += len(data)
        while self._bytes > self._room:
            _, forgotten = self._said.popitem(last=False)
            self._bytes -= len(forgotten)
        return data

    def get(self, key: K) -> bytes | None:
        return self._said.get(key)
