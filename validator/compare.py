"""Where two verdicts on one submission differ: which check, which measurement. Pure."""

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from protocol.evidence.figures import CHECK
from protocol.verdict import Finding, Measurement, Verdict

CODE = "code"


@dataclass(frozen=True)
class Difference:
    """`measurement` is the name of one, or "code" for what the check gave; None stands for a check or measurement that
    one of the two verdicts lacks."""

    check: str
    measurement: str
    theirs: Measurement | None
    ours: Measurement | None

    @property
    def size(self) -> float | None:
        """The distance of two numbers, None of anything else. A stranger's may be larger than any float."""
        if isinstance(self.theirs, int | float) and isinstance(self.ours, int | float):
            with suppress(OverflowError):
                return abs(float(self.theirs) - float(self.ours))
        return None

    def __str__(self) -> str:
        return f"{self.check}.{self.measurement} {_shown(self.theirs)} against our {_shown(self.ours)}"


def differences(theirs: Verdict, ours: Verdict) -> list[Difference]:
    """Codes of checks first, then measurements, both in the order of the checks; not the figures of single rows."""
    pairs = _paired(theirs.findings, ours.findings)
    codes = [Difference(check, CODE, _code(a), _code(b)) for check, a, b in pairs if _code(a) != _code(b)]
    measurements = [
        Difference(check, name, left, right)
        for check, a, b in pairs
        for name, left, right in _measurements(a, b)
        if left != right and check != CHECK
    ]
    return codes + measurements


def largest(found: Iterable[Difference]) -> dict[str, float]:
    """The largest distance of every measurement, as "check.measurement"."""
    out: dict[str, float] = {}
    for one in found:
        if one.size is not None and math.isfinite(one.size):
            name = f"{one.check}.{one.measurement}"
            out[name] = max(out.get(name, 0.0), one.size)
    return dict(sorted(out.items()))


def _paired(theirs: Iterable[Finding], ours: Iterable[Finding]) -> list[tuple[str, Finding | None, Finding | None]]:
    left, right = {one.check: one for one in theirs}, {one.check: one for one in ours}
    return [(check, left.get(check), right.get(check)) for check in {**left, **right}]


def _measurements(a: Finding | None, b: Finding | None) -> list[tuple[str, Measurement | None, Measurement | None]]:
    left, right = (one.measurements if one else {} for one in (a, b))
    return [(name, left.get(name), right.get(name)) for name in {**left, **right}]


def _code(finding: Finding | None) -> str | None:
    return finding.code.label if finding else None


def _shown(value: Measurement | None) -> str:
    if value is None:
        return "nothing"
    return f"{value:.4g}" if isinstance(value, float) else str(value)[:60]
