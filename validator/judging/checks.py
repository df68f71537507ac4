"""What is judged of one rollout file, and the checks in the order in which they run.

`FILE_CHECKS` look at the file alone; the first refusal among them ends the judgement, because what follows would rest
on false ground. `PREFILL_CHECKS` look at the verifier's own pass over the audited rows, and all of them run.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

from engines.base import FINISH_EOS, FINISH_LENGTH
from environments.pool import PoolEnvironments, Score
from protocol.config import SPARED_MISSES, PoolConfig
from protocol.evidence.figures import arithmetic_label
from protocol.rollout_file.rows import Commitment, Inserted, Rollout, RolloutHeader, Tokens, Transcript, commit
from protocol.seeds import Work, assignments, audit_sample
from protocol.toploc.codec import CHUNK, Drift, MalformedProof, parse_many
from protocol.verdict import Code, Finding, Measurement, Verdict

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
    """Find what a file says twice, given the replies `inserted` in its rows."""
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
    included), and the claimed surprisal of the generated ones in nats."""
    running, surprisal, replies = hashlib.sha256(_words(rollout.prompt_tokens)), 0.0, dict(inserted)
    for number, proof in enumerate(rollout.proofs):
        start, end = number * CHUNK, min((number + 1) * CHUNK, len(rollout.output_tokens))
        if end - start < SHORTEST:
            return
        # The row that makes token t has read what stands before it, so the chunk's last token is not in the proof.
        read = []
        for position in range(start, end):
            if position in replies:
                read.append(_REPLY + _words(replies[position]))
            if position < end - 1:
                read.append(_word(rollout.output_tokens[position]))
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
    """One submission as the chain knows it. `lane_seed` (32 bytes) draws the audit sample, at `audit_rate` / 65536."""

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
    """Return a verdict on a submission to a pool of this configuration."""
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
    finding = Finding("answer", Code.UNAVAILABLE, {}, why)
    return verdict_on(facts, config_hash, Code.UNAVAILABLE, {}, findings=(finding,))


@dataclass(frozen=True)
class RowMeasurements:
    """What one rollout's prefill says.

    Per chunk of 32 tokens, except a last one of a single token: `mismatches` (exponents of the claimed top activations
    that differ, count) and `mantissas` (mean difference of mantissas, 0 to 127; 128 where no exponent matches). Per
    token: `gaps` (score of the best token minus the chosen one's, ≥ 0), `logprobs` (own ln p of the chosen token),
    `expected` (own ln p of the best one). `surprise` and `overconfidence` are the logarithms of two e-values
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
    def drawn(self) -> list[int]:
        """Row numbers of the audit sample."""
        facts = self.facts
        return audit_sample(facts.lane_seed, facts.sequence, len(self.rollouts), facts.audit_rate)

    @cached_property
    def audited(self) -> list[int]:
        """Row numbers that every member and juror prefills: the audit sample, and rows whose proofs are ambiguous."""
        return sorted({*self.drawn, *self.repeats.ambiguous})

    @property
    def measured(self) -> tuple[RowMeasurements, ...]:
        if self.measurements is None:
            raise ValueError("this check runs after the prefill")
        return self.measurements


# --- The checks


Check = Callable[[CheckContext], Finding]
MAX_LOGPROB = 1e-3  # a log-probability may exceed 0 by rounding only


def accept(check: str, **measurements: Measurement) -> Finding:
    return Finding(check, Code.ACCEPT, measurements)


def refuse(check: str, code: Code, note: str, **measurements: Measurement) -> Finding:
    return Finding(check, code, measurements, note)


def largest(values: Iterable[float]) -> float:
    """Return the maximum, 0 of none, or NaN as soon as one value is NaN (the built-in `max` may hide it)."""
    kept = list(values)
    return math.nan if any(map(math.isnan, kept)) else max(kept, default=0.0)


def by_mean(total: float, count: int, threshold: float, spared: float) -> tuple[float, float]:
    """Return the mean of so many chunks or tokens, and from where on it is refused: `threshold` + `spared` / `count`.

    An audit may draw a single row, whose mean honestly strays as far as one chunk or token does. So the sum may exceed
    what the threshold allows by what one of them may reach: few are judged one by one, many by their mean.
    """
    return total / max(1, count), threshold + spared / max(1, count)


def by_threshold(
    check: str, code: Code, band: float, measured: Mapping[str, tuple[float, float]], **measurements: Measurement
) -> Finding:
    """Judge measurements by their reject thresholds; `measured` maps a name to (measurement, threshold).

    At its threshold or beyond (or NaN) one gives `code`; at `band` times its threshold or beyond, unsure.
    """
    shown: dict[str, Measurement] = {name: measurement for name, (measurement, _) in measured.items()}
    shown |= {f"{name}_reject": threshold for name, (_, threshold) in measured.items()} | measurements
    if over := [name for name, (measurement, threshold) in measured.items() if not measurement < threshold]:
        return Finding(check, code, shown, f"{', '.join(over)} at the reject threshold or beyond")
    if near := [name for name, (measurement, threshold) in measured.items() if measurement >= band * threshold]:
        return Finding(check, Code.UNSURE, shown, f"{', '.join(near)} in the unsure band")
    return Finding(check, Code.ACCEPT, shown)


def check_schema(context: CheckContext) -> Finding:
    """Check the bounds that the reader of rollout files cannot know: vocabulary and sign of log-probabilities."""
    vocabulary = context.environment.vocabulary
    for number, rollout in enumerate(context.rollouts):
        if max(max(rollout.prompt_tokens), max(rollout.output_tokens)) >= vocabulary:
            return refuse("schema", Code.MALFORMED, f"row {number}: a token outside the vocabulary", row=number)
        if max(rollout.logprobs) > MAX_LOGPROB:
            return refuse("schema", Code.MALFORMED, f"row {number}: a log-probability above 0", row=number)
    return accept("schema", rows=len(context.rollouts), bytes=len(context.data))


def check_header(context: CheckContext) -> Finding:
    """Check the header against the chain: whose file this is, and from which randomness and weights.

    A wrong network, step seed or manifest is malformed: a reorganisation changes the last two under an honest worker,
    but never node, step or counter. In a pool with evidence, so is an engine that its judges cannot measure.
    """
    header, claimed, known = context.header, context.header.work, context.facts.work
    differing = claimed.id.differing(known.id)
    for name in ("node", "step", "counter"):
        if name in differing:
            note = f"the file is of {name} {claimed.id.flat()[name]}, the submission of {known.id.flat()[name]}"
            return refuse("header", Code.REJECT_ASSIGNMENT, note, field=name)
    differing += [name for name in ("step_seed", "manifest") if getattr(claimed, name) != getattr(known, name)]
    if differing:
        return refuse("header", Code.MALFORMED, f"{differing[0]} is not the chain's", field=differing[0])
    evidence, engine = context.config.evidence, arithmetic_label(header.engine, header.dtype, header.device)
    if evidence is not None and (why := evidence.refuses(engine)):
        return refuse("header", Code.MALFORMED, why[:300], field="engine")
    return accept("header", engine=header.engine, dtype=header.dtype, device=header.device)


def check_commitment(context: CheckContext) -> Finding:
    """Check Merkle root, rows and paid units against the chain. (The SHA-256 is checked when the file is fetched.)"""
    committed, actual = context.facts.commitment, commit(context.data, context.rollouts)
    if actual.root != committed.root:
        note = "the rows do not hash to the committed Merkle root"
        return refuse("commitment", Code.REJECT_COMMITMENT, note, root=actual.root.hex())
    if committed.units > actual.units:
        note = f"{committed.units} units were claimed for {actual.units} output tokens"
        return refuse("commitment", Code.REJECT_REWARD, note, units=actual.units)
    if committed.units < actual.units or committed.rows != actual.rows:
        note = "units or rows on chain are not those of the file"
        return refuse("commitment", Code.MALFORMED, note, units=actual.units, rows=actual.rows)
    return accept("commitment", units=actual.units, rows=actual.rows)


def check_assignment(context: CheckContext) -> Finding:
    """Check that step seed, node, counter and the step's curriculum mask assign these problems and target lengths."""
    work = context.config.work
    assigned = assignments(context.facts.work, context.config, context.environment.mask)
    wrong = [
        number
        for number, rollout in enumerate(context.rollouts)
        if (rollout.slot, rollout.sample) != divmod(number, work.samples_per_problem)
        or rollout.problem_seed != assigned[rollout.slot].problem_seed
        or rollout.target_length != assigned[rollout.slot].target_length
    ]
    if wrong or len(context.rollouts) != work.rows:
        note = f"{len(wrong)} rows are not the assigned problem or target length"
        return refuse("assignment", Code.REJECT_ASSIGNMENT, note, rows=wrong)
    return accept("assignment", problems=work.problems_per_file)


def check_prompts(context: CheckContext) -> Finding:
    prompt = cache(context.environment.prompt)  # all samples of a problem share one prompt
    wrong = [
        number
        for number, row in enumerate(context.rollouts)
        if row.prompt_tokens != prompt(row.problem_seed, row.target_length)
    ]
    if wrong:
        return refuse("prompts", Code.REJECT_ASSIGNMENT, f"{len(wrong)} prompts are not the problem's", rows=wrong)
    return accept("prompts", prompts=len(context.rollouts))


def check_termination(context: CheckContext) -> Finding:
    """Check that every rollout ends at the EOS after which no turn follows, or at the length limit.

    The environment's replies are recomputed, so that a missing or an extra turn is found in every row, audited or not.
    A row beyond the model's context, which no honest engine begins, is refused before a prefill would fail on it.
    """
    limit = context.config.work.max_new_tokens
    wrong = [number for number, row in enumerate(context.rollouts) if not _ends_rightly(row, context)]
    if wrong:
        note = f"{len(wrong)} rollouts end neither at the last turn's EOS nor at {limit} tokens that the model can take"
        return refuse("termination", Code.REJECT_TERMINATION, note, rows=wrong)
    return accept("termination", at_limit=sum(row.finish == FINISH_LENGTH for row in context.rollouts))


def _ends_rightly(row: Rollout, context: CheckContext) -> bool:
    transcript = context.transcript(row)
    if transcript.excess:
        return False
    replies, positions = sum(map(len, transcript.replies)), context.environment.positions
    if positions is not None and len(row.prompt_tokens) + len(row.output_tokens) + replies > positions:
        return False
    at_limit = len(row.output_tokens) == context.config.work.max_new_tokens
    if row.output_tokens[-1] in context.environment.eos_ids:
        return row.finish == FINISH_EOS and (transcript.due is None or at_limit)
    return row.finish == FINISH_LENGTH and at_limit


def check_rewards(context: CheckContext) -> Finding:
    """Recompute rewards with the environment's own scorer and compare them bit for bit in float32."""
    score = context.environment.score
    wrong = [
        number
        for number, row in enumerate(context.rollouts)
        if Score(row.task_reward, row.length_penalty, row.reward)
        != score(row.problem_seed, row.target_length, row.output_tokens)
    ]
    if wrong:
        first = context.environment.where(context.rollouts[wrong[0]].problem_seed)
        note = f"{len(wrong)} rewards are not the scorer's, the first in {first}"
        return refuse("rewards", Code.REJECT_REWARD, note, rows=wrong)
    mean = sum(rollout.task_reward for rollout in context.rollouts) / len(context.rollouts)
    return accept("rewards", mean_task_reward=mean)


def check_proofs(context: CheckContext) -> Finding:
    """Check that proofs are well formed before any arithmetic: their number, modulus and coefficients."""
    for number, rollout in enumerate(context.rollouts):
        try:
            parse_many(rollout.proofs, len(rollout.output_tokens))
        except MalformedProof as error:
            return refuse("proofs", Code.REJECT_WEIGHTS, f"row {number}: {error.what}", row=number)
    return accept("proofs", proofs=sum(len(rollout.proofs) for rollout in context.rollouts))


def check_duplicates(context: CheckContext) -> Finding:
    """Refuse the same improbable text submitted for two samples of one file.

    Rows are independent samples, which agree with probability exp(−surprisal): those of an easy problem are often
    equal. One proof under several texts is no fraud by itself, since a completion that loops has equal activations:
    such rows are always audited. The sampling check finds copies of other files.
    """
    copied = context.repeats.copied
    if copied:
        row, first = copied[0]
        note = f"row {row} repeats the text of row {first}, too improbable for chance"
        return refuse("duplicates", Code.REJECT_DUPLICATE, note, row=row, first=first, copied=len(copied))
    return accept("duplicates", ambiguous=list(context.repeats.ambiguous))


def check_logprobs(context: CheckContext) -> Finding:
    """Compare claimed log-probabilities with the verifier's: largest and mean difference over the audited rows."""
    checks = context.config.checks
    differences = [
        abs(claimed - own)
        for row in context.measured
        for claimed, own in zip(context.rollouts[row.row].logprobs, row.logprobs, strict=True)
    ]
    measured = {
        "largest": (largest(differences), checks.logprob_error_reject),
        "mean": by_mean(sum(differences), len(differences), checks.logprob_mean_reject, checks.logprob_error_reject),
    }
    return by_threshold("logprobs", Code.REJECT_WEIGHTS, checks.unsure_band, measured, tokens=len(differences))


def check_toploc(context: CheckContext) -> Finding:
    """Compare claimed activations (TOPLOC) with the verifier's, by the worst chunk and by the mean: a small change of
    the weights moves every chunk a little."""
    checks = context.config.checks
    mismatches = [float(count) for row in context.measured for count in row.mismatches]
    mantissas = [error for row in context.measured for error in row.mantissas]
    chunks, mismatches_most = len(mismatches), checks.exponent_mismatches_chunk_reject
    mantissas_most = checks.mantissa_mean_chunk_reject
    measured = {
        "mismatches_mean": by_mean(sum(mismatches), chunks, checks.exponent_mismatches_reject, mismatches_most),
        "mismatches_largest": (largest(mismatches), mismatches_most),
        "mantissa_mean": by_mean(sum(mantissas), chunks, checks.mantissa_mean_reject, mantissas_most),
        "mantissa_largest": (largest(mantissas), mantissas_most),
    }
    return by_threshold("toploc", Code.REJECT_WEIGHTS, checks.unsure_band, measured, chunks=chunks)


def check_eos(context: CheckContext) -> Finding:
    """Refuse an EOS that is improbable by the verifier's logits and not what the seeded noise picks, which picks one of
    probability p once in 1/p times."""
    checks = context.config.checks
    ended = [row for row in context.measured if row.eos_probability is not None]
    least = min((row.eos_probability or 0.0 for row in ended), default=1.0)
    forced = [
        row.row
        for row in ended
        if (row.eos_probability or 0.0) < checks.eos_probability_min and not row.gaps[-1] < checks.sampling_gap_reject
    ]
    if forced:
        note = f"{len(forced)} completions were cut by an EOS that neither model nor noise chose"
        return refuse("eos", Code.REJECT_TERMINATION, note, rows=forced, least_probability=least)
    return accept("eos", least_probability=least)


def check_sampling(context: CheckContext) -> Finding:
    """Check that every token is the one that the seeded noise picks, by the largest score gap and the rate of misses.
    Rounding turns a few near-ties, with a gap near 0; one chosen by other means loses by as much as noise varies."""
    checks = context.config.checks
    gaps = [gap for row in context.measured for gap in row.gaps]
    misses = sum(not gap <= 0 for gap in gaps)
    measured = {
        "gap": (largest(gaps), checks.sampling_gap_reject),
        "miss_rate": by_mean(misses, len(gaps), checks.sampling_miss_rate_reject, SPARED_MISSES),
    }
    return by_threshold("sampling", Code.REJECT_SAMPLING, checks.unsure_band, measured, tokens=len(gaps), misses=misses)


def check_distribution(context: CheckContext) -> Finding:
    """Check that the chosen tokens are as probable as samples of this model: another model's text is more surprising,
    greedy text less so (overconfidence). Both are ln of e-values (`validator.judging.measurements`)."""
    checks = context.config.checks
    measured = {
        "surprise": (sum(row.surprise for row in context.measured), checks.distribution_nats_reject),
        "overconfidence": (sum(row.overconfidence for row in context.measured), checks.distribution_nats_reject),
    }
    tokens = sum(len(row.gaps) for row in context.measured)
    return by_threshold("distribution", Code.REJECT_SAMPLING, checks.unsure_band, measured, tokens=tokens)


FILE_CHECKS: tuple[Check, ...] = (
    check_schema,
    check_header,
    check_commitment,
    check_assignment,
    check_prompts,
    check_termination,
    check_rewards,
    check_proofs,
    check_duplicates,
)
PREFILL_CHECKS: tuple[Check, ...] = (check_logprobs, check_toploc, check_eos, check_sampling, check_distribution)
