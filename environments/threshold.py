"""`score_threshold`, a parameter of every environment: how a scorer's partial credit becomes a reward."""

import math
from typing import Any

from protocol.errors import ConfigError

THRESHOLD = "score_threshold"


def take_threshold(params: dict[str, Any]) -> float:
    """The parameter, taken out of `params`; 1 where it is not there. Raises ConfigError."""
    value = params.pop(THRESHOLD, 1.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ConfigError(f"`params.{THRESHOLD}` is {value!r}", "use a number from 0 to 1 (1: right or nothing)")
    return float(value)


def credited(value: float, threshold: float) -> float:
    """1 where a score reaches the threshold, else 0; with threshold 0 the score itself, held within 0 and 1."""
    if not math.isfinite(value):
        return 0.0
    if threshold > 0:
        return 1.0 if value >= threshold else 0.0
    return min(1.0, max(0.0, value))
