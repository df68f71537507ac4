"""One prefill of the audited rows, and from it every measurement that the checks judge.

Surprise and dullness are log e-values of the chosen tokens (Ville's inequality; Shafer, "Testing by betting", 2021):
for tokens v drawn from p, the product over t of p_t(v_t)^(−λ) / Σ_u p_t(u)^(1−λ) has mean 1 whatever the text, so that
it reaches exp(x) with probability at most exp(−x). λ = ½ grows when tokens are less probable than samples, λ = −1 when
they are more probable.
"""

import math
from dataclasses import replace

import torch

from engines.base import Engine, Prefilled
from protocol.proofs.codec import CHUNK
from protocol.proofs.toploc import ChunkErrors, verify_many
from protocol.sampling.noise import verify_choices
from protocol.seeds import noise_key
from validator.context import CheckContext, RowMeasurements

_TOGETHER = 64


@torch.inference_mode()
def measure(context: CheckContext, engine: Engine) -> tuple[RowMeasurements, ...]:
    """Measurements of the audited rows, in order. Raises MusterError if the engine cannot prefill."""
    rows = context.audited
    sequences = [(context.rollouts[row].prompt_tokens, context.rollouts[row].output_tokens) for row in rows]
    out: list[RowMeasurements] = []
    waiting: list[tuple[RowMeasurements, torch.Tensor]] = []
    # Logits are large and used up row by row; hidden states are small and wait to be verified together.
    for row, prefilled in zip(rows, engine.prefill(sequences), strict=True):
        waiting.append((_row(context, row, prefilled), prefilled.hidden))
        if len(waiting) == _TOGETHER:
            out += _with_errors(context, waiting)
            waiting.clear()
    return (*out, *_with_errors(context, waiting))


def _with_errors(context: CheckContext, waiting: list[tuple[RowMeasurements, torch.Tensor]]) -> list[RowMeasurements]:
    """The rows with their TOPLOC errors filled in."""
    errors = verify_many([hidden for _, hidden in waiting], [context.rollouts[row.row].proofs for row, _ in waiting])
    return [
        replace(
            row,
            mismatches=tuple(error.exponent_mismatches for error in chunks),
            mantissas=tuple(map(_mantissa, chunks, _lengths(len(hidden)))),
        )
        for (row, hidden), chunks in zip(waiting, errors, strict=True)
    ]


def _lengths(tokens: int) -> list[int]:
    """Tokens of each chunk of a completion."""
    return [min(CHUNK, tokens - start) for start in range(0, tokens, CHUNK)]


def _mantissa(error: ChunkErrors, tokens: int) -> float:
    """A single token's proof takes every value of a hidden state of 128, and one that lies next to zero has no
    relative precision: an honest mantissa may then be anything, so it is not judged."""
    return error.mantissa_mean if tokens > 1 else 0.0


def _row(context: CheckContext, row: int, prefilled: Prefilled) -> RowMeasurements:
    rollout, temperature = context.rollouts[row], context.config.work.temperature
    key = noise_key(context.facts.work, rollout.slot, rollout.sample)
    choices = verify_choices(prefilled.logits.numpy(), rollout.output_tokens, key, temperature)
    ended = rollout.output_tokens[-1] in context.environment.eos_ids
    return RowMeasurements(
        row=row,
        mismatches=(),
        mantissas=(),
        gaps=tuple(choices.gaps.tolist()),
        logprobs=tuple(choices.logprobs.tolist()),
        surprise=float((-choices.logprobs / 2 - choices.log_root_sums).sum()),
        dullness=float((choices.logprobs - choices.log_square_sums).sum()),
        eos_probability=math.exp(min(0.0, choices.logprobs[-1])) if ended else None,
    )
