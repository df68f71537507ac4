"""Verification with vLLM against transformers, as a program: prints a JSON object as its last line."""

import json
import logging
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import engines.vllm as vllm_engine
from engines.base import Request
from engines.hf import TransformersEngine
from engines.vllm import VllmEngine
from protocol.errors import MusterError
from tests.engines.models import Pairs, errors, pairs_of, save_broken, save_tiny
from tests.engines.test_hf import SAMPLING, requests
from tests.engines.vllm_case import refusals


def distance(one: Any, other: Any, pairs: Pairs) -> dict[str, float]:
    """Largest differences of two engines' rows, and whether shapes, types and places are as promised."""
    out = {"hidden": 0.0, "logits": 0.0, "sound": 1.0, "sequences": 0}
    for (_, output), left, right in zip(pairs, one.prefill(pairs), other.prefill(pairs), strict=True):
        out["sequences"] += 1
        sound = left.hidden.dtype == right.hidden.dtype == torch.bfloat16
        sound &= left.logits.dtype == right.logits.dtype == torch.float32
        sound &= left.hidden.shape == right.hidden.shape and left.logits.shape == right.logits.shape
        sound &= len(left.logits) == len(output) and left.logits.device.type == left.hidden.device.type == "cpu"
        out["sound"] *= float(sound)
        out["hidden"] = max(out["hidden"], float((left.hidden.float() - right.hidden.float()).abs().max()))
        out["logits"] = max(out["logits"], float((left.logits - right.logits).abs().max()))
    return out


def small_windows(engine: VllmEngine, pairs: Pairs) -> float:
    """Largest difference between logits made in one go and those made in many small windows."""
    whole = [seen.logits for seen in engine.prefill(pairs)]
    vllm_engine.HIDDEN_BYTES = 128 * 4 * 100  # type: ignore[attr-defined]
    parts = [seen.logits for seen in engine.prefill(pairs)]
    return max(float((a - b).abs().max()) for a, b in zip(whole, parts, strict=True))


def left_behind(engine: VllmEngine, pairs: Pairs) -> int:
    """What vLLM's process still holds after a caller stopped early."""
    for _ in engine.prefill(pairs):
        break
    worker = engine._llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker
    return len(worker.muster_prefilled) + len(worker.muster_records)


def after_failure(engine: VllmEngine, broken: Path, good: Path, asked: list[Request]) -> bool:
    """A model of NaN fails while it samples; with good weights the same engine goes on."""
    before = engine.generate(asked, SAMPLING)
    engine.load(broken)
    with pytest.raises(MusterError):
        engine.generate(asked, SAMPLING)
    engine.load(good)
    return engine.generate(asked, SAMPLING) == before


def main(dtype: str, folder: Path) -> dict[str, Any]:
    logging.disable(logging.WARNING)
    first, second = save_tiny(folder / "first"), save_tiny(folder / "second", seed=5)
    other, engine = TransformersEngine(dtype), VllmEngine(dtype, max_batch=7)
    other.load(first)
    engine.load(first)
    asked = requests(30)
    theirs, own = other.generate(asked, SAMPLING), engine.generate(asked, SAMPLING)
    pairs = pairs_of(asked, theirs)
    out: dict[str, Any] = {
        "lengths": sorted({len(output) for _, output in pairs}),
        "distance": distance(engine, other, pairs),
        "theirs": errors(engine, asked, theirs),
        "own": errors(engine, asked, own),
        "windows": small_windows(engine, pairs),
        "left": left_behind(engine, pairs),
        "refused": refusals(
            [
                (words, partial(lambda pair: list(engine.prefill([pair])), pair))
                for words, pair in (
                    ("no output", ((2,), ())),
                    ("vocabulary", ((2,), (300,))),
                    ("vocabulary", ((2,), (-5,))),
                    ("empty prompt", ((), (2,))),
                    ("positions", ((2,), (2,) * 300)),
                )
            ]
        ),
    }
    other.load(second)
    engine.load(second)
    out["stale"] = errors(engine, asked, theirs)
    out["reloaded"] = errors(engine, asked, other.generate(asked, SAMPLING))
    out["reloaded_distance"] = distance(engine, other, pairs)
    if dtype == "float32":
        out["goes_on"] = after_failure(engine, save_broken(folder / "broken", second), second, asked[:9])
    return out


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
