"""Copied work: a proof that stands for other tokens than where it was seen before.

Honest rows may repeat: two samples of an easy problem are often equal, and then so are their proofs. A proof under
other tokens, or a long unlikely completion met twice, is a copy. The later one is blamed; `earlier` holds only
submissions that were accepted, so a thief who commits a stolen file first (its seeds are wrong) cannot blame the
victim.
"""

from collections.abc import Iterator

from eth_utils.crypto import keccak

from protocol.rollouts.schema import CHUNK_TOKENS, Rollout
from protocol.verdict import Code, Finding
from validator.case import Case, Origin
from validator.checks.base import Check, Cost, accept, refuse

SHORTEST = 8
"""Tokens below which rounding to bfloat16 could make two honest proofs equal."""

COINCIDENCE_NATS = 40.0
"""Two independent samples agree with probability exp(−surprisal): beyond this, agreement is copying."""


def fingerprints(rollout: Rollout) -> Iterator[tuple[bytes, bytes, float]]:
    """Per proof: its hash, a hash of all tokens that it depends on, and the claimed surprisal of its completion."""
    surprisal = -sum(rollout.logprobs)
    for number, proof in enumerate(rollout.proofs):
        if len(rollout.output_tokens) - number * CHUNK_TOKENS < SHORTEST:
            return
        # The row that makes token t has read tokens up to t − 1, so the chunk's last token is not in the proof.
        seen = rollout.output_tokens[: (number + 1) * CHUNK_TOKENS][:-1]
        text = b"".join(
            token.to_bytes(4, "big") for token in (len(rollout.prompt_tokens), *rollout.prompt_tokens, *seen)
        )
        yield proof, keccak(text), surprisal


def origins(case: Case) -> dict[bytes, Origin]:
    """What to add to `earlier` once a case was accepted."""
    facts = case.facts
    return {
        proof: Origin(facts.sequence, context)
        for rollout in case.rollouts
        for proof, context, _ in fingerprints(rollout)
    }


def judge(case: Case) -> Finding:
    facts = case.facts
    seen = dict(case.earlier)
    repeated = 0
    for number, rollout in enumerate(case.rollouts):
        for proof, context, surprisal in fingerprints(rollout):
            origin = seen.setdefault(proof, Origin(facts.sequence, context))
            other = origin.sequence != facts.sequence
            repeated += other
            if origin.context != context or (other and surprisal > COINCIDENCE_NATS):
                note = f"row {number} carries a proof of submission {origin.sequence}"
                return refuse("duplicates", Code.REJECT_DUPLICATE, note, row=number, origin=origin.sequence)
    return accept("duplicates", compared=len(case.earlier), repeated=repeated)


CHECK = Check("duplicates", Code.REJECT_DUPLICATE, Cost.FILE, judge)
