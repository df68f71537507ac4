"""What a machine can serve of a pool's model: memory by arithmetic on its configuration, before anything is fetched."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cli.hardware import Gpu
from protocol.errors import ConfigError

GIB = 1 << 30
SHARE = 0.9
"""Of a card's memory, that an engine takes; the rest is the driver's and other programs'."""
_WORKING = 2 * GIB  # of it, on each card: activations, logits, CUDA graphs
_WIDTH = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True)
class ModelShape:
    """What memory depends on. weights: their bytes in the compute dtype; position: bytes of the KV cache per token."""

    weights: int
    position: int
    heads: int
    kv_heads: int

    @classmethod
    def of(cls, config: dict[str, Any], stored: int, stored_dtype: str, dtype: str) -> "ModelShape":
        """Return the shape of a model with this config.json, whose weights take `stored` bytes in `stored_dtype`.
        Raises ConfigError for a configuration that does not say."""
        text = config.get("text_config", config)
        if "quantization_config" in config or "quantization_config" in text:
            raise ConfigError(
                "the pool's model is quantised, which can be neither trained nor verified", "tell its owner"
            )
        try:
            layers, heads = int(text["num_hidden_layers"]), int(text["num_attention_heads"])
            kv_heads = int(text.get("num_key_value_heads") or heads)
            size = int(text.get("head_dim") or text["hidden_size"] // heads)
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            raise ConfigError("the model's config.json does not give its layers and heads", "ask its owner") from None
        width = _WIDTH[dtype]
        weights = stored * width // _WIDTH.get(stored_dtype, 2)
        return cls(weights, 2 * layers * kv_heads * size * width, heads, kv_heads)


@dataclass(frozen=True)
class Serving:
    """`cards` that serve together (tensor parallelism). `rows`: texts of full length that their KV cache holds at once;
    0 if it holds none, or the weights do not fit. `needs`: bytes of each card's memory for one such text."""

    cards: int
    rows: int
    needs: int


def servings(shape: ModelShape, memory: int, cards: int, length: int) -> list[Serving]:
    """Return what `cards` of `memory` bytes each can serve at `length` tokens a text, by how many work together."""
    out = []
    for together in (number for number in range(1, cards + 1) if cards % number == 0 and shape.heads % number == 0):
        # Beyond their number, KV heads are copied.
        kept = shape.position * length // min(together, shape.kv_heads)
        fixed = shape.weights // together + _WORKING
        room = int(memory * SHARE) - fixed
        out.append(Serving(together, max(0, room // kept), int((fixed + kept) / SHARE)))
    return out


def capacity(shape: ModelShape, gpus: Sequence[Gpu], memory: int, length: int) -> tuple[bool, str]:
    """Return whether a machine can serve the model at all, and what it can. memory: the machine's own, which serves
    where it has no card."""
    size = min((gpu.memory for gpu in gpus), default=memory)
    found = servings(shape, size, len(gpus) or 1, length)
    what = (
        f"{shape.weights / GIB:.1f} GiB of weights, {shape.position / 1024:.0f} KiB of KV cache a token, "
        f"{shape.position * length / GIB:.2f} GiB for a text of {length} tokens"
    )
    fitting = [one for one in found if one.rows]
    if not fitting:
        least = min(found, key=lambda one: one.needs)
        where = f"each of {least.cards} cards together" if gpus else "this machine"
        return False, f"{what}; {where} needs {least.needs / GIB:.0f} GiB and has {size / GIB:.0f} GiB"
    ways = [f"{one.rows} such texts at once {_way(one.cards, len(gpus))}" for one in fitting]
    return True, f"{what}; {', or '.join(ways)}"


def _way(together: int, cards: int) -> str:
    if not cards:
        return "in this machine's memory"
    return f"on {together} card{'s' * (together > 1)}" + (f" (of {cards}: one node each)" if together < cards else "")
