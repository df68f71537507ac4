"""The demo's tiny Qwen2: an ordinary Hugging Face model, small enough to train on one CPU core."""

from typing import TYPE_CHECKING, Any

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


def tiny_qwen2(vocabulary: int, eos: int, pad: int, **sizes: int) -> "Qwen2Config":
    """Return the configuration, without other `sizes` of 333k parameters in fp32, with tied embeddings."""
    from transformers import Qwen2Config

    ours: dict[str, Any] = {
        "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 512,
    }  # fmt: skip
    ends: dict[str, Any] = {"bos_token_id": None, "eos_token_id": eos, "pad_token_id": pad}
    return Qwen2Config(vocab_size=vocabulary, tie_word_embeddings=True, dtype="float32", **ends, **(ours | sizes))
