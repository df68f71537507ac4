"""Proofs against the reference library: equal bytes, and times of building and verifying, on one thread.

Keys: equal, different (chunks), build_ratio and verify_ratio {hidden: smallest ratio over batch sizes}, detail
{hidden/chunks: microseconds per chunk of both}. The reference is called in every way that it offers, and its fastest
counts. Times are processor seconds of this process, pinned to one core: the reference starts as many threads as there
are cores. Without the reference (make peers) ratios are null.
"""

import os
import time
import timeit
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from protocol.toploc import proofs as ours
from protocol.toploc.codec import CHUNK, TOP_K

WIDTHS = (128, 896, 5120)


def run(quick: bool, progress: Callable[[str], None]) -> dict[str, Any]:
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    try:
        import toploc as reference
    except ImportError:
        reference = None
        progress("reference toploc is not installed: `make peers` builds it")
    out: dict[str, Any] = {"equal": 0, "different": 0, "build_ratio": {}, "verify_ratio": {}, "detail": {}}
    for width in WIDTHS:
        if reference is not None:
            same, checked = equality(reference, width, (200 if quick else 3400))
            out["equal"] += same
            out["different"] += checked - same
            progress(f"hidden {width}: {same} of {checked} chunks equal")
        for chunks in (64,) if quick else (64, 1024):
            _times(reference, width, chunks, 3 if quick else 5, out)
            progress(f"hidden {width}, {chunks} chunks: {out['detail'][f'{width}/{chunks}']}")
    return out


def awkward(width: int, rows: int, kind: int, source: torch.Generator) -> torch.Tensor:
    """Plain, subnormal, huge, tied, and few-valued (zeros of both signs, infinity) activations, bf16 [rows, width]."""
    few = torch.tensor([0.0, -0.0, 1.0, -1.5, 1e-40, -1e-40, 3e38, float("inf"), 0.5, -2.0])
    plain = torch.randn(rows, width, generator=source)
    kinds = (plain, plain * 1e-39, plain * 1e37, plain.mul(3).round(), few[(plain.abs() * 4).long().clamp(0, 9)])
    return kinds[kind % 5].bfloat16()


def equality(reference: Any, width: int, chunks: int) -> tuple[int, int]:
    """Return how many chunks have equal proofs which each side verifies without an error, of how many."""
    source = torch.Generator().manual_seed(width)
    same = compared = 0
    while compared < chunks:
        hidden = awkward(width, 50 * CHUNK, compared // 50, source)
        our_proofs = ours.build(hidden)
        their_proofs = reference.build_proofs_bytes(list(hidden), CHUNK, TOP_K, skip_prefill=True)
        our_results = ours.verify(hidden, their_proofs)
        their_results = reference.verify_proofs_bytes(hidden, our_proofs, CHUNK, TOP_K, skip_prefill=True)
        for a, b, c, d in zip(our_proofs, their_proofs, our_results, their_results, strict=True):
            clean = c.exponent_mismatches == c.mantissa_mean == d.exp_mismatches == d.mant_err_mean == 0
            same += a == b and clean
        compared += 50
    return same, compared


def _times(reference: Any, width: int, chunks: int, repeats: int, out: dict[str, Any]) -> None:
    hidden = torch.randn(chunks * CHUNK, width).bfloat16()
    proofs = ours.build(hidden)
    calls: dict[str, Callable[[], object]] = {
        "build": lambda: ours.build(hidden),
        "verify": lambda: ours.verify(hidden, proofs),
    }
    if reference is not None:
        calls |= _reference_calls(reference, hidden, proofs)
    # One call more, whose time does not count if it compiles something.
    timed = partial(timeit.repeat, repeat=repeats + 1, number=1, timer=time.process_time)
    best = {name: min(timed(call)) / chunks for name, call in calls.items()}
    for part in ("build", "verify") if reference is not None else ():
        fastest = min(seconds for name, seconds in best.items() if name.startswith(f"reference_{part}"))
        ratio = round(fastest / best[part], 2)
        ratios = out[f"{part}_ratio"]
        ratios[str(width)] = min(ratio, ratios.get(str(width), ratio))
    out["detail"][f"{width}/{chunks}"] = {name: round(1e6 * seconds, 1) for name, seconds in best.items()}


def _reference_calls(reference: Any, hidden: torch.Tensor, proofs: list[bytes]) -> dict[str, Callable[[], object]]:
    """Every way to call the reference for hidden [T, d], T a multiple of 32."""
    build = partial(reference.build_proofs_bytes, topk=TOP_K, skip_prefill=True)
    verify = partial(reference.verify_proofs_bytes, proofs=proofs, topk=TOP_K, skip_prefill=True)
    tokens, chunks = list(hidden), list(hidden.view(-1, CHUNK * hidden.shape[1]))
    return {
        "reference_build_by_token": lambda: build(tokens, decode_batching_size=CHUNK),
        "reference_build_by_chunk": lambda: build(chunks, decode_batching_size=1),
        "reference_verify": lambda: verify(hidden, decode_batching_size=CHUNK),
        "reference_verify_by_token": lambda: verify(tokens, decode_batching_size=CHUNK),
        "reference_verify_by_chunk": lambda: verify(chunks, decode_batching_size=1),
    }
