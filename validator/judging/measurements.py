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

from engines.base import Engine, EngineInfo, Prefilled
from engines.torch_process import PACE
from protocol.evidence.figures import FileFigures, Sum, arithmetic_label, blocks_of, finding, unexplained
from protocol.evidence.null_model import StepNullModels
from protocol.rollout_file.rows import interleaved, sampled_positions
from protocol.sampling.noise import Gaps, NoiseKey, verify_rows
from protocol.seeds import noise_key
from protocol.toploc.codec import CHUNK, Drift
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
    for row, replies, prefilled in zip(rows, inserted, engine.prefill(sequences), strict=True):
        if replies:  # nobody sampled or proved the environment's replies
            positions = sampled_positions(len(context.rollouts[row].output_tokens), replies)
            prefilled = replace(prefilled, states=prefilled.states[positions])
        waiting[row] = prefilled
        if sum(len(prefill.states) for prefill in waiting.values()) >= _together(prefilled):
            out += _measured(context, waiting)
            waiting.clear()
    return (*out, *_measured(context, waiting))


def _together(prefilled: Prefilled) -> int:
    """Return of how many rows logits are made and judged together."""
    return max(1, min(_ROWS, LOGITS_BYTES // (4 * prefilled.vocabulary)))


def _measured(context: CheckContext, prefilled: Mapping[int, Prefilled]) -> Iterator[RowMeasurements]:
    if not prefilled:
        return
    seen = list(prefilled.values())
    compared = compare_many([prefill.hidden for prefill in seen], [context.rollouts[row].proofs for row in prefilled])
    choices, start = _choices(context, prefilled), 0
    for row, (chunks, drift) in zip(prefilled, compared, strict=True):
        rollout = context.rollouts[row]
        tokens = len(rollout.output_tokens)
        own, start = slice(start, start + tokens), start + tokens
        logprobs, judged = choices.logprobs[own], judged_chunks(chunks, tokens)
        ended = rollout.output_tokens[-1] in context.environment.eos_ids
        yield RowMeasurements(
            row=row,
            mismatches=tuple(error.exponent_mismatches for error in judged),
            mantissas=tuple(error.mantissa_mean for error in judged),
            gaps=tuple(choices.gaps[own].tolist()),
            logprobs=tuple(logprobs.tolist()),
            expected=tuple(choices.best_logprobs[own].tolist()),
            surprise=float((-logprobs / 2 - choices.log_root_sums[own]).sum()),
            overconfidence=float((logprobs - choices.log_square_sums[own]).sum()),
            eos_probability=math.exp(min(0.0, logprobs[-1])) if ended else None,
            drift=drift,
        )


def _choices(context: CheckContext, prefilled: Mapping[int, Prefilled]) -> Gaps:
    """Recompute the races of all tokens of some rows, one row after another."""
    tokens: list[int] = []
    keys: list[NoiseKey] = []
    positions: list[int] = []
    for rollout in map(context.rollouts.__getitem__, prefilled):
        tokens += rollout.output_tokens
        keys += [noise_key(context.facts.work, rollout.slot, rollout.sample)] * len(rollout.output_tokens)
        positions += range(len(rollout.output_tokens))
    every = [own.states for own in prefilled.values()]
    states = torch.cat(every) if len(every) > 1 else every[0]  # no second copy of a long text
    first, threads = next(iter(prefilled.values())), torch.get_num_threads()
    together, gaps = _together(first), []
    for start in range(0, len(tokens), together):
        part = slice(start, start + together)
        given = tokens[part], keys[part], positions[part], context.config.work.temperature
        with PACE.computing():  # a device that hangs is noticed here
            gaps.append(verify_rows(first.project(states[part]), *given, threads=threads))
            PACE.step()
    return Gaps(*map(np.concatenate, zip(*map(astuple, gaps), strict=True)))


def judged_chunks(errors: Sequence[ChunkErrors], tokens: int) -> Sequence[ChunkErrors]:
    """Return the errors of a completion's chunks, except a last one of a single token. Its proof takes every value of a
    hidden state of 128, and those next to zero have no relative precision: an honest one may then be anything."""
    return errors[: -(-(tokens - 1) // CHUNK)]


def file_figures(context: CheckContext) -> FileFigures:
    """Return the figures of the rows that the audit drew, by problem; those of coherence by block."""
    problems: list[list[RowMeasurements]] = [[] for _ in range(context.config.work.problems_per_file)]
    drawn = set(context.drawn)
    for measured in context.measured:
        if measured.row in drawn:
            problems[context.rollouts[measured.row].slot].append(measured)
    sums = [_problem_sums(context, rows) for rows in problems]
    return {name: [part[name] for part in sums] for name in sums[0]} | {
        "coherence": blocks_of([*map(_drift, problems)])
    }


def _drift(rows: Sequence[RowMeasurements]) -> Drift:
    return Drift(*(np.sum(parts, axis=0) for parts in zip(Drift.none(), *(row.drift for row in rows), strict=True)))


def _problem_sums(context: CheckContext, rows: Sequence[RowMeasurements]) -> dict[str, Sum]:
    """Return S and N of one problem's rows."""
    chunks, mantissas, errors, gaps, missed = 0, list[float](), list[float](), list[float](), list[float]()
    for row in rows:
        claimed = context.rollouts[row.row].logprobs
        chunks += len(row.mantissas)
        mantissas += row.mantissas
        errors += [abs(a - b) for a, b in zip(claimed, row.logprobs, strict=True)]
        gaps += row.gaps
        tokens = zip(row.gaps, claimed, row.logprobs, row.expected, strict=True)
        missed += [unexplained(*token) for token in tokens if token[0] > 0]
    per_token = {"logprobs": errors, "unexplained": missed, "gaps": gaps}
    return {"mantissas": Sum(math.fsum(mantissas), float(chunks))} | {
        name: Sum(math.fsum(values), float(len(gaps))) for name, values in per_token.items()
    }


def evidence(context: CheckContext, verifier: EngineInfo, null_models: StepNullModels | None) -> Finding:
    """Return the finding that publishes a file's figures, and what it pays by its step's null model, if that is of
    these two engines and of the pool's audit rate. It judges nothing."""
    figures, header = file_figures(context), context.header
    worker = arithmetic_label(header.engine, header.dtype, header.device)
    own = arithmetic_label(verifier.name, verifier.dtype, verifier.device)
    model = null_models.pair(worker, own) if null_models else None
    if null_models is None or model is None or null_models.audit_rate != context.facts.audit_rate:
        return finding(figures, {}, {})
    return finding(figures, model.honest(), model.nats(figures))
