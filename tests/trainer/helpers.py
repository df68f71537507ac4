"""A model of a few thousand parameters, and rollouts for it."""

import random
from pathlib import Path
from typing import Any

import torch
import transformers

from protocol.models import save_byte_tokenizer
from trainer.data.batch import Group, TrainRollout
from trainer.model.tiny_model import PHRASES


def small_model(folder: Path, seed: int = 0) -> Path:
    """A Hugging Face folder with a random Qwen2 of hidden size 16."""
    folder.mkdir(parents=True, exist_ok=True)
    size = save_byte_tokenizer(folder, PHRASES)
    config: Any = transformers.Qwen2Config(
        vocab_size=size,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        eos_token_id=size - 2,
        pad_token_id=size - 1,
        bos_token_id=None,
    )
    make: Any = transformers.Qwen2ForCausalLM
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make(config)
    model.save_pretrained(str(folder))
    return folder


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
