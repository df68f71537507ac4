"""The Merkle root over a member's envelopes of several rounds, which it records on chain in one transaction.

A leaf binds the round, the root of the envelope's groups, which its signature covers, and the SHA-256 of its bytes, by
which anybody finds them: so whoever has an envelope and a proof can show that the member stood by it, and when.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.encoding import HEX_RECORD, Bytes32, encode_words
from protocol.rollout_file import merkle


@dataclass(frozen=True)
class SharedRound:
    """What a member shared of one round: `root` over its groups, `sha256` of the stored bytes, how many `groups`."""

    __pydantic_config__ = HEX_RECORD

    round: int
    root: Bytes32
    sha256: Bytes32
    groups: int

    @property
    def leaf(self) -> bytes:
        return merkle.leaf(encode_words(self.round, self.root, self.sha256))


def rounds_root(shared: Sequence[SharedRound]) -> bytes:
    """Root over rounds in ascending order, at least one."""
    return merkle.root([one.leaf for one in shared])


def round_proof(shared: Sequence[SharedRound], number: int) -> list[bytes]:
    """Siblings from round `number` up to the root. Raises ValueError where it is not among them."""
    index = [one.round for one in shared].index(number)
    return merkle.proof([one.leaf for one in shared], index)


def is_under(shared: SharedRound, proof: Sequence[bytes], root: bytes) -> bool:
    """Whether a recorded root covers that envelope."""
    return merkle.root_above(shared.leaf, proof) == root
