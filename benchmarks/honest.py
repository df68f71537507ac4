"""Honest rollouts against the reject thresholds: how many files of 64 rollouts the checks' default bounds refuse.

Pairs of engines (worker to verifier), computing in fp32 and in bf16, on the demo's tiny model with random weights:
prompts of 1 to 40 tokens, outputs of 1 to 96 tokens, one-token outputs included, decode batches from 1 to 64.
Keys: rollouts, rejected (files), pairs {pair: {rollouts, files, rejected, tokens, and the largest figures seen}}.
fp32 pairs are judged by the default thresholds of `ChecksConfig`; bf16 pairs by BF16, whose bounds this benchmark
shows to hold on this model and no further: real pools calibrate their own.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from protocol.config import ChecksConfig
from protocol.engines.base import Completion, Request, Sampling
from protocol.engines.factory import make_engine
from protocol.engines.hf import TransformersEngine
from protocol.engines.vllm import vllm_installed
from protocol.proofs.toploc import verify_many
from protocol.sampling.noise import verify_choices

VOCABULARY, EOS = 265, 263
ROWS = 64
SAMPLING = Sampling(1.0, (EOS,))
BF16 = ChecksConfig(
    exponent_mismatches_reject=8,
    exponent_mismatches_chunk_reject=38,
    mantissa_mean_reject=4,
    mantissa_mean_chunk_reject=12,
    sampling_gap_reject=0.5,
    sampling_miss_rate_reject=0.03,
    logprob_error_reject=0.5,
    logprob_mean_reject=0.03,
)


def run(quick: bool, progress: Callable[[str], None]) -> dict[str, Any]:
    """Each pair in a process of its own: vLLM keeps global state."""
    engines = ["transformers", *(["vllm"] if vllm_installed() else [])]
    cases = [(engine, dtype) for engine in engines for dtype in ("float32", "bfloat16")]
    files = 3 if quick else -(-20_000 // (ROWS * len(cases)))
    out: dict[str, Any] = {"rollouts": 0, "rejected": 0, "pairs": {}}
    for engine, dtype in cases:
        name = f"{engine} to transformers, {dtype}"
        command = [sys.executable, "-m", "benchmarks.honest", engine, dtype, str(files)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=3600, env=os.environ, check=False)
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
        found = json.loads(done.stdout.strip().splitlines()[-1])
        out["pairs"][name] = found
        out["rollouts"] += found["rollouts"]
        out["rejected"] += found["rejected"]
        progress(f"{name}: {found}")
    return out


def _pair(engine: str, dtype: str, files: int) -> dict[str, Any]:
    checks = ChecksConfig() if dtype == "float32" else BF16
    worst: dict[str, float] = {}
    out: dict[str, Any] = {"rollouts": 0, "files": files, "rejected": 0, "tokens": 0}
    with tempfile.TemporaryDirectory() as folder:
        save_tiny(Path(folder))
        worker = make_engine(engine, dtype, max_batch=64)
        judge = TransformersEngine(dtype)
        worker.load(Path(folder))
        judge.load(Path(folder))
        for number in range(files):
            source = random.Random(f"{engine} {dtype} {number}")
            asked = _requests(source, number)
            got: list[Completion] = []
            while len(got) < len(asked):
                size = source.choice([1, 3, 8, 17, 64])
                got += worker.generate(asked[len(got) : len(got) + size], SAMPLING)
            figures = _figures(judge, asked, got)
            out["rollouts"] += len(got)
            out["tokens"] += sum(len(completion.tokens) for completion in got)
            out["rejected"] += any(figures[name] >= bound for name, bound in _bounds(checks).items())
            worst = {name: round(max(value, worst.get(name, 0.0)), 6) for name, value in figures.items()}
    return out | {"largest": worst}


def save_tiny(folder: Path) -> None:
    """The demo's architecture with random weights, spread so that distributions are neither flat nor sharp."""
    from transformers import Qwen2ForCausalLM

    from protocol.models.tiny import tiny_qwen2

    torch.manual_seed(0)
    config = tiny_qwen2(VOCABULARY, EOS, VOCABULARY - 1)
    config.initializer_range = 0.08
    made: Any = Qwen2ForCausalLM
    made(config).save_pretrained(str(folder))


def _requests(source: random.Random, number: int) -> list[Request]:
    out = []
    for slot in range(ROWS // 8):
        prompt = tuple(source.randrange(260) for _ in range(source.randint(1, 40)))
        limit = source.choice([1, 2, source.randint(1, 96), source.randint(16, 64)])
        out += [Request(prompt, (number, slot, sample), limit) for sample in range(8)]
    return out


def _figures(judge: TransformersEngine, asked: Sequence[Request], got: Sequence[Completion]) -> dict[str, float]:
    hidden, gaps, errors = [], [], []
    pairs = [(request.prompt, completion.tokens) for request, completion in zip(asked, got, strict=True)]
    for request, completion, seen in zip(asked, got, judge.prefill(pairs), strict=True):
        hidden.append(seen.hidden)
        found = verify_choices(seen.logits, completion.tokens, request.noise_key, SAMPLING.temperature)
        gaps.append(found.gaps)
        errors.append(np.abs(found.logprobs - np.array(completion.logprobs)))
    chunks = [e for own in verify_many(hidden, [completion.proofs for completion in got]) for e in own]
    gap, error = np.concatenate(gaps), np.concatenate(errors)
    return {
        "mismatches_mean": float(np.mean([e.exponent_mismatches for e in chunks])),
        "mismatches_largest": float(max(e.exponent_mismatches for e in chunks)),
        "mantissa_mean": float(np.mean([e.mantissa_mean for e in chunks])),
        "mantissa_largest": float(max(e.mantissa_mean for e in chunks)),
        "gap": float(gap.max()),
        "miss_rate": float(max(0, (gap > 0).sum() - 1) / len(gap)),
        "logprob_error": float(error.max()),
        "logprob_mean": float(error.mean()),
    }


def _bounds(checks: ChecksConfig) -> dict[str, float]:
    return {
        "mismatches_mean": checks.exponent_mismatches_reject,
        "mismatches_largest": checks.exponent_mismatches_chunk_reject,
        "mantissa_mean": checks.mantissa_mean_reject,
        "mantissa_largest": checks.mantissa_mean_chunk_reject,
        "gap": checks.sampling_gap_reject,
        "miss_rate": checks.sampling_miss_rate_reject,
        "logprob_error": checks.logprob_error_reject,
        "logprob_mean": checks.logprob_mean_reject,
    }


if __name__ == "__main__":
    print(json.dumps(_pair(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
