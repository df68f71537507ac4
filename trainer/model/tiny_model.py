"""The demo's tiny Qwen2: an ordinary Hugging Face model, small enough to train on one CPU core."""

from typing import TYPE_CHECKING

from protocol.config import ModelConfig

if TYPE_CHECKING:
    from transformers import Qwen2Config

START_OF_THOUGHT = "<think>"
END_OF_THOUGHT = "</think>"
# Of chain sums and thinking budgets; each is one token.
PHRASES = (
    START_OF_THOUGHT,
    END_OF_THOUGHT,
    "State the final answer to the following arithmetic problem: ",
    " + ",
    " - ",
    " =",
    " Think for ",
    " tokens before giving a response.",
)
TINY_SOURCE = "muster/tiny-qwen2"


def tiny_model_config() -> ModelConfig:
    """Return what a pool's configuration says about this model."""
    return ModelConfig(
        source=TINY_SOURCE,
        license="Apache-2.0",
        prompt_template="{question}" + START_OF_THOUGHT,
        answer_after=END_OF_THOUGHT,
    )


def tiny_qwen2(vocabulary: int, eos: int, pad: int) -> "Qwen2Config":
    """Return the configuration: hidden 128, 2 layers, 4 heads, 2 KV heads, FFN 256, tied embeddings, fp32: 333k
    parameters."""
    from transformers import Qwen2Config

    return Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        use_cache=True,
        bos_token_id=None,
        eos_token_id=eos,
        pad_token_id=pad,
        dtype="float32",
    )
