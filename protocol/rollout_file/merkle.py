"""Merkle tree over rollout rows that OpenZeppelin's MerkleProof verifies (docs/reference/protocol.md, section 6).

Leaves are hashed twice, pairs are sorted before hashing, an odd node is promoted unchanged.
"""

from collections.abc import Sequence

from protocol.encoding import keccak


def leaf(row_bytes: bytes) -> bytes:
    """keccak256(keccak256(row bytes)); hashed twice so that no inner node can pass for a leaf."""
    return keccak(keccak(row_bytes))


def _levels(leaves: Sequence[bytes]) -> list[list[bytes]]:
    if not leaves:
        raise ValueError("a Merkle tree needs at least one leaf")
    levels = [list(leaves)]
    while len(levels[-1]) > 1:
        below = levels[-1]
        above = [keccak(b"".join(sorted(below[i : i + 2]))) for i in range(0, len(below) - 1, 2)]
        levels.append(above + below[len(below) & ~1 :])
    return levels


def root(leaves: Sequence[bytes]) -> bytes:
    """Root of a non-empty sequence of 32-byte leaves."""
    return _levels(leaves)[-1][0]


def proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Siblings from leaf `index` up to the root; promoted levels contribute none."""
    if not 0 <= index < len(leaves):
        raise ValueError(f"no leaf {index} among {len(leaves)}")
    return _siblings(_levels(leaves), index)


def proofs(leaves: Sequence[bytes]) -> list[list[bytes]]:
    """Return the proof of every leaf, with the tree's hashes computed once."""
    levels = _levels(leaves)
    return [_siblings(levels, index) for index in range(len(leaves))]


def _siblings(levels: Sequence[list[bytes]], index: int) -> list[bytes]:
    siblings = []
    for level in levels[:-1]:
        sibling = index ^ 1
        if sibling < len(level):
            siblings.append(level[sibling])
        index >>= 1
    return siblings
