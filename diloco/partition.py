"""Which worker trains on a file or a document: exactly one, by a public rule."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from protocol.encoding import tagged_hash

MAX_ITEMS = 512  # files that one outer step may train on
_TAG = "muster.diloco.partition.v1"
_ROUNDS = 6


def owner(seed: bytes, item: bytes, workers: Iterable[str]) -> str:
    """Return the worker whose hash with the item is highest (rendezvous hashing): when members change, an item moves
    only from a worker that left or to one that joined.

    `seed`: 32 bytes; `item`: SHA-256 of a file, or a document's position in the stream of all epochs as 32 bytes.
    Raises ValueError for no workers."""
    return max(workers, key=lambda worker: (tagged_hash(_TAG, seed, item, worker), worker.lower()))


def split_evenly(seed: bytes, items: Sequence[bytes], workers: Iterable[str]) -> dict[str, tuple[bytes, ...]]:
    """Return each worker's items, whose numbers differ by one at most: both are ordered by their hashes with the seed
    and assigned round-robin. Repeated items count once."""
    ranked = sorted(set(workers), key=lambda worker: (tagged_hash(_TAG, seed, seed, worker), worker.lower()))
    ordered = sorted(set(items), key=lambda item: tagged_hash(_TAG, seed, item))
    return {worker: tuple(ordered[at :: len(ranked)]) for at, worker in enumerate(ranked)}


@dataclass(frozen=True)
class Partition:
    """How the files of one attempt at an outer step are split: `items` (hex) among `members`."""

    seed: str
    items: tuple[str, ...]
    members: tuple[str, ...]

    def of(self, worker: str) -> tuple[str, ...]:
        """Return the worker's files (hex, ascending); none for one that is no member."""
        split = split_evenly(bytes.fromhex(self.seed), [bytes.fromhex(item) for item in self.items], self.members)
        return tuple(sorted(item.hex() for item in split.get(worker, ())))


def shuffled(seed: bytes, epoch: int, at: int, count: int) -> int:
    """Return which of `count` documents is at position `at` of an epoch. Every epoch is a new permutation.

    A Feistel network over the next power of four, repeated until the result is a document, so that nobody holds the
    order in memory."""
    if not 0 <= at < count:
        raise ValueError(f"position {at} of {count} documents")
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
