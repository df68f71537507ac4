"""What a verifier measures of one completion."""

from collections.abc import Sequence
from typing import Any

from protocol.sampling.noise import Gaps, NoiseKey, verify_rows


def verify_choices(logits: Any, tokens: Sequence[int], key: NoiseKey, temperature: float, first: int = 0) -> Gaps:
    """Recompute the race of a completion whose first token is at position `first`; logits: [T, V] float32."""
    return verify_rows(logits, tokens, [key] * len(tokens), range(first, first + len(tokens)), temperature)
