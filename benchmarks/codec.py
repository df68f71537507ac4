"""Measure the weight-delta codec on consecutive training steps: size and speed per step.

`python -m benchmarks codec [--quick]` trains a 25.7M model with our trainer on reasoning_gym problems, with AdamW and
Muon at three learning rates; every step's delta is encoded, applied and compared. Keys, by learning rate, the worse
optimiser's mean: `ratios` (full bf16 weights ÷ delta), `pulse` (the same for PULSE's format); `encode_gb_s`,
`decode_gb_s` and `decode_hash_gb_s` in gigabytes of base per CPU second of one thread (medians of every tenth step);
`runs`.
"""

import os
import random
import re
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from benchmarks.trainer import save_small_llama
from engines.loading import set_threads
from environments.base import Environment
from environments.registry import load_environment
from protocol.config import AdamWConfig, EnvironmentConfig, MuonConfig, OptimizerConfig, ScheduleConfig, TrainConfig
from protocol.delta.delta import DeltaReader, TensorEntry, WeightIndex, decode_tensor, encode_delta, encode_tensor
from protocol.models import load_tokenizer, save_byte_tokenizer
from trainer.config import MemoryConfig
from trainer.data.batch import Group, TrainRollout
from trainer.learner import Learner
from trainer.model.sharding import Placement

RATES, METHODS = ("1e-6", "1e-5", "1e-4"), {"adamw": AdamWConfig, "muon": MuonConfig}
STEPS, QUICK_STEPS, TIMED = 200, 3, 10
VOCABULARY, OWN_TOKENS = 4096, 258
SHAPE = {"heads": 8, "kv_heads": 4, "intermediate": 1408}  # 25.7 million parameters
DATASETS = ("caesar_cipher", "chain_sum", "sentence_reordering", "spell_backward", "word_sequence_reversal")
PROBLEMS, SAMPLES = 2, 4  # Problems a step, answers to each
Words = NDArray[np.uint16]  # The bits of a bf16 tensor
Bytes = NDArray[np.uint8]


def run(quick: bool, progress: Callable[[str], None]) -> dict[str, Any]:
    set_threads(1)
    environments = {name: load_environment(EnvironmentConfig(name=f"reasoning_gym/{name}")) for name in DATASETS}
    runs = {}
    for rate in RATES[:1] if quick else RATES:
        for method in METHODS:
            runs[f"{method}-{rate}"] = _run(method, rate, QUICK_STEPS if quick else STEPS, environments)
            progress(f"{method} {rate}: {runs[f'{method}-{rate}']}")
    smallest: dict[str, Any] = {}
    for key in ("ratios", "pulse", "encode_gb_s", "decode_gb_s", "decode_hash_gb_s"):
        values = [(name.partition("-")[2], run[key]) for name, run in runs.items()]
        smallest[key] = {rate: min(value for other, value in values if other == rate) for rate in dict(values)}
    return smallest | {"largest": max(run["largest"] for run in runs.values()), "runs": runs}


def _run(method: str, rate: str, steps: int, environments: Mapping[str, Environment]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        save_small_llama(Path(folder), VOCABULARY, **SHAPE)
        save_byte_tokenizer(Path(folder), _phrases(environments, VOCABULARY - OWN_TOKENS))
        optimizer = OptimizerConfig(
            method=METHODS[method](learning_rate=float(rate)), schedule=ScheduleConfig(decay_share=0.0)
        )
        placement = Placement(memory=MemoryConfig(row_tokens=512, head_chunk_mib=16))
        learner = Learner(Path(folder), TrainConfig(optimizer=optimizer), 1.0, "bfloat16", placement)
        tokenizer = load_tokenizer(Path(folder))
        weights, lines = _weights(learner), list[dict[str, Any]]()
        for step in range(1, steps + 1):
            learner.train_step(_groups(tokenizer, environments, step))
            before, weights = weights, _weights(learner)
            lines.append(_measured(before, weights, step % TIMED == 0 or steps < TIMED))
    timed = [line for line in lines if "cpu" in line]
    return {
        "steps": len(lines),
        **{name: round(statistics.fmean(line["full"] / line[key] for line in lines), 2)
           for name, key in (("ratios", "delta"), ("pulse", "pulse"))},
        "largest": round(max(line["delta"] / line["full"] for line in lines), 5),
        "changed": round(statistics.fmean(2 * line["changed"] / line["full"] for line in lines), 5),
        **{f"{key}_gb_s": round(statistics.median(line["full"] / 1e9 / line["cpu"][key] for line in timed), 3)
           for key in ("encode", "decode", "decode_hash")},
        "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def _weights(learner: Learner) -> dict[str, Words]:
    """The bf16 cast of the master weights."""
    named = dict(learner.policy.model.named_parameters())
    return {
        name: parameter.detach().to(torch.bfloat16).view(torch.uint16).numpy().copy()
        for name, parameter in named.items()
    }


# What the model is trained on


def _phrases(environments: Mapping[str, Environment], count: int) -> list[str]:
    """The commonest words of the problems' text, each with the space before it."""
    counts: Counter[str] = Counter()
    for environment in environments.values():
        for seed in range(600):
            problem = environment.problem(seed)
            counts.update(re.findall(r" [A-Za-z]+|\b[a-z]{2,}", f"{problem.question} {problem.answer}"))
    return [word for word, _ in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:count]]


def _groups(tokenizer: Any, environments: Mapping[str, Environment], step: int) -> list[Group]:
    """Scored answers: the reference, which is right, its beginning, and shuffled ones."""
    groups = []
    for number in range(1000 + step * PROBLEMS, 1000 + (step + 1) * PROBLEMS):
        environment, dice = environments[DATASETS[number % len(DATASETS)]], random.Random(number)
        problem = environment.problem(number)
        prompt = tuple(tokenizer.encode(problem.question))
        texts = [problem.answer, problem.answer[:-1]]
        texts += ["".join(dice.sample(problem.answer, len(problem.answer))) for _ in range(SAMPLES - len(texts))]
        outputs = [(*tokenizer.encode(text), len(tokenizer) - 2) for text in texts]
        scores = [environment.score(problem, text) for text in texts]
        groups.append(tuple(TrainRollout(prompt, *pair) for pair in zip(outputs, scores, strict=True)))
    return groups


# What is measured


def _measured(before: dict[str, Words], after: dict[str, Words], timed: bool) -> dict[str, Any]:
    """Return the sizes in bytes of one step's delta, and with `timed` processor seconds. Raises AssertionError unless
    the delta gives the new weights bit for bit."""
    base, new = ({name: tensor.reshape(-1).view(np.uint8) for name, tensor in each.items()} for each in (before, after))
    indices = [
        WeightIndex.of(TensorEntry.of(name, "BF16", tensor.shape, flat[name]) for name, tensor in each.items())
        for each, flat in ((before, base), (after, new))
    ]
    delta = encode_delta(base, indices[0], new, indices[1])
    reader = DeltaReader(delta, indices[0], indices[1].digest)
    decoded = {entry.name: reader.tensor(entry, base[entry.name]) for entry in indices[1].tensors}
    assert all(np.array_equal(decoded[name], new[name]) for name in new), "the delta does not restore the weights"
    figures: dict[str, Any] = {
        "full": sum(data.size for data in base.values()),
        "delta": len(delta),
        "pulse": _pulse_bytes(before, after),
        "changed": sum(int((before[name] != after[name]).sum()) for name in before),
    }
    return figures | {"cpu": _cpu_seconds(base, new)} if timed else figures


def _cpu_seconds(base: dict[str, Bytes], new: dict[str, Bytes]) -> dict[str, float]:
    """The median of three times for every tensor, summed."""
    totals = {"encode": 0.0, "decode": 0.0, "decode_hash": 0.0}
    for name, before in base.items():
        samples: list[tuple[float, float, float]] = []
        for _ in range(3):
            start = time.process_time()
            delta = encode_tensor(before, new[name], "BF16")
            encoded = time.process_time()
            decoded = decode_tensor(memoryview(delta), before, "BF16")
            end = time.process_time()
            TensorEntry.of(name, "BF16", (decoded.size // 2,), decoded)
            samples.append((encoded - start, end - encoded, time.process_time() - encoded))
        for key, values in zip(totals, zip(*samples, strict=True), strict=True):
            totals[key] += statistics.median(values)
    return totals


def _pulse_bytes(base: Mapping[str, Words], new: Mapping[str, Words]) -> int:
    """Return the size of PULSE's patch (arXiv 2602.03839): changed elements' rows as distances of one byte, columns as
    distances of two, and values; the three lists compressed by zstd at level 1. No hash or head is counted."""
    rows, columns, values = [], [], []
    for name, before in base.items():
        width = before.shape[-1] if before.ndim else 1
        after = new[name].reshape(-1)
        changed = np.flatnonzero(before.reshape(-1) != after)
        row, column = changed // width, changed % width
        down = np.diff(row, prepend=0)
        carried = np.full(int((down // 255).sum()), 255, np.uint8)
        across = np.where(down > 0, column, np.diff(column, prepend=0))
        rows += [(down % 255).astype(np.uint8).tobytes(), carried.tobytes()]
        columns.append(across.astype(np.uint16).tobytes())
        values.append(after[changed].tobytes())
    codec = pa.Codec("zstd", compression_level=1)
    return sum(len(codec.compress(b"".join(lists), asbytes=True)) for lists in (rows, columns, values))
