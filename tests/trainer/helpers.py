"""A model of a few thousand parameters, and rollouts for it."""

import random
from pathlib import Path
from typing import Any

import psutil
import torch

from protocol.config import TrainConfig
from trainer.config import MemoryConfig, ParallelConfig
from trainer.data.batch import Group, TrainRollout
from trainer.distributed import Ranks
from trainer.learner import Learner
from trainer.model.base_model import fresh_model
from trainer.model.sharding import make_placement, whole


def small_model(folder: Path, seed: int = 0) -> Path:
    """A Hugging Face folder with a random Qwen2 of hidden size 16."""
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 1}
    sizes = {"hidden_size": 16, "intermediate_size": 32, "max_position_embeddings": 128}
    return fresh_model(folder, seed, **heads, **sizes)


def some_groups(seed: int, count: int = 4, samples: int = 4, logprobs: bool = False) -> list[Group]:
    """Groups of random tokens; the last one has equal rewards."""
    dice = random.Random(seed)
    groups = []
    for number in range(count):
        prompt = tuple(dice.randrange(256) for _ in range(dice.randint(2, 9)))
        rollouts = []
        for sample in range(samples):
            output = tuple(dice.randrange(256) for _ in range(dice.randint(1, 20)))
            reward = 1.0 if number == count - 1 else float(sample % 2)
            known = tuple(-dice.random() * 8 for _ in output) if logprobs else ()
            rollouts.append(TrainRollout(prompt, output, reward, reward, known))
        groups.append(tuple(rollouts))
    return groups


def learner_of(base: Path, ranks: Ranks | None = None, config: TrainConfig | None = None, **options: Any) -> Learner:
    """A learner of one rank, sharded over all of `ranks`."""
    placement = make_placement(ParallelConfig(), MemoryConfig(), "cpu", ranks or Ranks())
    return Learner(base, config or TrainConfig(), 1.0, placement=placement, **options)


def weights_of(learner: Learner) -> dict[str, torch.Tensor]:
    """Copies of the weights, whole; every rank must call it."""
    return {name: whole(value.detach()).clone() for name, value in learner.policy.model.state_dict().items()}


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def largest_difference(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
    assert left.keys() == right.keys()
    return max(float((left[name] - right[name]).abs().max()) for name in left)
