"""What checks judge: a file, what the chain says of it, and the measurements of the verifier's own prefill."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from environments.pool import PoolEnvironments
from protocol.config import PoolConfig
from protocol.rollout_file.rows import Commitment, Inserted, Rollout, RolloutHeader, Tokens, Transcript
from protocol.seeds import Work, audit_sample
from protocol.toploc.codec import CHUNK, Drift
from protocol.verdict import Code, Finding, Verdict

SHORTEST = 8  # tokens below which rounding to bfloat16 could make proofs of different texts equal
# Two independent samples agree with probability exp(−surprisal): beyond this, agreement is copying.
COINCIDENCE_NATS = 40.0
_REPLY = b"\xff\xff\xff\xff"  # no token: those of a file are below 2**31


@dataclass(frozen=True)
class Repeats:
    """`ambiguous`: rows with a proof that stands for other tokens elsewhere in the file, or in the same row.
    `copied`: (row, earlier row) where a row repeats text too improbable for chance."""

    ambiguous: tuple[int, ...]
    copied: tuple[tuple[int, int], ...]


def repeats(rollouts: Sequence[Rollout], inserted: Sequence[Inserted]) -> Repeats:
    """Find what a file says twice; a function of the file and of the replies `inserted` in its rows, so that every
    verifier finds the same."""
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
    """Yield for each proof: the proof, a SHA-256 of all tokens that it depends on (replies and their positions
    included), and the claimed surprisal in nats of those tokens that were generated."""
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


def _words(tokens: Sequence[int]) -> bytes:
    return b"".join(map(_word, (len(tokens), *tokens)))


def _word(token: int) -> bytes:
    return token.to_bytes(4, "big")


@dataclass(frozen=True)
class SubmissionFacts:
    """One submission as the chain knows it: its work, what the worker committed to, its number in the pool, the seed
    that draws the audit sample (32 bytes), and the audit rate (in 1/65536)."""

    work: Work
    commitment: Commitment
    sequence: int
    lane_seed: bytes
    audit_rate: int


def verdict_on(
    facts: SubmissionFacts,
    config_hash: bytes,
    code: Code,
    engine: dict[str, str],
    audited: Sequence[int] = (),
    findings: Sequence[Finding] = (),
) -> Verdict:
    """Return the verdict `code` on a submission to a pool of this configuration, with what it rests on."""
    return Verdict(
        **facts.work.id.flat(),
        sequence=facts.sequence,
        sha256=facts.commitment.sha256.hex(),
        lane_seed=facts.lane_seed.hex(),
        config_hash=config_hash.hex(),
        code=code,
        engine=engine,
        audited=list(audited),
        findings=tuple(findings),
    )


def not_judged(facts: SubmissionFacts, config_hash: bytes, why: str) -> Verdict:
    """Return `unavailable`, for a file that was not judged."""
    finding = Finding("answer", Code.UNAVAILABLE, {}, why)
    return verdict_on(facts, config_hash, Code.UNAVAILABLE, {}, findings=(finding,))


@dataclass(frozen=True)
class RowMeasurements:
    """What one rollout's prefill says.

    Per chunk of 32 tokens: `mismatches` (exponents of the claimed top activations that differ, count) and `mantissas`
    (mean difference of mantissas, 0 to 127; 128 where no exponent matches; 0 for a chunk of one token). Per token:
    `gaps` (score of the best token minus the chosen one's, ≥ 0), `logprobs` (own ln p of the chosen token), `expected`
    (own ln p of the best one). `surprise` and `overconfidence` are the logarithms of two e-values
    (validator/judging/measurements.py); `eos_probability` is that of the final token if it is an EOS. `drift` says
    which way activations are off.
    """

    row: int
    mismatches: tuple[int, ...]
    mantissas: tuple[float, ...]
    gaps: tuple[float, ...]
    logprobs: tuple[float, ...]
    expected: tuple[float, ...]
    surprise: float
    overconfidence: float
    eos_probability: float | None
    drift: Drift = field(default_factory=Drift.none, compare=False)


@dataclass(frozen=True)
class CheckContext:
    """One submission as checks see it. `measurements` is None until the audited rows were prefilled."""

    facts: SubmissionFacts
    config: PoolConfig
    environment: PoolEnvironments
    data: bytes
    header: RolloutHeader
    rollouts: tuple[Rollout, ...]
    measurements: tuple[RowMeasurements, ...] | None = None
    _transcripts: dict[tuple[int, Tokens], Transcript] = field(default_factory=dict, repr=False, compare=False)

    def transcript(self, row: Rollout) -> Transcript:
        """Return a row with the environment's replies, which are computed once."""
        key = row.problem_seed, row.output_tokens
        if key not in self._transcripts:
            self._transcripts[key] = self.environment.transcript(*key)
        return self._transcripts[key]

    @cached_property
    def repeats(self) -> Repeats:
        return repeats(self.rollouts, [self.transcript(row).inserted for row in self.rollouts])

    @cached_property
    def audited(self) -> list[int]:
        """Row numbers every member and juror prefills: the audit sample, and rows whose proofs are ambiguous."""
        facts = self.facts
        drawn = audit_sample(facts.lane_seed, facts.sequence, len(self.rollouts), facts.audit_rate)
        return sorted({*drawn, *self.repeats.ambiguous})

    @property
    def measured(self) -> tuple[RowMeasurements, ...]:
        if self.measurements is None:
            raise ValueError("this check runs after the prefill")
        return self.measurements
