"""Which source is asked for an object, how long it may take, and what its end tells of it.

Pure: what has come and how many seconds it took are the caller's, and so is chance: of sources that are expected to be
done at the same time the one that the caller names first is asked. `storage.spread` runs it with threads and sockets,
`python -m benchmarks spread` with thousands of nodes on a virtual network.
"""

import hashlib
import math
from collections.abc import Collection, Hashable, Iterable
from enum import Enum
from typing import Generic, TypeVar

from storage.pace import SourcePace

PATIENCE = 6.0
"""So many times as long as expected may a request take before another source is asked too."""
LEAST_PATIENCE = 1.0
SILENCE = 3.0
"""Seconds without a single byte before another source is asked too."""
SPARING = 16
"""For so many times as slow as it is passes a source that is to be spared."""
Name = TypeVar("Name", bound=Hashable)


class RequestEnd(Enum):
    """How a request ended: with the object; nobody waited for it any more; the source has no such object; with wrong
    bytes, or none."""

    WHOLE = "whole"
    ABANDONED = "abandoned"
    MISSING = "missing"
    FAILED = "failed"


class SourceChoice(Generic[Name]):
    """How every source has done, and what follows from it. Those in `spared` are asked where the others are much
    slower, or fail. Not thread-safe."""

    def __init__(self, names: Iterable[Name], spared: Collection[Name] = ()) -> None:
        self.paces = {name: SourcePace() for name in names}
        self._spared = frozenset(spared)

    def change(self, names: Iterable[Name], spared: Collection[Name] = ()) -> None:
        """Those that stay keep their pace."""
        self.paces = {name: self.paces.get(name) or SourcePace() for name in names}
        self._spared = frozenset(spared)

    def begin(self, left: Iterable[Name], likely: int, here: int) -> tuple[Name, float]:
        """Ask one of `left` for an object that is hardly larger than `likely` bytes, of which `here` are here: the one
        that is expected to be done first, and how many seconds to wait for it alone."""
        name = self._first(left, likely)
        pace = self.pace(name)
        patience = max(LEAST_PATIENCE, PATIENCE * pace.seconds(likely - here))
        pace.busy += 1
        return name, patience

    def _first(self, left: Iterable[Name], likely: int) -> Name:
        """The one of the least cost, the first of several; this is what choosing takes with many sources."""
        paces, spared = self.paces, self._spared
        best, least = list[Name](), math.inf
        for name in left:
            pace = paces.get(name) or self.pace(name)
            cost = pace.expected(likely)
            if name in spared:
                cost = SPARING * max(cost, pace.seconds(likely))
            if cost < least or not best:
                best, least = [name], cost
                if not cost:
                    break
        return best[0]

    def pace(self, name: Name) -> SourcePace:
        """Of a source that left the list meanwhile, a new one."""
        known = self.paces.get(name)
        if known is None:
            known = self.paces[name] = SourcePace()
        return known

    def overdue(self, name: Name) -> None:
        """It counts as failing until it has sent something after all."""
        self.pace(name).failed()

    def ended(
        self, pace: SourcePace, outcome: RequestEnd, size: int, seconds: float, suspects: Collection[Name] = ()
    ) -> None:
        """A request to the source of this pace ended, which itself sent `size` bytes of it. `suspects`: who else had
        sent bytes of the object that were wrong, as is known now that it came whole."""
        pace.busy -= 1
        if outcome is RequestEnd.WHOLE:
            pace.succeeded(size, seconds)
            for suspect in suspects:
                self.pace(suspect).caught()
        elif outcome is RequestEnd.ABANDONED:
            pace.overtaken(size, seconds)
        elif outcome is RequestEnd.MISSING:
            pace.missed()
        else:
            pace.failed()

    def is_spoilt(self, name: Name) -> bool:
        """Whether nobody goes on with what it leaves unfinished."""
        return (pace := self.paces.get(name)) is None or pace.spoilt


def comes_before(key: str, name: str, own: str) -> bool:
    """Whether a process that serves as `own` may ask `name` for an object: every object has an order of its own among
    those that pass it on, so no two ever wait for each other, and everybody is near the origin of some objects."""
    return place(key, name) < place(key, own)


def place(key: str, name: str) -> bytes:
    """Where a source stands in an object's order."""
    return hashlib.sha256(f"{key} {name}".encode()).digest()


def is_late(taken: float, still: float, sent: int, need: int, patience: float) -> bool:
    """Whether another source has to be asked too: this one sent `sent` of `need` bytes in `taken` seconds, and nothing
    in the last `still`."""
    if not sent:
        return taken >= min(SILENCE, patience)
    return still >= SILENCE or taken * need / sent > patience
