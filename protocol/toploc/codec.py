"""The 258 bytes of a TOPLOC proof: big-endian u16 modulus and 128 coefficients (docs/reference/protocol.md, 5)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from protocol.errors import MusterError

PRIME = 65497
TOP_K = 128
CHUNK = 32
PROOF_BYTES = 2 + 2 * TOP_K
MODULUS_MIN = 1 << 15  # Provers scan down from PRIME and stop far earlier
BUCKETS = 128  # Feature f of a hidden state counts in bucket f mod 128
MOST_STEPS = 3  # One value counts for at most three steps of bfloat16 (units in the last place, across exponents too)


class MalformedProof(MusterError):
    """Bytes that no prover writes, found before any arithmetic."""

    def __init__(self, what: str) -> None:
        super().__init__(f"malformed TOPLOC proof: {what}", "build it with protocol.toploc.proofs.build")


Proofs = npt.NDArray[np.int64]
"""[n, 129]: of each proof its modulus, and its coefficients by ascending powers."""


def proof_count(tokens: int) -> int:
    """Return how many proofs a completion of `tokens` tokens carries: ⌈tokens / 32⌉."""
    return -(-tokens // CHUNK)


def check_count(proofs: Sequence[bytes], tokens: int) -> None:
    """Raise MalformedProof unless there are as many as a completion of `tokens` tokens carries."""
    if len(proofs) != proof_count(tokens):
        raise MalformedProof(f"{len(proofs)} proofs for {tokens} tokens, which need {proof_count(tokens)}")


def parse_many(proofs: Sequence[bytes], tokens: int | None = None) -> Proofs:
    """Parse proofs in order; with `tokens`, their number must be that of a completion so long. Raises
    MalformedProof."""
    if tokens is not None:
        check_count(proofs, tokens)
    for number, proof in enumerate(proofs):
        if len(proof) != PROOF_BYTES:
            raise MalformedProof(f"proof {number} has {len(proof)} bytes instead of {PROOF_BYTES}")
    table = np.frombuffer(b"".join(proofs), dtype=">u2").astype(np.int64).reshape(len(proofs), 1 + TOP_K)
    moduli = table[:, 0]
    bad = np.flatnonzero((moduli < MODULUS_MIN) | (moduli > PRIME))
    if len(bad):
        raise MalformedProof(f"proof {bad[0]} has modulus {moduli[bad[0]]}, outside {MODULUS_MIN} to {PRIME}")
    bad = np.flatnonzero((table[:, 1:] >= PRIME).any(axis=1))
    if len(bad):
        raise MalformedProof(f"proof {bad[0]} has a coefficient of {PRIME} or more")
    return table


def serialise(proofs: Proofs) -> list[bytes]:
    """Return the 258 bytes of each proof."""
    return [row.tobytes() for row in proofs.astype(">u2")]


class Drift(NamedTuple):
    """Over the compared values of a completion: `sums` of signed differences, claimed − own, in steps of bfloat16, and
    `counts` of values; both int64 [BUCKETS]. Chunks of a single token are left out."""

    sums: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]

    @classmethod
    def none(cls) -> "Drift":
        return cls(np.zeros(BUCKETS, dtype=np.int64), np.zeros(BUCKETS, dtype=np.int64))
