"""Slices of a recording of `python -m benchmarks codec`, each in a process of its own: train a step, make its delta,
measure it, write the figures down, forget the weights.

`python -m benchmarks.codec_slices FOLDER METHOD RATE LAST SECONDS`: up to step LAST, no step begun after SECONDS.
`steps.jsonl` has a line for each step that was measured, a checkpoint comes every EVERY steps and at the end. A process
that is killed loses the training since its checkpoint and nothing else: those steps are trained once more and must give
the weights whose digests stand in their lines.
"""

import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.codec_peers import entropy_bytes, pulse_bytes
from protocol.delta.delta import TensorEntry, WeightIndex, apply_delta, encode_delta
from protocol.delta.tensors import decode_tensor, encode_tensor
from protocol.errors import IntegrityError
from trainer.records import read_records, write_records

EVERY, TIMED = 10, 10
JOURNAL = "steps.jsonl"
Weights = dict[str, np.ndarray]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def measure_steps(folder: Path, method: str, rate: float, last: int, seconds: float) -> None:
    """See the module. Raises IntegrityError if a step that is taken once more comes out differently."""
    from benchmarks.codec_steps import TrainedSteps

    end = time.monotonic() + seconds
    journal = folder / JOURNAL
    run, lines = TrainedSteps(folder, method, rate), read_records(journal)
    weights = run.weights()
    index = weight_index(weights)
    if run.step:
        _check_same(lines[run.step - 1], index)
    kept = run.step
    while run.step < last and time.monotonic() < end:
        began = time.process_time()
        tokens = run.advance()
        trained = time.process_time()
        before, weights = weights, run.weights()
        if run.step <= len(lines):
            index = weight_index(weights)
            _check_same(lines[run.step - 1], index)
        else:
            figures, index = measured(before, index, weights, run.step % TIMED == 0 or last < TIMED)
            spent = {"train_cpu": round(trained - began, 3), "measure_cpu": round(time.process_time() - trained, 3)}
            lines.append({"step": run.step, "tokens": tokens, **spent, **figures})
            write_records(journal, lines)
        if run.step % EVERY == 0:
            run.keep()
            kept = run.step
    if run.step > kept:
        run.keep()


def _check_same(line: dict[str, Any], index: WeightIndex) -> None:
    if line["digest"] != index.digest.hex():
        raise IntegrityError(
            f"step {line['step']} came out as {index.digest.hex()}, not as {line['digest']} as it did before",
            "go on with the machine and the packages that it was begun with, or remove this recording's folder",
        )


def measured(before: Weights, index: WeightIndex, after: Weights, timed: bool) -> tuple[dict[str, Any], WeightIndex]:
    """Figures of the delta between two versions, and the index of the second. Sizes are in bytes. Raises AssertionError
    if it does not come back bit for bit."""
    base, new = _flat(before), _flat(after)
    target = weight_index(after)
    delta = encode_delta(base, index, new, target)
    made, came = apply_delta(delta, base, index, target.digest)
    assert came == target, "another version comes out of the delta"
    assert all(np.array_equal(made[name], new[name]) for name in new), "the version does not come back bit for bit"
    figures: dict[str, Any] = {
        "digest": target.digest.hex(),
        "full": sum(data.size for data in base.values()),
        "delta": len(delta),
        "pulse": pulse_bytes(before, after),
        "entropy": round(sum(entropy_bytes(before[name], after[name]) for name in before)),
        "changed": sum(int((before[name] != after[name]).sum()) for name in before),
    }
    if timed:
        figures |= {"cpu": _timed(base, new), "load": round(os.getloadavg()[0], 1)}
    return figures, came


def _timed(base: dict[str, Bytes], new: dict[str, Bytes]) -> dict[str, float]:
    """Processor seconds: the median of three times for every tensor."""
    found = {"encode": 0.0, "decode": 0.0, "decode_hash": 0.0}
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
            found[key] += median(values)
    return {key: round(value, 4) for key, value in found.items()}


def _flat(weights: Weights) -> dict[str, Bytes]:
    return {name: values.reshape(-1).view(np.uint8) for name, values in weights.items()}


def weight_index(weights: Weights) -> WeightIndex:
    return WeightIndex.of(
        TensorEntry.of(name, "BF16", values.shape, values.reshape(-1).view(np.uint8))
        for name, values in weights.items()
    )


if __name__ == "__main__":
    measure_steps(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
