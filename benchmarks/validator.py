"""What verification costs against generation, per output token, and the memory of a long text, on one thread.

Generation: own decoding loop with noise and proofs. Verification: the validator's own `measure` over every rollout and
over a random quarter. Processor seconds of one thread, Qwen2.5-0.5B's shape, random weights.

Keys: ratio and ratio_quarter of the first case; `runs` with every case, in milliseconds per output token; `long`: of
one answer of so many tokens, with `layers`, beside decoding in the middle of such answers, since a step's cost grows
evenly with what stands before; `memory`: MiB of checking one answer above those of the loaded model (2 layers), and
of them the keys' and values' (`cache`); `noise`: of the check of noise alone, milliseconds per token at a vocabulary
of 151,936, of db6f227d and now. A quick run has fewer layers and tokens. `--only TEXT`: the parts whose name begins
so; not kept.
"""

import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import torch

from benchmarks.support.offline_pool import FULL_WORK, work_of
from benchmarks.support.rollouts import BareContext, save_random, unscored
from engines.base import Completion, Request, Sampling
from engines.hf import TransformersEngine
from protocol.config import EnvironmentConfig, ModelConfig, PoolConfig, WorkConfig
from protocol.seeds import noise_key
from protocol.toploc.proofs import build
from trainer.reports.bench import peak_bytes, reset_peak
from validator.judging import measurements

ROOT = Path(__file__).parents[1]
GROUP = 8
PROMPT = 64
WORK = work_of(1)
LENGTHS = (1024, 4096, 16384, 32768)
Made = Mapping[int, tuple[Request, Completion]]  # by rows of a file
PARTS = (
    ("decoder", TransformersEngine, "_forward"),
    ("output_head", TransformersEngine, "_head"),
    ("toploc", measurements, "compare_many"),
    ("sampling", measurements, "verify_rows"),
)


def run(quick: bool, progress: Callable[[str], None], only: str = "") -> dict[str, Any]:
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:

        def case(dtype: str) -> None:
            figures.setdefault("runs", []).append(_case(folder(6 if quick else 24), dtype, 16, 16 if quick else 128))

        def folder(layers: int) -> Path:
            model = Path(temporary) / str(layers)
            if not model.exists():
                save_half_billion(model, layers)
            return model

        parts: dict[str, Callable[[], object]] = {
            "bfloat16": lambda: case("bfloat16"),
            "float32": lambda: case("float32"),
            "long": lambda: figures.update(long=_long(folder(2 if quick else 6), 1024 if quick else 16384)),
            "memory": lambda: figures.update(
                memory=[_memory(folder(2), tokens) for tokens in LENGTHS[: 2 if quick else 4]]
            ),
            "noise": lambda: figures.update(noise=_noise(64)),
        }
        for name, part in parts.items():
            if name.startswith(only) and not (quick and name == "float32"):
                part()
                progress(f"{name}: {figures.get(name) or figures['runs'][-1]}")
    first = figures.get("runs", [{}])[0]
    return {name: first.get(name) for name in ("ratio", "ratio_quarter", "dtype", "batch")} | figures


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
        max_position_embeddings=1 << 16,
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
    completions = dict(enumerate(zip(asked, got, strict=True)))
    whole = verify_seconds(engine, completions, parts)
    quarter = verify_seconds(
        engine, {row: completions[row] for row in sorted(source.sample(range(batch), batch // 4))}, {}
    )
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


def _long(folder: Path, tokens: int, batch: int = 8, steps: int = 16) -> dict[str, Any]:
    """Return what one answer costs to check, and a token to make in the middle of `batch` such answers."""
    engine = TransformersEngine("bfloat16", max_batch=batch)
    engine.load(folder)
    seconds = []
    for count in (1, 1 + steps):
        asked = [Request((7,) * (tokens // 2), (row, 1, 2), count) for row in range(batch)]
        start = time.process_time()
        engine.generate(asked, Sampling(1.0, ()))
        seconds.append(time.process_time() - start)
    parts: dict[str, float] = {}
    whole = verify_seconds(engine, {0: made_up(tokens)}, parts, honest=False)
    generate = 1000 * (seconds[1] - seconds[0]) / (batch * steps)
    return {
        "tokens": tokens,
        "layers": engine.model.config.num_hidden_layers,
        "batch": batch,
        "ratio": round(generate * tokens / 1000 / whole, 2),
        "generate_ms_per_token": round(generate, 3),
        "verify_ms_per_token": round(1000 * whole / tokens, 3),
        "parts_ms_per_token": {name: round(1000 * spent / tokens, 3) for name, spent in parts.items()},
    }


def made_up(tokens: int) -> tuple[Request, Completion]:
    """An answer that nobody sampled, as costly to check as an honest one."""
    source = random.Random(tokens)
    output = tuple(source.randrange(2, 151643) for _ in range(tokens))
    proofs = build(torch.randn(tokens, 896).bfloat16())
    return Request((5, 6, 7), (1, 2, 3), tokens), Completion(output, (-9.0,) * tokens, 1, tuple(proofs))


def _memory(folder: Path, tokens: int) -> dict[str, int]:
    command = [sys.executable, "-m", "benchmarks.validator", str(folder), str(tokens)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure_memory(folder: Path, tokens: int) -> dict[str, int]:
    """Measure checking one answer, in a process of its own."""
    engine = TransformersEngine("bfloat16")
    engine.load(folder)
    verify_seconds(engine, {0: made_up(64)}, {}, honest=False)
    given = {0: made_up(tokens)}
    device, before = torch.device("cpu"), psutil.Process().memory_info().rss
    reset_peak(device)
    verify_seconds(engine, given, {}, honest=False)
    shape = engine.model.config
    cache = 4 * shape.num_hidden_layers * shape.num_key_value_heads * 64 * tokens
    return {"tokens": tokens, "peak_mib": (peak_bytes(device) - before) >> 20, "cache_mib": cache >> 20}


NOISE = """
import json, sys, time
import numpy as np
from protocol.sampling import noise
source, rows, found = np.random.default_rng(0), int(sys.argv[1]), {}
keys, places = [(row, 1, 2) for row in range(rows)], list(range(rows))
for name, scale, peak in (("flat", 2, 0), ("peaked", 1, 18)):
    logits = scale * source.standard_normal((rows, 151936), dtype=np.float32)
    logits[np.arange(rows), source.integers(0, 151936, rows)] += peak
    for temperature in (1.0, 0.6):
        tokens, times = noise.choose(logits, keys, places, temperature).tokens, []
        for _ in range(5):
            start = time.process_time()
            noise.verify_rows(logits, tokens, keys, places, temperature)
            times.append(time.process_time() - start)
        found[f"{name} {temperature}"] = round(1000 * min(times) / rows, 3)
print(json.dumps(found))
"""


def _noise(rows: int) -> dict[str, Any]:
    """Both versions in turn, on this machine; without the history, the present one alone."""
    with tempfile.TemporaryDirectory() as old:
        packed = subprocess.run(["git", "archive", "db6f227d", "protocol"], cwd=ROOT, capture_output=True, check=False)
        subprocess.run(["tar", "-x", "-C", old], input=packed.stdout, check=not packed.returncode)
        times = {
            name: json.loads(
                subprocess.run(
                    [sys.executable, "-c", NOISE, str(rows)], env=os.environ | {"PYTHONPATH": str(path)}, cwd=path,
                    stdout=subprocess.PIPE, text=True, check=True,
                ).stdout
            )
            for name, path in (("before", old), ("now", ROOT))
            if name == "now" or not packed.returncode
        }  # fmt: skip
    ratios = [round(times["before"][case] / ms, 1) for case, ms in times["now"].items() if "before" in times]
    return times | {"ratio": min(ratios, default=None), "processor": processor()}


def _requests(prompts: Sequence[tuple[int, ...]], rows: Iterable[int], tokens: int) -> list[Request]:
    """Return the work of some rows of a file, a prompt for every group."""
    return [Request(prompts[row // GROUP], noise_key(WORK, row // GROUP, row % GROUP), tokens) for row in rows]


def verify_seconds(
    engine: TransformersEngine, completions: Made, parts: dict[str, float], honest: bool = True
) -> float:
    """Return the processor seconds of measuring some rows; `parts` receives those of each part."""
    config = PoolConfig(
        name="b",
        model=ModelConfig(source="random"),
        environments=(EnvironmentConfig(name="none"),),
        work=WorkConfig(max_new_tokens=4096),
    )
    context = BareContext.of(
        WORK,
        config,
        151643,
        [unscored(row // GROUP, row % GROUP, *completion) for row, completion in completions.items()],
    )
    with _timed(parts):
        start = time.process_time()
        measured = measurements.measure(context, engine)
        seconds = time.process_time() - start
    worst = max(max(row.mismatches, default=0) for row in measured), max(max(row.gaps) for row in measured)
    if honest and (worst[0] > 40 or worst[1] > 1):
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


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(measure_memory(Path(sys.argv[1]), int(sys.argv[2]))))
