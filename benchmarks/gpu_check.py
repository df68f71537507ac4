"""What a GPU does with our code: `python -m benchmarks.gpu_check [--device cuda] [--quick] [--out FILE]`, nine minutes.

It needs torch, Triton and transformers, and no network. Each part is a process with a time limit of its own, of which
what it had found by then counts; after each the JSON object of all parts so far is written. `--quick` takes sizes
for a CPU, to test the script.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

Found = dict[str, Any]


def versions(device: str, quick: bool) -> Found:
    versions: Found = {"python": sys.version.split()[0]}
    for name in ("torch", "triton", "transformers", "vllm"):
        try:
            versions[name] = str(importlib.import_module(name).__version__)
        except ImportError:
            versions[name] = None
    import torch

    if device != "cpu":
        versions |= {"card": torch.cuda.get_device_name(device), "capability": torch.cuda.get_device_capability(device)}
        versions["memory"] = torch.cuda.get_device_properties(device).total_memory
    return versions


def noise(device: str, quick: bool) -> Found:
    """Choices of the device beside those of NumPy, and how long a choice takes."""
    import numpy as np
    import torch

    from protocol.sampling.noise import choose

    vocabulary, rows, batches = (500, 64, (4,)) if quick else (152_064, 20_000, (64, 256, 512))
    source = np.random.default_rng(0)
    figures: Found = {}
    for temperature in (1.0, 0.7):
        different = 0
        for start in range(0, rows, 256):
            count = min(256, rows - start)
            logits = (source.standard_normal((count, vocabulary), dtype=np.float32) * 3).astype(np.float32)
            keys = [(row, 1, 2) for row in range(start, start + count)]
            given = keys, list(range(count)), temperature
            mine = choose(torch.from_numpy(logits).to(device), *given).tokens
            different += int((mine != choose(logits, *given).tokens).sum())
        figures[f"different_at_{temperature}"] = different
    for batch in batches:
        drawn = torch.randn(batch, vocabulary, device=device)
        keys = [(row, 1, 2) for row in range(batch)]
        figures[f"ms_{batch}"] = _milliseconds(device, partial(choose, drawn, keys, [0] * batch, 1.0))
    return figures | {"rows": rows, "peak": _peak(device)}


def proofs(device: str, quick: bool) -> Found:
    """What proving costs beside a decode step: a row of each request to the CPU, and the chunks that are full there."""
    import torch

    from protocol.toploc.proofs import build_many

    figures: Found = {}
    for width in (128,) if quick else (3584, 5120):
        batch = 4 if quick else 256
        rows = torch.randn(batch, width, device=device, dtype=torch.bfloat16)
        figures[f"copy_ms_{width}"] = _milliseconds(device, partial(rows.to, "cpu", non_blocking=True))
        chunks = [torch.randn(32, width).bfloat16() for _ in range(max(1, batch // 32))]
        figures[f"prove_ms_{width}"] = _milliseconds("cpu", partial(build_many, chunks))
    return figures


def tests(device: str, quick: bool) -> Found:
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "tests/protocol/sampling", "tests/engines"]
    done = subprocess.run(command + ["--collect-only"] * quick, capture_output=True, text=True, check=False)
    return {"code": done.returncode, "last": done.stdout.strip().splitlines()[-1:]}


def generate(device: str, quick: bool) -> Found:
    """Tokens a second of a small model, and how far its honest files are from a judge's pass, by batch size."""
    from engines.base import Request, Sampling
    from engines.hf import TransformersEngine
    from protocol.sampling.noise import verify_rows
    from protocol.toploc.proofs import verify

    figures: Found = {}
    with _model("0.5B", quick) as folder:
        for dtype in ("bfloat16", "float32"):
            for batch in (2,) if quick else (1, 64, 256):
                engine = TransformersEngine(dtype, device, max_batch=batch)
                engine.load(folder)
                most = 8 if quick else 64
                asked = [Request((5, 6, 7 + n % 50), (n, 1, 2), most) for n in range(batch)]
                engine.generate(asked[:1], Sampling(1.0, ()))
                started = time.perf_counter()
                done = engine.generate(asked, Sampling(1.0, ()))
                seconds, worst = time.perf_counter() - started, {"mismatches": 0.0, "gap": 0.0}
                pairs = [(request.prompt, completion.tokens) for request, completion in zip(asked, done, strict=True)]
                for request, completion, seen in zip(asked, done, engine.prefill(pairs), strict=True):
                    chunks = verify(seen.hidden, completion.proofs)
                    worst["mismatches"] = max(worst["mismatches"], *(chunk.exponent_mismatches for chunk in chunks))
                    keys = [request.noise_key] * most
                    gaps = verify_rows(seen.logits, completion.tokens, keys, list(range(most)), 1.0).gaps
                    worst["gap"] = max(worst["gap"], float(gaps.max()))
                figures[f"{dtype}_{batch}"] = {
                    "tokens_a_second": batch * most / seconds,
                    **worst,
                    "peak": _peak(device),
                }
                print(json.dumps(figures), flush=True)
    return figures


def prefill(device: str, quick: bool) -> Found:
    """Tokens a second and memory of a judge's pass over one long text, its noise check included."""
    from engines.hf import TransformersEngine
    from protocol.sampling.noise import verify_rows

    figures: Found = {}
    with _model("0.5B", quick) as folder:
        engine = TransformersEngine("bfloat16", device)
        engine.load(folder)
        for length in (64,) if quick else (4096, 16384, 32000):
            output = tuple(5 + position % 50 for position in range(length))
            started = time.perf_counter()
            (seen,) = engine.prefill([((5, 6, 7), output)])
            for start in range(0, length, 1024):
                part = output[start : start + 1024]
                positions = list(range(start, start + len(part)))
                verify_rows(
                    seen.project(seen.states[start : start + 1024]), part, [(1, 2, 3)] * len(part), positions, 1.0
                )
            figures[f"{length}"] = {"tokens_a_second": length / (time.perf_counter() - started), "peak": _peak(device)}
            print(json.dumps(figures), flush=True)
    return figures


def train(device: str, quick: bool) -> Found:
    """Tokens a second, share of the peak and memory of training steps, one setting after another."""
    import torch

    from protocol.config import LoraConfig, TrainConfig, WorkConfig
    from trainer.config import MemoryConfig
    from trainer.learner import Learner
    from trainer.model.sharding import Placement
    from trainer.reports.bench import bench

    figures: Found = {}
    row = 64 if quick else 8192
    settings: dict[str, tuple[int, Found]] = {
        "plain": (row, {}),
        "offloaded": (row, {"offload_optimizer": True}),
        "long": (4 * row, {"checkpoint_activations": True}),
        "compiled": (row, {"compile": True}),
    }
    with _model("0.5B", quick) as folder:
        for name, (tokens, memory), lora in (
            *((name, setting, None) for name, setting in settings.items() if not (quick and name == "compiled")),
            ("lora", (row, {}), LoraConfig(rank=4)),
        ):
            placement = Placement(device=device, memory=MemoryConfig(row_tokens=tokens, **memory))
            try:
                learner = Learner(folder, TrainConfig(lora=lora), 1.0, "bfloat16", placement)
                shape = WorkConfig(max_new_tokens=tokens // 2, max_prompt_tokens=16)
                figures[name] = bench(learner, shape, 1, 1, lambda line: None)
            except torch.OutOfMemoryError as error:
                figures[name] = {"failed": str(error)[:200]}
            print(json.dumps(figures), flush=True)
    return figures


def repeat(device: str, quick: bool) -> Found:
    """Whether a checkpoint goes on bit for bit: two steps, and one with the second taken by another learner."""
    import torch

    from protocol.config import TrainConfig
    from trainer.learner import Learner
    from trainer.model.sharding import Placement
    from trainer.reports.bench import full_row

    groups = full_row(64 if quick else 4096, 300)
    with _model("0.5B", quick) as folder, tempfile.TemporaryDirectory() as kept:
        learner, other = (Learner(folder, TrainConfig(), 1.0, "bfloat16", Placement(device=device)) for _ in range(2))
        learner.train_step(groups)
        learner.start_checkpoint(Path(kept) / "step", {}).wait()
        learner.train_step(groups)
        other.load_checkpoint(Path(kept) / "step")
        other.train_step(groups)
        pairs = zip(learner.policy.model.parameters(), other.policy.model.parameters(), strict=True)
        return {"different": sum(not torch.equal(mine, theirs) for mine, theirs in pairs)}


# Part → seconds that it may take: nine minutes together.
PARTS: dict[str, tuple[float, Callable[[str, bool], Found]]] = {
    "versions": (20, versions),
    "noise": (60, noise),
    "proofs": (20, proofs),
    "tests": (60, tests),
    "generate": (90, generate),
    "prefill": (80, prefill),
    "train": (150, train),
    "repeat": (60, repeat),
}


def _milliseconds(device: str, work: Callable[[], Any], times: int = 20) -> float:
    import torch

    work()
    if device != "cpu":
        torch.cuda.synchronize(device)
    started = time.perf_counter()
    for _ in range(times):
        work()
    if device != "cpu":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - started) * 1000 / times


def _peak(device: str) -> int | None:
    """Return the bytes of the device that were in use at most since the last call."""
    import torch

    if device == "cpu":
        return None
    peak = int(torch.cuda.max_memory_allocated(device))
    torch.cuda.reset_peak_memory_stats(device)
    return peak


@contextmanager
def _model(name: str, quick: bool) -> Iterator[Path]:
    """A folder with random weights of Qwen2.5's shape."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    width, layers, heads, vocabulary = (128, 2, 4, 300) if quick else (896, 24, 14, 151_936)
    shape = Qwen2Config(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=2 * width if quick else 4864,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=2, max_position_embeddings=32768,
        tie_word_embeddings=True, initializer_range=0.05,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        Qwen2ForCausalLM(shape).save_pretrained(folder)  # type: ignore[no-untyped-call]
        yield Path(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure what a GPU does with muster.")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="sizes for a CPU, to test the script")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "build")) / "gpu_check.json")
    parser.add_argument("--part", choices=PARTS, help="only this one, in this process")
    options = parser.parse_args()
    if options.part:
        print(json.dumps(PARTS[options.part][1](options.device, options.quick)))
        return 0
    figures: Found = {}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for name, (seconds, _) in PARTS.items():
        command = [sys.executable, "-m", "benchmarks.gpu_check", "--part", name, "--device", options.device]
        started = time.perf_counter()
        try:
            result = subprocess.run(
                command + ["--quick"] * options.quick,
                capture_output=True,
                text=True,
                timeout=None if options.quick else seconds,
                check=False,
            )
            lines = result.stdout.strip().splitlines()
            figures[name] = json.loads(lines[-1]) if not result.returncode else {"failed": result.stderr[-2000:]}
        except subprocess.TimeoutExpired as error:
            records = [line for line in (error.stdout or b"").decode().split("\n")[:-1] if line.startswith("{")]
            figures[name] = json.loads(records[-1] if records else "{}") | {"failed": f"not done after {seconds:.0f} s"}
        figures[name]["seconds"] = round(time.perf_counter() - started, 1)
        options.out.write_text(json.dumps(figures, indent=1) + "\n")
        print(json.dumps({name: figures[name]}), flush=True)
    return int(any("failed" in figure for figure in figures.values()))


if __name__ == "__main__":
    sys.exit(main())
