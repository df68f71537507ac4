"""A model of a few thousand parameters, and rollouts for it."""

import random
from pathlib import Path

from trainer.data.batch import Group, TrainRollout
from trainer.model.base_model import fresh_model


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
