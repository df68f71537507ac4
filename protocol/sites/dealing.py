"""Which site trains on an accepted file, or on a document of a text run: exactly one, by a public rule."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from protocol.encoding import tagged_hash

MAX_ITEMS = 512
"""That one outer step is given."""
_TAG = "muster.sites.dealing.v1"
_ROUNDS = 6


def dealt_to(seed: bytes, item: bytes, sites: Iterable[str]) -> str:
    """The one of `sites` (addresses) whose hash with the item is highest: when others leave or join, an item moves only
    from a site that left or to one that joined. `seed`: 32 bytes, public, of the run; `item`: SHA-256 of the file, or
    the document's place in the stream of all epochs as 32 bytes. Raises ValueError for no sites."""
    return max(sites, key=lambda site: (tagged_hash(_TAG, seed, item, site), site.lower()))


def dealt_evenly(seed: bytes, items: Sequence[bytes], sites: Iterable[str]) -> dict[str, tuple[bytes, ...]]:
    """Of each of `sites` those of the `items` that it gets, numbers of them that differ by one at most: both are put in
    the order of their hashes with the seed, and dealt round and round. Items that occur twice count once."""
    ranked = sorted(set(sites), key=lambda site: (tagged_hash(_TAG, seed, seed, site), site.lower()))
    ordered = sorted(set(items), key=lambda item: tagged_hash(_TAG, seed, item))
    return {site: tuple(ordered[at :: len(ranked)]) for at, site in enumerate(ranked)}


@dataclass(frozen=True)
class Dealing:
    """How the log deals an attempt at an outer step: `items` (32 bytes each) to `members`, by the run's `seed`."""

    seed: bytes
    items: tuple[bytes, ...]
    members: tuple[str, ...]

    def of(self, site: str) -> tuple[str, ...]:
        """What `site` trains on, and nobody else does, in hex and ascending order: none for who is no member."""
        return tuple(sorted(item.hex() for item in dealt_evenly(self.seed, self.items, self.members).get(site, ())))


def shuffled(seed: bytes, epoch: int, at: int, count: int) -> int:
    """Which of `count` documents stands at place `at` of an epoch: each at exactly one, in an order that the seed
    decides anew every epoch. A Feistel network over the next power of four, repeated until it falls among the
    documents, so that nobody has to hold the order in memory."""
    if not 0 <= at < count:
        raise ValueError(f"place {at} of {count} documents")
    bits = ((count - 1).bit_length() + 1) // 2
    mask, key = (1 << bits) - 1, seed + epoch.to_bytes(8, "big")
    while True:
        left, right = at >> bits, at & mask
        for round_ in range(_ROUNDS):
            word = hashlib.sha256(key + bytes([round_]) + right.to_bytes(8, "big")).digest()
            left, right = right, left ^ (int.from_bytes(word[:8], "big") & mask)
        at = left << bits | right
        if at < count:
            return at
