"""`python -m benchmarks codec`: the delta codec on real training steps, on made-up tensors and on damaged deltas.

Six runs of 200 consecutive steps of a 25.7M model by our trainer: AdamW and Muon at three learning rates, recorded in
build/codec once (`--resume` keeps what is there). Ratios are of the whole delta, hashes included, to the bf16 weights:
the mean over steps of full ÷ delta. Speeds are in gigabytes of base per second of processor time of one thread, without
and with the SHA-256 of the result; every tenth step is timed, and the median counts.
"""

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.codec_cases import is_accepted, is_restored, made_case, tensor_pair
from benchmarks.codec_peers import entropy_bytes, pulse_bytes
from benchmarks.codec_steps import Weights, recorded
from protocol.delta.delta import apply_delta, encode_delta
from protocol.delta.index import TensorEntry, WeightIndex
from protocol.delta.tensor import decode_tensor, encode_tensor

RATES = ("1e-6", "1e-5", "1e-4")
METHODS = ("adamw", "muon")
FOLDER = Path(__file__).parent.parent / "build" / "codec"
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def run(quick: bool, progress: Callable[[str], None], resume: bool = False) -> dict[str, Any]:
    steps, made_up = (3, 300) if quick else (200, 10_000)
    folder = FOLDER / "quick" if quick else FOLDER
    if not resume:
        shutil.rmtree(folder, ignore_errors=True)
    runs: dict[str, dict[str, Any]] = {}
    for rate in RATES[:1] if quick else RATES:
        for method in METHODS:
            place = folder / f"{method}-{rate}"
            progress(f"{method} at {rate}: {steps} steps")
            command = [sys.executable, "-m", "benchmarks.codec_steps", str(place), method, rate, str(steps)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            runs[f"{method} {rate}"] = figures = measured(place, steps)
            progress(f"{method} at {rate}: {figures}")
    return summary(runs) | {
        "restored": sum(is_restored(tensor_pair(number)) for number in range(made_up)),
        "corrupted_accepted": corrupted(made_up),
        "made_up": made_up,
        "runs": runs,
    }


def summary(runs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Of each learning rate the worse optimizer's figures."""
    found: dict[str, Any] = {}
    for key in ("ratios", "pulse", "entropy", "encode_gb_s", "decode_gb_s", "decode_hash_gb_s"):
        rates = [rate for rate in RATES if any(name.endswith(rate) for name in runs)]
        found[key] = {rate: min(one[key] for name, one in runs.items() if name.endswith(rate)) for rate in rates}
    return found | {"largest": max(one["largest"] for one in runs.values())}


def measured(folder: Path, steps: int) -> dict[str, Any]:
    """Raises AssertionError if a step does not come back bit for bit, or its delta is as large as the weights."""
    columns: dict[str, list[float]] = {key: [] for key in ("ratios", "pulse", "entropy", "changed", "largest")}
    times: dict[str, list[float]] = {key: [] for key in ("encode_gb_s", "decode_gb_s", "decode_hash_gb_s")}
    index: WeightIndex | None = None
    for step, (before, after) in enumerate(recorded(folder, steps)):
        base, new = _flat(before), _flat(after)
        full = sum(data.size for data in base.values())
        index = index or _index(before)
        target = _index(after)
        delta = encode_delta(base, index, new, target)
        made, index = apply_delta(delta, base, index, target.digest)
        assert all(np.array_equal(made[name], new[name]) for name in new), f"step {step} does not come back"
        columns["ratios"].append(full / len(delta))
        columns["largest"].append(len(delta) / full)
        if step % 10 == 0 or steps < 10:
            columns["pulse"].append(full / pulse_bytes(before, after))
            columns["entropy"].append(full / sum(entropy_bytes(before[name], after[name]) for name in before))
            columns["changed"].append(sum(int((before[name] != after[name]).sum()) for name in before) * 2 / full)
            for key, seconds in _timed(base, new).items():
                times[key].append(full / 1e9 / seconds)
    means = {key: round(statistics.fmean(values), 4 if key == "changed" else 2) for key, values in columns.items()}
    speeds = {key: round(statistics.median(values), 3) for key, values in times.items()}
    return means | speeds | {"largest": round(max(columns["largest"]), 4), "worst": round(min(columns["ratios"]), 2)}


def _timed(base: dict[str, Bytes], new: dict[str, Bytes]) -> dict[str, float]:
    """Processor seconds: the median of three times for every tensor."""
    found = {"encode_gb_s": 0.0, "decode_gb_s": 0.0, "decode_hash_gb_s": 0.0}
    for name, before in base.items():
        encoding, decoding, hashing = [], [], []
        for _ in range(3):
            start = time.process_time()
            delta = encode_tensor(before, new[name], "BF16")
            coded = time.process_time()
            made = decode_tensor(memoryview(delta), before, "BF16")
            decoded = time.process_time()
            TensorEntry.of(name, "BF16", (made.size // 2,), made)
            encoding.append(coded - start)
            decoding.append(decoded - coded)
            hashing.append(time.process_time() - coded)
        for key, values in zip(found, (encoding, decoding, hashing), strict=True):
            found[key] += statistics.median(values)
    return found


def corrupted(count: int) -> int:
    """How many of `count` damaged deltas, of twenty sorts of tensors, make other weights than their maker had."""
    cases = [made_case([tensor_pair(first + one) for one in range(3 + first % 22)]) for first in range(20, 420, 20)]
    cases = [case for case in cases if case.base_index != case.new_index]
    return sum(is_accepted(cases[number % len(cases)], number) for number in range(count))


def _flat(weights: Weights) -> dict[str, Bytes]:
    return {name: values.reshape(-1).view(np.uint8) for name, values in weights.items()}


def _index(weights: Weights) -> WeightIndex:
    return WeightIndex.of(
        TensorEntry.of(name, "BF16", values.shape, values.reshape(-1).view(np.uint8))
        for name, values in weights.items()
    )
