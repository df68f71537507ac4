"""The memory plan against the bytes that ranks really hold, and of the layouts that people rent."""

import gc
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from protocol.config import EnvironmentConfig, LoraConfig, ModelConfig, PoolConfig, TrainConfig
from tests.trainer.crew import on_ranks
from trainer.config import MemoryConfig, ParallelConfig
from trainer.distributed import Ranks
from trainer.learner import Learner
from trainer.model.base_model import fresh_model
from trainer.model.sharding import make_placement
from trainer.reports.bench import full_row
from trainer.reports.plan import Account, accounts

SIZES = {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4, "num_attention_heads": 8}
MEMORY = MemoryConfig(row_tokens=128, head_chunk_mib=1, checkpoint_activations=True)


class Held(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The bytes of all tensors that any operation has seen and that are not freed: `most`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.most = 0
        self._seen: Any = WeakIdKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs, made)):
            if isinstance(leaf, Tensor):
                local = leaf.to_local() if isinstance(leaf, DTensor) else leaf
                if local.device.type == "cpu":
                    self._seen[local.untyped_storage()] = None
        self.most = max(self.most, self.now)
        return made

    @property
    def now(self) -> int:
        # FSDP frees what it gathered by taking its storage's bytes.
        return sum(storage.nbytes() for storage in list(self._seen))


def pool(dtype: str = "float32", lora: bool = False) -> PoolConfig:
    train = TrainConfig(lora=LoraConfig(rank=8) if lora else None)
    environment = EnvironmentConfig(name="reasoning_gym/chain_sum")
    return PoolConfig(name="p", model=ModelConfig(source="m", dtype=dtype), environments=(environment,), train=train)


def held(ranks: Ranks, folder: Path, lora: bool, once: bool) -> tuple[int, int]:
    """The bytes of a rank once the model is loaded, and at most in steps of several rows."""
    placement = make_placement(ParallelConfig(), MEMORY, "cpu", ranks)
    with Held() as seen:
        learner = Learner(folder, pool(lora=lora).train, 1.0, placement=placement)
        gc.collect()
        loaded, seen.most = seen.now, 0
        learner.policy.sums_whole = once
        for _ in range(2):
            learner.train_step(full_row(MEMORY.row_tokens, 256) * (2 * ranks.world))
    return loaded, seen.most


def planned(folder: Path, world: int, lora: bool, once: bool) -> Account:
    (found,) = accounts(str(folder), pool(lora=lora), MEMORY, [ParallelConfig(ranks=world)], (1 << 40) * once)
    return found


@pytest.mark.parametrize("lora", [False, True])
def test_a_plan_holds_what_ranks_hold(tmp_path: Path, lora: bool) -> None:
    folder = fresh_model(tmp_path / "base", 0, **SIZES)
    shares = {}
    for world, once in ((1, False), (4, False), (4, True)):
        loaded, most = map(max, *on_ranks(world, held, folder, lora, once), (0, 0))
        plan = planned(folder, world, lora, once)
        assert loaded == pytest.approx(plan.weights, rel=0.01)
        assert most == pytest.approx(plan.peak, rel=0.1)
        shares[world] = loaded
    assert shares[4] <= 0.26 * shares[1]
