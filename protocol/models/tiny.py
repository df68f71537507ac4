"""The demo's tiny Qwen2: an ordinary Hugging Face model, small enough to train on one CPU core."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import Qwen2Config


def tiny_qwen2(vocabulary: int, eos: int, pad: int, max_positions: int = 512) -> "Qwen2Config":
    """Hidden 128, 2 layers, 4 heads, 2 KV heads, FFN 256, tied embeddings, fp32: 333k parameters at 265 tokens."""
    from transformers import Qwen2Config

    return Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=max_positions,
        tie_word_embeddings=True,
        use_cache=True,
        bos_token_id=None,
        eos_token_id=eos,
        pad_token_id=pad,
        dtype="float32",
    )
