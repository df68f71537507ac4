"""Repetitions within one file: proofs that stand for several texts, and improbable texts that occur twice."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from protocol.rollout_file.rows import Inserted, Rollout
from protocol.toploc.codec import CHUNK

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


def repeats(rollouts: Sequence[Rollout], inserted: Sequence[Inserted]) -> Repeats:
    """What a file says twice; a function of the file and of the replies `inserted` in its rows, so that every verifier
    finds the same."""
    seen: dict[bytes, tuple[bytes, int]] = {}
    ambiguous: set[int] = set()
    copied: dict[int, int] = {}
    for number, (rollout, replies) in enumerate(zip(rollouts, inserted, strict=True)):
        for proof, context, surprisal in fingerprints(rollout, replies):
            first, row = seen.setdefault(proof, (context, number))
            if first != context:
                ambiguous |= {number, row}
            elif row != number and surprisal > COINCIDENCE_NATS:
                copied.setdefault(number, row)
    return Repeats(tuple(sorted(ambiguous)), tuple(sorted(copied.items())))


def fingerprints(rollout: Rollout, inserted: Inserted = ()) -> Iterator[tuple[bytes, bytes, float]]:
    """Per proof: the proof, a SHA-256 of all tokens that it depends on, replies and where they stand included, and the
    claimed surprisal (nats) of those of them that were generated."""
    running, surprisal, replies = hashlib.sha256(_words(rollout.prompt_tokens)), 0.0, dict(inserted)
    for number, proof in enumerate(rollout.proofs):
        start, end = number * CHUNK, min((number + 1) * CHUNK, len(rollout.output_tokens))
        if end - start < SHORTEST:
            return
        # The row that makes token t has read what stands before it, so the chunk's last token is not in the proof.
        read = []
        for place in range(start, end):
            if place in replies:
                read.append(_REPLY + _words(replies[place]))
            if place < end - 1:
                read.append(_word(rollout.output_tokens[place]))
        running.update(b"".join(read))
        surprisal -= math.fsum(rollout.logprobs[start : end - 1])
        yield proof, running.digest(), surprisal
        running.update(_word(rollout.output_tokens[end - 1]))
        surprisal -= rollout.logprobs[end - 1]


_REPLY = b"\xff\xff\xff\xff"
"""No token: those of a file are below 2**31."""


def _words(tokens: Sequence[int]) -> bytes:
    return b"".join(_word(token) for token in (len(tokens), *tokens))


def _word(token: int) -> bytes:
    return token.to_bytes(4, "big")
