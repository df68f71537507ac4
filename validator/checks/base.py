"""What a check is, and how a measurement becomes a code."""

import math
from collections.abc import Callable, Iterable, Mapping

from protocol.verdict import Code, Finding, Measurement
from validator.context import CheckContext

Check = Callable[[CheckContext], Finding]
"""A pure function, named in its finding."""


def accept(check: str, **measurements: Measurement) -> Finding:
    return Finding(check, Code.ACCEPT, measurements)


def refuse(check: str, code: Code, note: str, **measurements: Measurement) -> Finding:
    return Finding(check, code, measurements, note)


def largest(values: Iterable[float]) -> float:
    """The maximum, or NaN as soon as one value is NaN (the built-in `max` may hide it)."""
    kept = list(values)
    return math.nan if any(map(math.isnan, kept)) else max(kept)


def by_threshold(
    check: str, code: Code, band: float, measured: Mapping[str, tuple[float, float]], **measurements: Measurement
) -> Finding:
    """Judge measurements by their reject thresholds: `measured` is name → (measurement, threshold).

    A measurement at its threshold or beyond (or not a number) gives `code`; one at `band` times its threshold or beyond
    is unsure; otherwise accept.
    """
    shown: dict[str, Measurement] = {name: measurement for name, (measurement, _) in measured.items()}
    shown |= {f"{name}_reject": threshold for name, (_, threshold) in measured.items()} | measurements
    over = [name for name, (measurement, threshold) in measured.items() if not measurement < threshold]
    if over:
        return Finding(check, code, shown, f"{', '.join(over)} at the reject threshold or beyond")
    near = [name for name, (measurement, threshold) in measured.items() if measurement >= band * threshold]
    if near:
        return Finding(check, Code.UNSURE, shown, f"{', '.join(near)} in the unsure band")
    return Finding(check, Code.ACCEPT, shown)
