"""Real policy steps for `python -m benchmarks codec`, recorded by a process of its own:
`python -m benchmarks.codec_steps FOLDER METHOD RATE STEPS` trains a model of 26 million parameters with our trainer and
keeps its bf16 weights before the first step and what every step changed in them."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.trainer_mix import Mix, save_small_llama
from protocol.files import write_atomic
from protocol.training import AdamWConfig, MuonConfig, OptimizerConfig, ScheduleConfig, TrainConfig

VOCABULARY = 4096
Weights = dict[str, np.ndarray]
"""Tensors by name; bf16 as uint16."""


def record(folder: Path, method: str, rate: float, steps: int) -> None:
    """Fill `folder` with `base.npz` and `<step>.zst`, step 1 to `steps`: the xor with the step before. A run that was
    interrupted begins anew, one that is whole stays."""
    from engines.loading import set_threads
    from trainer.config import MemoryConfig
    from trainer.learner import Learner
    from trainer.model.sharding import Placement

    if (folder / f"{steps}.zst").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    set_threads(1)
    # 25.7 million parameters
    save_small_llama(folder / "model", VOCABULARY, heads=8, kv_heads=4, intermediate=1408)
    chosen = (MuonConfig if method == "muon" else AdamWConfig)(learning_rate=rate)
    optimizer = OptimizerConfig(method=chosen, schedule=ScheduleConfig(decay_share=0.0))
    config = TrainConfig(steps=steps, optimizer=optimizer)
    memory = MemoryConfig(row_tokens=512, head_chunk_mib=16)
    learner = Learner(folder / "model", config, 1.0, "bfloat16", Placement(memory=memory))
    before = _weights(learner)
    np.savez(folder / "base.npz", **before)  # type: ignore[arg-type]
    codec = pa.Codec("zstd", compression_level=1)
    for step in range(1, steps + 1):
        mix = Mix(groups=1, samples=4, vocabulary=VOCABULARY, median=14, spread=0.5, longest=32, seed=step)
        learner.train_step(mix.rollouts())
        after = _weights(learner)
        changed = np.concatenate([(before[name] ^ after[name]).reshape(-1) for name in sorted(before)])
        write_atomic(folder / f"{step}.zst", codec.compress(changed.tobytes(), asbytes=True))
        before = after


def recorded(folder: Path, steps: int) -> Iterator[tuple[Weights, Weights]]:
    """The weights before and after each step; neither may be changed."""
    with np.load(folder / "base.npz") as file:
        before = {name: file[name] for name in sorted(file.files)}
    size = sum(values.nbytes for values in before.values())
    codec = pa.Codec("zstd", compression_level=1)
    for step in range(1, steps + 1):
        plain = codec.decompress((folder / f"{step}.zst").read_bytes(), decompressed_size=size, asbytes=True)
        changed, start, after = np.frombuffer(plain, np.uint16), 0, {}
        for name, values in before.items():
            after[name] = values ^ changed[start : start + values.size].reshape(values.shape)
            start += values.size
        yield before, after
        before = after


def _weights(learner: Any) -> Weights:
    """The bf16 cast of the master weights, each storage once."""
    import torch

    named = dict(learner.policy.model.named_parameters())
    return {name: one.detach().to(torch.bfloat16).view(torch.uint16).numpy().copy() for name, one in named.items()}


if __name__ == "__main__":
    record(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
