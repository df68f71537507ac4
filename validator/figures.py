"""One prefill of the audited rows, and from it every figure that the checks judge.

Surprise and dullness are log e-values of the chosen tokens (Ville's inequality; Shafer, "Testing by betting", 2021):
for tokens v drawn from p, the product over t of p_t(v_t)^(−λ) / Σ_u p_t(u)^(1−λ) has mean 1 whatever the text, so that
it reaches exp(x) with probability at most exp(−x). λ = ½ grows when tokens are less probable than samples, λ = −1 when
they are more probable.
"""

import math
from dataclasses import replace

import torch

from protocol.engines.base import Engine, Prefilled
from protocol.proofs.toploc import verify_many
from protocol.sampling.noise import verify_choices
from protocol.seeds import noise_key
from validator.case import Case, RowFigures

_TOGETHER = 64
_BLOCK = 1 << 22
"""Logits whose exponentials are held at once."""


@torch.inference_mode()
def measure(case: Case, engine: Engine) -> tuple[RowFigures, ...]:
    """Figures of the audited rows, in order. Raises MusterError if the engine cannot prefill."""
    rows = case.audited
    sequences = [(case.rollouts[row].prompt_tokens, case.rollouts[row].output_tokens) for row in rows]
    out: list[RowFigures] = []
    waiting: list[tuple[RowFigures, torch.Tensor]] = []
    # Logits are large and used up row by row; hidden states are small and wait to be verified together.
    for row, prefilled in zip(rows, engine.prefill(sequences), strict=True):
        waiting.append((_row(case, row, prefilled), prefilled.hidden))
        if len(waiting) == _TOGETHER:
            out += _with_errors(case, waiting)
            waiting.clear()
    return (*out, *_with_errors(case, waiting))


def _with_errors(case: Case, waiting: list[tuple[RowFigures, torch.Tensor]]) -> list[RowFigures]:
    """The rows with their TOPLOC errors filled in."""
    errors = verify_many([hidden for _, hidden in waiting], [case.rollouts[row.row].proofs for row, _ in waiting])
    return [
        replace(
            row,
            mismatches=tuple(error.exponent_mismatches for error in chunks),
            mantissas=tuple(error.mantissa_mean for error in chunks),
        )
        for (row, _), chunks in zip(waiting, errors, strict=True)
    ]


def _row(case: Case, row: int, prefilled: Prefilled) -> RowFigures:
    rollout, temperature = case.rollouts[row], case.config.work.temperature
    key = noise_key(case.facts.work, rollout.slot, rollout.sample)
    choices = verify_choices(prefilled.logits.numpy(), rollout.output_tokens, key, temperature)
    surprise, dullness = betting(prefilled.logits, rollout.output_tokens, temperature)
    ended = rollout.output_tokens[-1] in case.workbook.eos_ids
    return RowFigures(
        row=row,
        mismatches=(),
        mantissas=(),
        gaps=tuple(choices.gaps.tolist()),
        logprobs=tuple(choices.logprobs.tolist()),
        surprise=surprise,
        dullness=dullness,
        eos_probability=math.exp(min(0.0, choices.logprobs[-1])) if ended else None,
    )


def betting(logits: torch.Tensor, tokens: tuple[int, ...], temperature: float) -> tuple[float, float]:
    """The two log e-values of one completion. logits: [T, V] float32, before temperature."""
    surprise = dullness = 0.0
    size = max(1, _BLOCK // logits.shape[1])
    for start in range(0, len(tokens), size):
        block = logits[start : start + size] / temperature
        chosen = torch.tensor(tokens[start : start + size]).unsqueeze(1)
        top = block.max(dim=1, keepdim=True).values
        half = torch.exp((block - top) / 2)
        one = (half * half).sum(1, dtype=torch.float64)
        two = (half**4).sum(1, dtype=torch.float64)
        logprob = (block.gather(1, chosen) - top).squeeze(1).double() - one.log()
        log_sum_half = half.sum(1, dtype=torch.float64).log() - one.log() / 2
        surprise += float((-logprob / 2 - log_sum_half).sum())
        dullness += float((logprob - two.log() + 2 * one.log()).sum())
    return surprise, dullness
