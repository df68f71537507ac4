"""Tokens per second and utilisation of real sizes on a GPU: random weights, 8k-token outputs, bfloat16."""

import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.rollouts import save_random
from protocol.config import WorkConfig
from protocol.models import save_byte_tokenizer
from protocol.training import TrainConfig

# Qwen2.5's shapes: name, hidden, FFN, layers, heads.
SHAPES = (("0.5B", 896, 4864, 24, 14), ("1.5B", 1536, 8960, 28, 12))
WORK = WorkConfig(samples_per_problem=8, max_new_tokens=8192, max_prompt_tokens=1024)


def gpu_rows(quick: bool, progress: Callable[[str], None]) -> list[dict[str, Any]]:
    """One row for each size, with the fields of BenchReport, and one more with products in 8 bits where the GPU has
    them; none without a GPU."""
    import torch

    from trainer.model.projections import LEAST_CAPABILITY

    if not torch.cuda.is_available():
        return []
    kinds = (False, True) if torch.cuda.get_device_capability() >= LEAST_CAPABILITY else (False,)
    steps = 1 if quick else 3
    return [_row(*shape, float8, steps=steps, progress=progress) for shape in SHAPES for float8 in kinds]


def _row(
    name: str,
    hidden: int,
    inner: int,
    layers: int,
    heads: int,
    float8: bool,
    steps: int,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    import torch
    from transformers import Qwen2Config

    from trainer.bench import bench
    from trainer.config import MemoryConfig
    from trainer.learner import Learner
    from trainer.model.sharding import Placement

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        config = Qwen2Config(
            vocab_size=151936,
            hidden_size=hidden,
            intermediate_size=inner,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=2,
            max_position_embeddings=32768,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=151643,
        )
        save_random(config, folder, torch.float32)
        save_byte_tokenizer(folder, ())
        memory = MemoryConfig(row_tokens=32768, head_chunk_mib=1024, compile=True, float8=float8)
        learner = Learner(folder, TrainConfig(), 1.0, "bfloat16", Placement(device="cuda", memory=memory))
        report = bench(learner, WORK, rows=4, steps=steps, say=progress)
    return {"model": name, "float8": float8} | asdict(report)
