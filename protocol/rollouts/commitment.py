"""What a worker commits to on chain: the file's SHA-256, the Merkle root of its rows, and its paid units."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from protocol.rollouts import merkle
from protocol.rollouts.rowbytes import encode_row
from protocol.rollouts.schema import Rollout


@dataclass(frozen=True)
class Commitment:
    """`sha256` and `root` have 32 bytes; `units` = sum of output tokens, EOS included."""

    sha256: bytes
    root: bytes
    units: int
    rows: int


def leaves(rollouts: Sequence[Rollout]) -> list[bytes]:
    """The Merkle leaves of a file's rows, in row order."""
    return [merkle.leaf(encode_row(rollout)) for rollout in rollouts]


def commit(data: bytes, rollouts: Sequence[Rollout]) -> Commitment:
    """The commitment of a file's bytes and its (non-empty) rows."""
    units = sum(len(rollout.output_tokens) for rollout in rollouts)
    return Commitment(hashlib.sha256(data).digest(), merkle.root(leaves(rollouts)), units, len(rollouts))


def inclusion(rollouts: Sequence[Rollout], row: int) -> tuple[bytes, list[bytes]]:
    """Row bytes and Merkle siblings of one row: what a dispute or a canary opening shows the contract."""
    return encode_row(rollouts[row]), merkle.proof(leaves(rollouts), row)
