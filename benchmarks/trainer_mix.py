"""The model and the rollouts that both trainers of `python -m benchmarks trainer` are given."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.rollouts import save_random
from protocol.models import save_byte_tokenizer
from trainer.batch import Group, TrainRollout


@dataclass(frozen=True)
class Mix:
    """`groups` problems with `samples` rollouts each. Lengths in tokens: prompts uniform, outputs log-normal around
    `median` and cut at `longest`, as reasoning models write them: many short, some very long."""

    groups: int = 4
    samples: int = 8
    vocabulary: int = 12288
    median: int = 110
    spread: float = 1.0
    longest: int = 768
    seed: int = 5

    def rollouts(self) -> list[Group]:
        dice = random.Random(self.seed)
        made = []
        for _ in range(self.groups):
            prompt = self._tokens(dice, dice.randint(24, 72))
            group = []
            for number in range(self.samples):
                length = min(self.longest, 1 + int(self.median * dice.lognormvariate(0.0, self.spread)))
                group.append(TrainRollout(prompt, self._tokens(dice, length), float(number % 2)))
            made.append(tuple(group))
        return made

    def _tokens(self, dice: random.Random, count: int) -> tuple[int, ...]:
        return tuple(dice.randrange(3, self.vocabulary) for _ in range(count))


def save_small_llama(
    folder: Path, vocabulary: int, heads: int = 6, kv_heads: int = 2, intermediate: int = 1024
) -> None:
    """A Llama of random weights, 64 dimensions a head, embeddings tied, with a tokenizer of bytes. By default in
    SmolLM2-135M's proportions, scaled to 19 million parameters."""
    import torch
    from transformers import LlamaConfig

    config: Any = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=64 * heads,
        intermediate_size=intermediate,
        num_hidden_layers=8,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    save_random(config, folder, torch.float32)
    save_byte_tokenizer(folder, ())
