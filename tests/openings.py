"""What OpenZeppelin's MerkleProof does on chain with an opening."""

from collections.abc import Sequence

from eth_utils.crypto import keccak


def verify(expected_root: bytes, leaf_hash: bytes, siblings: Sequence[bytes]) -> bool:
    """Whether `leaf_hash` lies under `expected_root`; pairs are sorted before hashing."""
    node = leaf_hash
    for sibling in siblings:
        if len(sibling) != 32:
            return False
        node = keccak(min(node, sibling) + max(node, sibling))
    return node == expected_root
