"""Where models lie: blocks, layouts over ranks, and exports that do not show how many ranks there were."""

from pathlib import Path

import pytest
import torch
from torch.distributed.tensor import DTensor

from protocol.errors import ConfigError
from protocol.files import file_digests
from tests.trainer.crew import on_ranks
from trainer.config import MemoryConfig, ParallelConfig
from trainer.distributed import Ranks
from trainer.model.policy import Policy
from trainer.model.sharding import Placement, make_placement, model_blocks


def placement(ranks: Ranks, shard: int = 0, **memory: bool) -> Placement:
    """As `make_placement` would, in a process that has joined already."""
    return make_placement(ParallelConfig(shard=shard), MemoryConfig(**memory), "cpu", ranks)


def exported(ranks: Ranks, base: Path, out: Path, shard: int) -> tuple[str, int]:
    """How the first matrix lies, and its local rows."""
    policy = Policy(base, "bfloat16", placement(ranks, shard))
    policy.export(out)
    matrix = next(value for value in policy.model.parameters() if value.ndim == 2)
    assert isinstance(matrix, DTensor)
    assert matrix.dtype == torch.float32
    return str(matrix.placements), matrix.to_local().shape[0]


def refused(ranks: Ranks) -> str:
    with pytest.raises(ConfigError) as caught:
        placement(ranks, shard=2)
    return str(caught.value)


@pytest.mark.parametrize(("shard", "lies", "share"), [(0, "(Shard(dim=0),)", 4), (2, "(Replicate(), Shard(dim=0))", 2)])
def test_an_export_does_not_show_how_many_ranks_made_it(
    base: Path, tmp_path: Path, shard: int, lies: str, share: int
) -> None:
    whole = Policy(base, "bfloat16")
    whole.export(tmp_path / "whole")
    rows = next(value for value in whole.model.parameters() if value.ndim == 2).shape[0]
    found = on_ranks(4, exported, base, tmp_path / "sharded", shard)
    assert found[0] == (lies, -(-rows // share))
    assert file_digests(tmp_path / "whole") == file_digests(tmp_path / "sharded")


def test_a_group_must_divide_the_ranks() -> None:
    assert on_ranks(3, refused)[0].startswith("`parallel.shard` 2 does not divide 3 ranks")


def test_a_process_alone_holds_its_model_whole_whose_layers_are_its_blocks(base: Path) -> None:
    alone = make_placement(ParallelConfig(), MemoryConfig(), "cpu")
    assert alone.mesh is None
    model = Policy(base, placement=alone).model
    assert not any(isinstance(value, DTensor) for value in model.parameters())
    assert [type(block).__name__ for block in model_blocks(model)] == ["Qwen2DecoderLayer"]
