"""One prefill of the audited rows, and from it every measurement that the checks judge.

Surprise and overconfidence are log e-values of the chosen tokens (Ville's inequality; Shafer, "Testing by betting",
2021): for tokens v drawn from p, the product over t of p_t(v_t)^(−λ) / Σ_u p_t(u)^(1−λ) has mean 1 whatever the text,
so that it reaches exp(x) with probability at most exp(−x). λ = ½ grows when tokens are less probable than samples, λ =
−1 when they are more probable.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, replace

import numpy as np
import torch

from engines.base import Engine, Prefilled
from engines.runtime import PACE
from protocol.evidence.coherence import blocks_of
from protocol.evidence.figures import MOST_ROWS, RowFigures, finding, rounded, unexplained
from protocol.rollout_file.rows import Rollout, interleaved, sampled_places
from protocol.sampling.noise import Gaps, NoiseKey, verify_rows
from protocol.seeds import noise_key
from protocol.toploc.codec import CHUNK
from protocol.toploc.proofs import ChunkErrors, compare_many
from protocol.verdict import Finding
from validator.judging.checks import CheckContext, RowMeasurements

LOGITS_BYTES = 128 << 20
"""Memory of the logits that are made and judged together: enough for a device to be busy, too little to fill one."""
_ROWS = 1 << 14  # of them, where a vocabulary is small


@torch.inference_mode()
def measure(context: CheckContext, engine: Engine) -> tuple[RowMeasurements, ...]:
    """Measure the audited rows, in order. Raises MusterError if the engine cannot prefill."""
    rows = context.audited
    inserted = [context.transcript(context.rollouts[row]).inserted for row in rows]
    sequences = [
        (context.rollouts[row].prompt_tokens, interleaved(context.rollouts[row].output_tokens, replies))
        for row, replies in zip(rows, inserted, strict=True)
    ]
    out: list[RowMeasurements] = []
    waiting: dict[int, Prefilled] = {}
    together = max(1, min(_ROWS, LOGITS_BYTES // (4 * context.environment.vocabulary)))
    for row, replies, prefilled in zip(rows, inserted, engine.prefill(sequences), strict=True):
        if replies:  # nobody sampled or proved the environment's replies
            places = sampled_places(len(context.rollouts[row].output_tokens), replies)
            prefilled = replace(prefilled, states=prefilled.states[places])
        waiting[row] = prefilled
        if sum(len(one.states) for one in waiting.values()) >= together:
            out += _measured(context, waiting, together)
            waiting.clear()
    return (*out, *_measured(context, waiting, together))


def _measured(context: CheckContext, prefilled: Mapping[int, Prefilled], together: int) -> Iterator[RowMeasurements]:
    if not prefilled:
        return
    seen = list(prefilled.values())
    compared = compare_many([one.hidden for one in seen], [context.rollouts[row].proofs for row in prefilled])
    choices, start = _choices(context, prefilled, together), 0
    for row, (chunks, drift) in zip(prefilled, compared, strict=True):
        rollout = context.rollouts[row]
        tokens = len(rollout.output_tokens)
        own, start = slice(start, start + tokens), start + tokens
        logprobs = choices.logprobs[own]
        ended = rollout.output_tokens[-1] in context.environment.eos_ids
        yield RowMeasurements(
            row=row,
            mismatches=tuple(error.exponent_mismatches for error in chunks),
            mantissas=_mantissas(chunks, tokens),
            gaps=tuple(choices.gaps[own].tolist()),
            logprobs=tuple(logprobs.tolist()),
            expected=tuple(choices.best_logprobs[own].tolist()),
            surprise=float((-logprobs / 2 - choices.log_root_sums[own]).sum()),
            overconfidence=float((logprobs - choices.log_square_sums[own]).sum()),
            eos_probability=math.exp(min(0.0, logprobs[-1])) if ended else None,
            drift=drift,
        )


def _choices(context: CheckContext, prefilled: Mapping[int, Prefilled], together: int) -> Gaps:
    """Recompute the races of all tokens of some rows, one row after another, `together` tokens at a time."""
    tokens: list[int] = []
    keys: list[NoiseKey] = []
    positions: list[int] = []
    for rollout in map(context.rollouts.__getitem__, prefilled):
        tokens += rollout.output_tokens
        keys += [noise_key(context.facts.work, rollout.slot, rollout.sample)] * len(rollout.output_tokens)
        positions += range(len(rollout.output_tokens))
    states = torch.cat([one.states for one in prefilled.values()])
    project, threads = next(iter(prefilled.values())).project, torch.get_num_threads()
    found = []
    for start in range(0, len(tokens), together):
        part = slice(start, start + together)
        given = tokens[part], keys[part], positions[part], context.config.work.temperature
        with PACE.computing():  # a device that hangs is noticed here
            found.append(verify_rows(project(states[part]), *given, threads=threads))
            PACE.step()
    return Gaps(*map(np.concatenate, zip(*(astuple(one) for one in found), strict=True)))


def _mantissas(errors: Sequence[ChunkErrors], tokens: int) -> tuple[float, ...]:
    """Return the mantissa error of each chunk of a completion. A single token's proof takes every value of a hidden
    state of 128, and one that lies next to zero has no relative precision: an honest mantissa may then be anything, so
    it is not judged."""
    left = range(tokens, 0, -CHUNK)
    return tuple(error.mantissa_mean if rest > 1 else 0.0 for error, rest in zip(errors, left, strict=True))


def evidence(context: CheckContext) -> Finding:
    """Return the finding that publishes the figures of every audited row. It judges nothing."""
    rows = [row_figures(context.rollouts[row.row], row) for row in context.measured]
    drifts = {row.row: row.drift for row in context.measured[:MOST_ROWS]}
    return finding(rows, blocks_of(drifts, context.config.work.samples_per_problem))


def row_figures(rollout: Rollout, measured: RowMeasurements) -> RowFigures:
    count = len(measured.gaps)
    tokens = zip(measured.gaps, rollout.logprobs, measured.logprobs, measured.expected, strict=True)
    return RowFigures(
        row=measured.row,
        tokens=count,
        chunks=len(measured.mantissas) - (count % CHUNK == 1),
        mantissas=rounded(math.fsum(measured.mantissas)),
        errors=rounded(math.fsum(abs(a - b) for a, b in zip(rollout.logprobs, measured.logprobs, strict=True))),
        gaps=rounded(math.fsum(measured.gaps)),
        unexplained=rounded(math.fsum(unexplained(*token) for token in tokens if token[0] > 0)),
    )
