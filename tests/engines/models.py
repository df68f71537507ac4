"""Tiny random Qwen2 folders for engine tests, and how far a completion is from what a judge finds."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from engines.base import Completion, Engine, Request
from protocol.rollout_file.rows import Inserted, interleaved, sampled_positions
from protocol.toploc import proofs as toploc
from tests.protocol.sampling.completion import verify_choices

Pairs = list[tuple[tuple[int, ...], tuple[int, ...]]]


def pairs_of(asked: list[Request], got: list[Completion]) -> Pairs:
    return [(request.prompt, completion.tokens) for request, completion in zip(asked, got, strict=True)]


def errors(
    judge: Engine, asked: list[Request], got: list[Completion], inserted: Sequence[Inserted] = ()
) -> dict[str, float]:
    """The worst over all proofs, choices and log-probabilities, at temperature 1."""
    worst = {"mismatches": 0.0, "mantissa": 0.0, "gap": 0.0, "logprob": 0.0}
    puts = inserted or [()] * len(got)
    pairs = [(one.prompt, interleaved(done.tokens, put)) for one, done, put in zip(asked, got, puts, strict=True)]
    for request, completion, put, seen in zip(asked, got, puts, judge.prefill(pairs), strict=True):
        places = sampled_positions(len(completion.tokens), put)
        for chunk in toploc.verify(seen.hidden[places], completion.proofs):
            worst["mismatches"] = max(worst["mismatches"], chunk.exponent_mismatches)
            worst["mantissa"] = max(worst["mantissa"], chunk.mantissa_mean)
        found = verify_choices(seen.logits[places], completion.tokens, request.noise_key, 1.0)
        worst["gap"] = max(worst["gap"], float(found.gaps.max()))
        worst["logprob"] = max(worst["logprob"], float(np.abs(found.logprobs - completion.logprobs).max()))
    return worst


def save_tiny(folder: Path, seed: int = 0, dtype: str = "float32", hidden: int = 128, vocab: int = 300) -> Path:
    """Random Qwen2: 2 layers, GQA, tied embeddings. Larger weights than the default, so that choices vary."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        initializer_range=0.1,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    model = Qwen2ForCausalLM(config).to(getattr(torch, dtype))  # type: ignore[no-untyped-call]
    model.save_pretrained(str(folder))
    return folder


def change_tensors(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Let `change` alter the tensors of a safetensors file."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(str(path))
    change(tensors)
    save_file(tensors, str(path), metadata={"format": "pt"})


def save_broken(folder: Path, source: Path) -> Path:
    """A copy of a folder with one NaN in its last norm."""
    shutil.copytree(source, folder)
    change_tensors(folder / "model.safetensors", lambda tensors: tensors["model.norm.weight"][:1].fill_(float("nan")))
    return folder
