"""Tiny random Qwen2 folders for engine tests."""

import shutil
from collections.abc import Callable
from pathlib import Path

import torch


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
