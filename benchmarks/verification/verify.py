"""What verification costs against generation, per output token, with a model shaped like Qwen2.5-0.5B on one thread.

Generation: own decoding loop with noise and proofs. Verification: the validator's own `measure` over every rollout, and
over a random quarter. Processor seconds of one thread. Keys: ratio and ratio_quarter of bf16 at decode batch 16, dtype,
batch, and `runs` with every case, in milliseconds per output token. A quick run has 6 layers instead of 24. `--only
TEXT`: the cases whose dtype and batch, such as `bfloat16 16`, begin so; not kept.
"""

import platform
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from benchmarks.support.offline_pool import FULL_WORK, work_of
from benchmarks.support.rollouts import BareContext, save_random, unscored
from engines.base import Completion, Request, Sampling
from engines.hf import TransformersEngine
from protocol.config import EnvironmentConfig, ModelConfig, PoolConfig, WorkConfig
from protocol.seeds import noise_key
from validator.judging import measurements

GROUP = 8
PROMPT = 64
WORK = work_of(1)
Made = Mapping[int, tuple[Request, Completion]]  # by rows of a file
PARTS = (
    ("decoder", TransformersEngine, "_forward"),
    ("output_head", TransformersEngine, "_head"),
    ("toploc", measurements, "compare_many"),
    ("sampling", measurements, "verify_rows"),
)


def run(quick: bool, progress: Callable[[str], None], only: str = "") -> dict[str, Any]:
    cases = [("bfloat16", 16)] if quick else [("bfloat16", 16), ("bfloat16", 64), ("float32", 16), ("float32", 64)]
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        save_half_billion(Path(folder), layers=6 if quick else 24)
        for dtype, batch in cases:
            if f"{dtype} {batch}".startswith(only):
                runs.append(_case(Path(folder), dtype, batch, 16 if quick else 128))
                progress(str(runs[-1]))
    return {name: runs[0][name] for name in ("ratio", "ratio_quarter", "dtype", "batch")} | {"runs": runs}


def processor() -> str:
    """Return what the machine calls its processor, and whether it multiplies tiles of bf16."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return (names[0] if names else platform.machine()) + (", AMX" if "amx_bf16" in text else "")


def save_half_billion(folder: Path, layers: int) -> None:
    """Save random weights in Qwen2.5-0.5B's shape, bf16 (24 layers are 494M parameters)."""
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
    prompts = [tuple(source.randrange(151643) for _ in range(PROMPT)) for _ in range(FULL_WORK.problems_per_file)]
    asked = _requests(prompts, range(batch), tokens)
    engine.generate([Request(asked[0].prompt, (1, 2, 3), 2)], Sampling(1.0, ()))
    start = time.process_time()
    got = engine.generate(asked, Sampling(1.0, ()))
    generated = time.process_time() - start
    units = sum(len(completion.tokens) for completion in got)
    parts: dict[str, float] = {}
    verify_seconds(engine, {0: (asked[0], got[0])}, {})  # compiles what the first check would
    made = dict(enumerate(zip(asked, got, strict=True)))
    whole = verify_seconds(engine, made, parts)
    quarter = verify_seconds(engine, {row: made[row] for row in sorted(source.sample(range(batch), batch // 4))}, {})
    return {
        "dtype": dtype,
        "batch": batch,
        "tokens": units,
        "ratio": round(generated / whole, 2),
        "ratio_quarter": round(generated / quarter, 2),
        "generate_ms_per_token": round(1000 * generated / units, 3),
        "verify_ms_per_token": round(1000 * whole / units, 3),
        "parts_ms_per_token": {name: round(1000 * seconds / units, 3) for name, seconds in parts.items()},
        "processor": processor(),
    }


def _requests(prompts: Sequence[tuple[int, ...]], rows: Iterable[int], tokens: int) -> list[Request]:
    """Return the work of some rows of a file, a prompt for every group."""
    return [Request(prompts[row // GROUP], noise_key(WORK, row // GROUP, row % GROUP), tokens) for row in rows]


def verify_seconds(engine: TransformersEngine, made: Made, parts: dict[str, float]) -> float:
    """Return the processor seconds of measuring some rows; `parts` receives those of each part."""
    config = PoolConfig(
        name="b",
        model=ModelConfig(source="random"),
        environments=(EnvironmentConfig(name="none"),),
        work=WorkConfig(max_new_tokens=4096),
    )
    context = BareContext.of(
        WORK, config, 151643, [unscored(row // GROUP, row % GROUP, *one) for row, one in made.items()]
    )
    with _timed(parts):
        start = time.process_time()
        measured = measurements.measure(context, engine)
        seconds = time.process_time() - start
    if max(max(row.mismatches) for row in measured) > 40 or max(max(row.gaps) for row in measured) > 1:
        raise AssertionError("an honest rollout does not verify")
    return seconds


@contextmanager
def _timed(parts: dict[str, float]) -> Iterator[None]:
    """Add up the processor seconds of verification's parts meanwhile."""

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
