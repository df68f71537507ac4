"""The pools of `ops/pools` for machines that people rent: they can work, be judged in time, and fit their cards."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.pool.config import contradictions, judging, load_terms, world_problems
from protocol.config import PoolConfig
from protocol.encoding import load_document
from trainer.config import ComputeConfig
from trainer.reports.plan import plan

POOLS = Path(__file__).parents[2] / "ops/pools"
QWEN3 = {"model_type": "qwen3", "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960}
SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size")
SHAPES: dict[str, dict[str, Any]] = {
    "Qwen/Qwen3-1.7B": dict(zip(SIZES, (28, 2048, 16, 8, 6144), strict=True)) | {"tie_word_embeddings": True},
    "Qwen/Qwen3-8B": dict(zip(SIZES, (36, 4096, 32, 8, 12288), strict=True)),
    "Qwen/Qwen3-32B": dict(zip(SIZES, (64, 5120, 64, 8, 25600), strict=True)),
}
MACHINES = {"1x24gb": (1, 22.0), "1x80gb": (1, 78.0), "8x80gb": (8, 78.0), "2x8x80gb": (16, 78.0)}
"""Pool → cards, and the GiB that a program gets of each."""


def test_every_pool_of_the_folder_is_checked() -> None:
    assert {path.name for path in POOLS.iterdir()} == {"terms.toml"} | {
        f"{name}{part}" for name in MACHINES for part in (".toml", ".trainer.toml")
    }


@pytest.mark.parametrize("name", MACHINES)
def test_the_pool_can_work_and_fits_its_cards(name: str, tmp_path: Path) -> None:
    pool = load_document(POOLS / f"{name}.toml", PoolConfig)
    shape = QWEN3 | SHAPES[pool.model.source]
    (tmp_path / "config.json").write_text(json.dumps(shape))
    local = pool.model_copy(update={"model": pool.model.model_copy(update={"source": str(tmp_path)})})
    terms = load_terms(POOLS / "terms.toml", local.digest, local.work.units)
    judged, slow = judging(local, terms, shape)
    assert "rows of a lane" in judged
    unmeasured, *others = contradictions(local, terms, 10**24)
    assert "pool calibrate --apply" in unmeasured.hint, "what an owner does with the model that is trained"
    assert [*others, *world_problems(local, tmp_path), *slow] == []

    compute = load_document(POOLS / f"{name}.trainer.toml", ComputeConfig)
    cards, gib = MACHINES[name]
    (account,) = plan(local, tmp_path, compute, [cards], gib)["accounts"]
    assert account["fits"], account
    assert (
        compute.memory.row_tokens * compute.parallel.context >= pool.work.max_prompt_tokens + pool.work.max_new_tokens
    )
