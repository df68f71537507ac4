"""Repetitions within one file: proofs that stand for several texts, and improbable texts that occur twice."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from protocol.proofs.codec import CHUNK
from protocol.rollouts.schema import Rollout

SHORTEST = 8
"""Tokens below which rounding to bfloat16 could make proofs of different texts equal."""

COINCIDENCE_NATS = 40.0
"""Two independent samples agree with probability exp(−surprisal): beyond this, agreement is copying."""


@dataclass(frozen=True)
class Repeats:
    """`ambiguous`: rows with a proof that stands for other tokens elsewhere in the file, or in the same row.
    `copied`: (row, earlier row) where a row repeats text too improbable for chance."""

    ambiguous: tuple[int, ...]
    copied: tuple[tuple[int, int], ...]


def repeats(rollouts: Sequence[Rollout]) -> Repeats:
    """What a file says twice; a function of the file alone, so that every verifier finds the same."""
    seen: dict[bytes, tuple[bytes, int]] = {}
    ambiguous: set[int] = set()
    copied: dict[int, int] = {}
    for number, rollout in enumerate(rollouts):
        for proof, context, surprisal in fingerprints(rollout):
            first, row = seen.setdefault(proof, (context, number))
            if first != context:
                ambiguous |= {number, row}
            elif row != number and surprisal > COINCIDENCE_NATS:
                copied.setdefault(number, row)
    return Repeats(tuple(sorted(ambiguous)), tuple(sorted(copied.items())))


def fingerprints(rollout: Rollout) -> Iterator[tuple[bytes, bytes, float]]:
    """Per proof: the proof, a SHA-256 of all tokens that it depends on, and the claimed surprisal (nats) of those of
    them that were generated."""
    prompt = b"".join(_word(token) for token in (len(rollout.prompt_tokens), *rollout.prompt_tokens))
    running, surprisal = hashlib.sha256(prompt), 0.0
    for number, proof in enumerate(rollout.proofs):
        start, end = number * CHUNK, min((number + 1) * CHUNK, len(rollout.output_tokens))
        if end - start < SHORTEST:
            return
        # The row that makes token t has read tokens up to t − 1, so the chunk's last token is not in the proof.
        running.update(b"".join(_word(token) for token in rollout.output_tokens[start : end - 1]))
        surprisal -= math.fsum(rollout.logprobs[start : end - 1])
        yield proof, running.digest(), surprisal
        running.update(_word(rollout.output_tokens[end - 1]))
        surprisal -= rollout.logprobs[end - 1]


def _word(token: int) -> bytes:
    return token.to_bytes(4, "big")
