"""Random projections of activations (Activation-DiFR) beside TOPLOC's 128 largest values, on the same files.

`python -m benchmarks projections [--quick]`. The demo's base model in bf16, whole files. A worker's final hidden states
of a chunk of 32 tokens are committed to by TOPLOC's proof (258 bytes), or by Gaussian projections in bfloat16: of each
token to 4 or 1 numbers, or of the whole chunk to 128 or 32. The verifier's own states are compared with each.

Keys: forms [{form, bytes (a full chunk), microseconds (of making it), <cheat>: {auc, shift}}]: `auc` is the probability
that a chunk of a cheat's errs by more than an honest one; `shift` by how many standard deviations of a problem the mean
of its problems is moved. `chunks` were compared of each kind.
"""

import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import torch

from benchmarks.support.offline_pool import BFLOAT16
from benchmarks.verification import evidence
from calibration.measuring import context_of
from engines import decoding
from environments.pool import PoolEnvironments
from protocol.seeds import AUDIT_EVERYTHING
from protocol.toploc.codec import CHUNK
from protocol.toploc.proofs import build, build_many, verify

CHEATS = ("int8 weights", "noise of 0.1%", "LoRA of 0.1%", "int8 KV cache")
Array = np.ndarray[Any, np.dtype[np.float64]]


def run(quick: bool, progress: Callable[[str], None]) -> dict[str, Any]:
    laboratory = evidence.Laboratory(evidence.HOME, quick)
    kinds = [evidence.HONEST[0], *(one for one in evidence.CHEATS if one.name in CHEATS)]
    found = {}
    for kind in kinds:
        found[kind.name] = _errors(laboratory, kind, 2 if quick else 12)
        progress(f"{kind.name}: {len(found[kind.name][1])} chunks")
    honest, problems = found.pop(evidence.HONEST[0].name)
    forms = []
    for place, (form, size, make) in enumerate(FORMS):
        row: dict[str, Any] = {"form": form, "bytes": size, "microseconds": round(_microseconds(make), 1)}
        for name, (errors, of) in found.items():
            shift = _by_problem(errors[:, place], of).mean() - (own := _by_problem(honest[:, place], problems)).mean()
            row[name] = {
                "auc": round(_auc(honest[:, place], errors[:, place]), 3),
                "shift": round(shift / own.std(), 2),
            }
        forms.append(row)
    return {"forms": forms, "chunks": len(honest)}


def _errors(laboratory: evidence.Laboratory, kind: evidence.Kind, files: int) -> tuple[Array, Array]:
    """Return the error of every chunk in every form [chunks, forms], and the number of its problem."""
    case = evidence.Case(BFLOAT16, evidence.BASE, (kind,))
    weights, config = laboratory.weights(case.policy), laboratory.config(BFLOAT16)
    environments, verifier = PoolEnvironments.of(config, weights), evidence.verifier_of(BFLOAT16, weights)
    producer, known = laboratory.producer(case, kind), dict[bytes, torch.Tensor]()

    def remember(hidden: Any) -> Any:
        made = build_many(hidden)
        for states, proofs in zip(hidden, made, strict=True):
            known.update(zip(proofs, states.split(CHUNK), strict=True))
        return made

    errors, problems = [], []
    for number in range(files):
        work = evidence.work_of(case, kind, number)
        with mock.patch.object(decoding, "build_many", remember), torch.inference_mode():
            data = producer.make(work).data
        context = context_of(work, data, config, environments, AUDIT_EVERYTHING)
        rows = [(row.prompt_tokens, row.output_tokens) for row in context.rollouts]
        with torch.inference_mode():
            seen = list(verifier.prefill(rows))
        for row, prefilled in zip(context.rollouts, seen, strict=True):
            for proof, states in zip(row.proofs, torch.split(prefilled.hidden, CHUNK), strict=True):
                if len(states) > 1:  # a chunk of one token is not judged
                    errors.append([_error(make, known[proof], states) for _, _, make in FORMS])
                    problems.append(number * config.work.problems_per_file + row.slot)
    return np.array(errors), np.array(problems)


def _toploc(states: torch.Tensor) -> Any:
    return build(states)


def _tokens(width: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda states: (states.float() @ _matrix(states.shape[1], width)).bfloat16()


def _chunk(width: int) -> Callable[[torch.Tensor], torch.Tensor]:
    def make(states: torch.Tensor) -> torch.Tensor:
        return (states.float().reshape(-1) @ _matrix(CHUNK * states.shape[1], width)[: states.numel()]).bfloat16()

    return make


def _matrix(rows: int, columns: int, known: dict[tuple[int, int], torch.Tensor] = {}) -> torch.Tensor:  # noqa: B006
    if (rows, columns) not in known:
        source = torch.Generator().manual_seed(1)
        known[rows, columns] = torch.randn(rows, columns, generator=source) / columns**0.5
    return known[rows, columns]


FORMS: tuple[tuple[str, int, Callable[[torch.Tensor], Any]], ...] = (
    ("TOPLOC, 128 largest", 258, _toploc),
    ("4 a token", 256, _tokens(4)),
    ("1 a token", 64, _tokens(1)),
    ("128 a chunk", 256, _chunk(128)),
    ("32 a chunk", 64, _chunk(32)),
)


def _error(make: Callable[[torch.Tensor], Any], claimed: torch.Tensor, own: torch.Tensor) -> float:
    """Return TOPLOC's mean mantissa difference, or the distance of the projections as a share of their length."""
    if make is _toploc:
        return verify(own, make(claimed))[0].mantissa_mean
    theirs, mine = make(claimed).float(), make(own).float()
    return float((theirs - mine).norm() / mine.norm())


def _by_problem(errors: Array, problems: Array) -> Array:
    return np.array([errors[problems == one].mean() for one in np.unique(problems)])


def _auc(honest: Array, cheats: Array) -> float:
    below = np.searchsorted(np.sort(honest), cheats, "left") + np.searchsorted(np.sort(honest), cheats, "right")
    return float(below.mean() / 2 / len(honest))


def _microseconds(make: Callable[[torch.Tensor], Any]) -> float:
    states = torch.randn(CHUNK, 896).bfloat16()
    make(states)
    start = time.process_time()
    for _ in range(200):
        make(states)
    return (time.process_time() - start) / 200 * 1e6
