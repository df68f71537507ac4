"""How much a sequence costs to train on: what packing levels over ranks, and what utilisation is counted in."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class WorkEstimate:
    """Floating-point operations of one forward pass: `linear` per token, `attention` per pair of a token and one that
    it may see; `window` is how far back the layers see on average (0: everything)."""

    linear: float
    attention: float = 0.0
    window: float = 0.0

    @classmethod
    def of(cls, model: Any) -> "WorkEstimate":
        """Of a transformers model, from its matrices (embeddings look up, only the head multiplies) and its heads.

        Experts count as many times as a token visits them.
        """
        config = model.config.get_text_config()
        layers = int(config.num_hidden_layers)
        heads = int(getattr(config, "num_attention_heads", 0) or 0)
        width = int(getattr(config, "head_dim", None) or (config.hidden_size // heads if heads else 0))
        head = int(config.vocab_size) * int(config.hidden_size)
        kinds = getattr(config, "layer_types", None) or ["full_attention"] * layers
        windows = kinds.count("sliding_attention") == layers and getattr(config, "sliding_window", None)
        return cls(2.0 * (_matrices(model, config) + head), 4.0 * layers * heads * width, float(windows or 0))

    def of_sequence(self, length: int) -> float:
        """Of a sequence of `length` tokens, each of which sees itself and what comes before."""
        span = min(length, self.window) if self.window else length
        return length * (self.linear + self.attention * (span - span * span / (2 * length)))

    def training(self, lengths: Iterable[int]) -> float:
        """Forward and backward pass, without what is computed twice to save memory."""
        return 3.0 * sum(map(self.of_sequence, lengths))


def _matrices(model: Any, config: Any) -> float:
    """Weights of the layers' matrices that one token multiplies with."""
    experts = next((n for key in ("num_experts", "num_local_experts") if (n := getattr(config, key, None))), 0)
    share = config.num_experts_per_tok / experts if experts else 1.0
    total = 0.0
    for name, parameter in model.named_parameters():
        if parameter.ndim >= 2 and "embed" not in name and "lm_head" not in name:
            total += parameter.numel() * (share if ".experts." in name else 1.0)
    return total
