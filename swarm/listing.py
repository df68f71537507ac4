"""What a listing of envelopes says of each, and which of them are fetched: of every sharer as many."""

import heapq
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

PREFIX = "envelopes/"
_PLACE = re.compile(rf"({PREFIX})(?:(0x[0-9a-f]{{40}})/)?([0-9a-f]{{64}}\.json)")


class ListingEntry(NamedTuple):
    """`key`: its content address. `sharer`: whose it is said to be, an address in lower case; empty where nobody says
    it. Whoever may write to an exchange may say what it likes: the envelope's signature decides."""

    key: str
    sharer: str = ""

    @property
    def place(self) -> str:
        """Where it lies: below its sharer's address, or at its content address."""
        return f"{PREFIX}{self.sharer}/{self.key[len(PREFIX) :]}" if self.sharer else self.key

    @classmethod
    def at(cls, place: str) -> "ListingEntry | None":
        """What lies there; None where no envelope does."""
        found = _PLACE.fullmatch(place)
        return None if found is None else cls(found[1] + found[3], found[2] or "")


Rank = Callable[[ListingEntry], tuple[bool, bytes]]
"""Whether it is to come last, and a hash that nobody else can foresee: the order of one sharer's."""


def same_turns(
    listed: Iterable[ListingEntry], most: int, rank: Rank, order: Callable[[str], bytes]
) -> list[ListingEntry]:
    """At most `most`: one of each sharer before a second of anybody. So who shares eight times as much is fetched no
    more often than others; those of whom nobody says whose they are count as one sharer's. Those that are to come last
    come after all others.

    `order` of the sharers within a turn, by a hash that differs from round to round: by the ranks of what they left,
    the least of eight hashes would come before most others' only one."""
    by_sharer: defaultdict[str, list[tuple[tuple[bool, bytes], ListingEntry]]] = defaultdict(list)
    for one in listed:
        those = by_sharer[one.sharer]
        those.append((rank(one), one))
        if len(those) >= 4 * most:
            # A flood below one address is not held in memory.
            those.sort()
            del those[most:]
    turns = []
    for sharer, those in by_sharer.items():
        place = order(sharer)
        turns += [(last, turn, place, one) for turn, ((last, _), one) in enumerate(sorted(those)[:most])]
    return [one for *_, one in heapq.nsmallest(most, turns)]
