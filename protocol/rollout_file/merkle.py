"""Merkle tree over rollout rows that OpenZeppelin's MerkleProof verifies (docs/reference/protocol.md, section 6).

Pairs are sorted before hashing, an odd node is promoted unchanged.
"""

from collections.abc import Sequence

from protocol.encoding import keccak


def leaf(row_bytes: bytes) -> bytes:
    """Hash row bytes twice, so that no inner node can pass for a leaf."""
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
    """Return the root of a non-empty sequence of 32-byte leaves."""
    return _levels(leaves)[-1][0]


def proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return the siblings from leaf `index` up to the root; promoted levels contribute none."""
    if not 0 <= index < len(leaves):
        raise ValueError(f"no leaf {index} among {len(leaves)}")
    return proofs(leaves)[index]


def proofs(leaves: Sequence[bytes]) -> list[list[bytes]]:
    """Return the proof of every leaf."""
    inner = list(enumerate(_levels(leaves)[:-1]))
    return [
        [level[index >> height ^ 1] for height, level in inner if index >> height ^ 1 < len(level)]
        for index in range(len(leaves))
    ]
