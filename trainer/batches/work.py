"""How much a sequence costs to train on: what packing levels over ranks, and what utilisation is counted in."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class WorkEstimate:
    """Floating-point operations of one forward pass: `linear` for each token, and for each pair of a token and one that
    it sees, (window, operations) of all layers with that window; a window of 0 reaches back to the beginning."""

    linear: float
    attention: tuple[tuple[int, float], ...] = ()

    @classmethod
    def of(cls, model: Any) -> "WorkEstimate":
        """Of a transformers model, from its matrices (embeddings only look up, the head multiplies) and its heads.

        Of experts as many count as a token visits.
        """
        config = model.config.get_text_config()
        heads = int(getattr(config, "num_attention_heads", 0) or 0)
        width = int(getattr(config, "head_dim", None) or (config.hidden_size // heads if heads else 0))
        head = int(config.vocab_size) * int(config.hidden_size)
        layers = Counter(_windows(config))
        attention = tuple((window, 4.0 * count * heads * width) for window, count in sorted(layers.items()))
        return cls(2.0 * (_matrices(model, config) + head), attention)

    def of_sequence(self, length: int) -> float:
        """Of a sequence of `length` tokens, each of which sees itself and what comes before."""
        seen = 0.0
        for window, operations in self.attention:
            span = min(length, window) if window else length
            seen += operations * (span - span * span / (2 * length))
        return length * (self.linear + seen)

    def training(self, lengths: Iterable[int]) -> float:
        """Forward and backward pass, without what is computed twice to save memory."""
        return 3.0 * sum(map(self.of_sequence, lengths))


def _windows(config: Any) -> list[int]:
    """How far each layer sees."""
    window = int(getattr(config, "sliding_window", None) or 0)
    if getattr(config, "use_sliding_window", True) is False:
        window = 0
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * int(config.num_hidden_layers)
    return [window if kind == "sliding_attention" else 0 for kind in kinds]


def _matrices(model: Any, config: Any) -> float:
    """Weights of the layers' matrices that one token multiplies with."""
    experts = next((n for key in ("num_experts", "num_local_experts") if (n := getattr(config, key, None))), 0)
    share = config.num_experts_per_tok / experts if experts else 1.0
    total = 0.0
    for name, parameter in model.named_parameters():
        if parameter.ndim >= 2 and "embed" not in name and "lm_head" not in name:
            total += parameter.numel() * (share if ".experts." in name else 1.0)
    return total
