"""What a site says of its inner steps in numbers: its word, but never one that a reader cannot count with."""

import math
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from protocol.api.base import at_most

MAX_FIGURES = 16
LARGEST = 1e9
"""Of a figure's size, unless it counts something."""
_COUNTABLE = float(1 << 48)
COUNTS: Mapping[str, float] = {
    "tokens": _COUNTABLE, "trained_tokens": _COUNTABLE, "documents": _COUNTABLE, "flops": 1e30,
}  # fmt: skip
"""Figures that count something, from 0 to these: the sum of all sites' is still a number that a database holds."""
FigureName = Annotated[str, Field(pattern=r"^[a-z_]{1,24}$")]


def limits_of(name: str) -> tuple[float, float]:
    """Least and largest value of the figure of that name."""
    return (0.0, COUNTS[name]) if name in COUNTS else (-LARGEST, LARGEST)


def _within(figures: dict[str, float]) -> dict[str, float]:
    for name, value in figures.items():
        least, most = limits_of(name)
        if not least <= value <= most:
            raise ValueError(f"{name} is {value:.6g}, and lies from {least:.6g} to {most:.6g} where a site is honest")
    return figures


Figures = Annotated[dict[FigureName, float], at_most(MAX_FIGURES), AfterValidator(_within)]
"""By name: loss, entropy and the like."""


def sayable(figures: Mapping[str, float]) -> dict[str, float]:
    """Those that may be said: a site whose model diverged leaves out what is out of bounds, and its readers see that it
    is missing."""
    kept = {name: float(value) for name, value in figures.items() if math.isfinite(value)}
    return {name: value for name, value in kept.items() if limits_of(name)[0] <= value <= limits_of(name)[1]}
