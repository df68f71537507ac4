"""`seconds`: how long each call of a program may take, as its owner promises the validators; counted, not timed."""

from typing import Any

from environments.sandbox.program import MIB, SandboxLimits
from protocol.errors import ConfigError

CORE_FUEL = 4_000_000_000
"""Units of fuel that a usual core does in a second at most."""
SECONDS = "seconds"
_USUAL, LEAST, MOST = 0.5, 0.01, 5.0


def take_limits(params: dict[str, Any]) -> SandboxLimits:
    """Of one call of `problem`, `reply` or `score`; the parameter is taken out of `params`. Raises ConfigError."""
    return SandboxLimits(fuel=round(take_seconds(params) * CORE_FUEL), memory=256 * MIB, output=2 * MIB, calls=2_000)


def take_seconds(params: dict[str, Any]) -> float:
    """The parameter, taken out of `params`; half a second where it is not there. Raises ConfigError."""
    value = params.pop(SECONDS, _USUAL)
    if isinstance(value, bool) or not isinstance(value, int | float) or not LEAST <= value <= MOST:
        raise ConfigError(f"`params.{SECONDS}` is {value!r}", f"use a number from {LEAST:g} to {MOST:g}")
    return float(value)
