"""What verification costs against generation, per output token, with a model shaped like Qwen2.5-0.5B on one thread.

Generation: own decoding loop with noise and proofs. Verification: the validator's own `measure` (prefill, TOPLOC,
sampling with log-probabilities and betting) over every rollout, and over a random quarter. Processor seconds of one
thread in one process. Keys: ratio and ratio_quarter of bf16 at decode batch 16, dtype, batch, and `runs` with every
case: milliseconds per output token, of the whole and of its parts. A quick run has 6 layers instead of 24.
"""

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from benchmarks.offline_pool import work_of
from benchmarks.rollouts import BareContext, save_random, unscored
from engines.base import Completion, Request, Sampling
from engines.hf import TransformersEngine
from protocol.config import ModelConfig, PoolConfig, WorkConfig
from protocol.environments import EnvironmentConfig
from protocol.seeds import noise_key
from validator import measurements

GROUP = 8
PROMPT = 64
WORK = work_of(1)
PARTS = (
    ("decoder", TransformersEngine, "_forward"),
    ("output_head", TransformersEngine, "_head"),
    ("toploc", measurements, "verify_many"),
    ("sampling", measurements, "verify_rows"),
)


def run(quick: bool, progress: Callable[[str], None]) -> dict[str, Any]:
    cases = [("bfloat16", 16)] if quick else [("bfloat16", 16), ("bfloat16", 64), ("float32", 16), ("float32", 64)]
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        save_half_billion(Path(folder), layers=6 if quick else 24)
        for dtype, batch in cases:
            runs.append(_case(Path(folder), dtype, batch, 16 if quick else 128))
            progress(str(runs[-1]))
    first = runs[0]
    return {
        "ratio": first["ratio"],
        "ratio_quarter": first["ratio_quarter"],
        "dtype": first["dtype"],
        "batch": first["batch"],
        "runs": runs,
    }


def save_half_billion(folder: Path, layers: int) -> None:
    """Random weights in Qwen2.5-0.5B's shape, bf16 (24 layers are 494M parameters)."""
    from transformers import Qwen2Config

    config = Qwen2Config(
        vocab_size=151936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=layers,
        num_attention_heads=14,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=151643,
    )
    save_random(config, folder, torch.bfloat16)


def _case(folder: Path, dtype: str, batch: int, tokens: int) -> dict[str, Any]:
    engine = TransformersEngine(dtype, max_batch=batch)
    engine.load(folder)
    source = random.Random(0)
    asked = []
    for slot in range(batch // GROUP):
        prompt = tuple(source.randrange(151643) for _ in range(PROMPT))
        asked += [Request(prompt, noise_key(WORK, slot, sample), tokens) for sample in range(GROUP)]
    engine.generate([Request(asked[0].prompt, (1, 2, 3), 2)], Sampling(1.0, ()))
    start = time.process_time()
    got = engine.generate(asked, Sampling(1.0, ()))
    generated = time.process_time() - start
    units = sum(len(completion.tokens) for completion in got)
    parts: dict[str, float] = {}
    whole = verify_seconds(engine, asked, got, list(range(batch)), parts)
    quarter = verify_seconds(engine, asked, got, sorted(source.sample(range(batch), batch // 4)), {})
    return {
        "dtype": dtype,
        "batch": batch,
        "tokens": units,
        "ratio": round(generated / whole, 2),
        "ratio_quarter": round(generated / quarter, 2),
        "generate_ms_per_token": round(1000 * generated / units, 3),
        "verify_ms_per_token": round(1000 * whole / units, 3),
        "parts_ms_per_token": {name: round(1000 * seconds / units, 3) for name, seconds in parts.items()},
    }


def verify_seconds(
    engine: TransformersEngine, asked: list[Request], got: list[Completion], rows: list[int], parts: dict[str, float]
) -> float:
    """Processor seconds of the validator's measurements over `rows`; `parts` receives the seconds of each part."""
    made = [unscored(n // GROUP, n % GROUP, *pair) for n, pair in enumerate(zip(asked, got, strict=True))]
    config = PoolConfig(
        name="b",
        model=ModelConfig(source="random"),
        environments=(EnvironmentConfig(name="none"),),
        work=WorkConfig(max_new_tokens=4096),
    )
    context = BareContext.of(WORK, config, 151643, [made[row] for row in rows])
    with _timed(parts):
        start = time.process_time()
        measured = measurements.measure(context, engine)
        seconds = time.process_time() - start
    if max(max(row.mismatches) for row in measured) > 40 or max(max(row.gaps) for row in measured) > 1:
        raise AssertionError("an honest rollout does not verify")
    return seconds


@contextmanager
def _timed(parts: dict[str, float]) -> Iterator[None]:
    """While active, adds up the processor seconds of verification's parts."""

    def timed(label: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            start = time.process_time()
            try:
                return inner(*arguments, **named)
            finally:
                parts[label] = parts.get(label, 0.0) + time.process_time() - start

        return call

    with ExitStack() as patches:
        for label, owner, name in PARTS:
            patches.enter_context(mock.patch.object(owner, name, timed(label, getattr(owner, name))))
        yield
