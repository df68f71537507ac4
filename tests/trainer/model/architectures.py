"""Tiny random models of several architectures, straight from their configurations."""

from typing import Any

import torch
import transformers

VOCABULARY = 97
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
PACKED: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2 tied": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen3 mixture": (
        "Qwen3Moe",
        {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8},
    ),
    "llama untied": ("Llama", {"tie_word_embeddings": False}),
    "gemma3 windows": ("Gemma3", {"head_dim": 8, "sliding_window": 5, "query_pre_attn_scalar": 8}),
    "mistral window": ("Mistral", {"sliding_window": 7}),
    "phi bias": ("Phi", {"attention_dropout": 0.0, "resid_pdrop": 0.0}),
    "olmo2": ("Olmo2", {}),
}
UNPACKED: dict[str, tuple[str, dict[str, Any]]] = {
    "llama4 chunks": ("Llama4", {"head_dim": 8, "attention_chunk_size": 6, "num_local_experts": 2}),
    "gpt-oss sinks": ("GptOss", {"head_dim": 8, "sliding_window": 6, "num_local_experts": 2, "num_experts_per_tok": 1}),
    "mamba recurrent": ("Mamba", {}),
}


def architecture(kind: str, dtype: torch.dtype = torch.float32) -> Any:
    """A model with random weights, biases and norms not at their neutral values, without dropout."""
    name, more = (PACKED | UNPACKED)[kind]
    library: Any = transformers
    config_class = getattr(library, f"{name}TextConfig", None) or getattr(library, f"{name}Config")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = getattr(library, f"{name}ForCausalLM")(config_class(**(SIZES | more)))
        for parameter in model.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
    return model.to(dtype).train()
