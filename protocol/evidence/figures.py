"""The figures of a file from which a node's evidence is added up, and the finding of a verdict document with them.

Each figure adds up a sum S and a count N over the rows that the audit drew: for every problem, as the samples of a
problem are not independent, or for every block of eight problems (`coherence`). Rows that are audited for another
reason (an ambiguous proof) count for nothing: which they are is no draw.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from protocol.errors import IntegrityError, first_problem
from protocol.toploc.codec import Drift
from protocol.verdict import Code, Finding, Verdict

CHECK = "evidence"
VERSION = 2
BETS = 2
"""Bets on each figure: a small and patient one, and a large and quick one."""
FIGURES: Mapping[str, str] = {
    "mantissas": "mantissa differences, per chunk: other weights or arithmetic",
    "logprobs": "differences of ln p, per token: other weights or arithmetic",
    "unexplained": "tokens that neither the noise nor rounding picked, per token: tokens chosen by other means",
    "gaps": "score gaps of tokens that the noise did not pick, per token: tokens chosen by other means",
    "coherence": "differences of activations that agree between problems, per pair of problems: other weights",
}
"""Name → what it adds up, and which cheat that finds. `coherence` is of blocks and of two different engines only."""
Nats = Mapping[str, Sequence[float]]
"""Figure → ln of what a file pays each of the bets on it."""


@dataclass(frozen=True)
class Sum:
    """S and N of one figure in one problem or block: in honest work S is about a rate times N, or less."""

    total: float
    count: float

    @classmethod
    def over(cls, units: Sequence["Sum"]) -> "Sum":
        return cls(math.fsum(unit.total for unit in units), math.fsum(unit.count for unit in units))


FileFigures = Mapping[str, Sequence[Sum]]
"""Figure → its sums in all problems, or blocks, of a file, in order; (0, 0) where the audit drew no row."""


@dataclass(frozen=True)
class FigureEvidence:
    """One figure of a file in a verdict document. `honest`: the largest rate that a bet takes for honest; `nats`: what
    the file pays each bet. Both are None where the policy step has no null model for the two engines."""

    total: float
    count: float
    honest: float | None = None
    nats: tuple[float, ...] | None = None


def finding(figures: FileFigures, honest: Mapping[str, float], nats: Nats) -> Finding:
    """Return the finding that publishes a file's figures; without any if one is not finite. It judges nothing."""
    columns: dict[str, list[float]] = {}
    for name, units in figures.items():
        whole = Sum.over(units)
        columns[name] = [rounded(whole.total), whole.count]
        if name in nats:
            columns[name] += [honest[name], *map(rounded, nats[name])]
    if not all(math.isfinite(value) for column in columns.values() for value in column):
        return Finding(CHECK, Code.ACCEPT, {"version": VERSION}, "a figure is not a number")
    return Finding(CHECK, Code.ACCEPT, {"version": VERSION, **columns})


_Value = Annotated[float, Field(ge=-1e12, le=1e12)]
_COLUMNS = TypeAdapter(dict[str, Annotated[list[_Value], Field(min_length=2, max_length=3 + BETS)]])


def figures_of(verdict: Verdict) -> dict[str, FigureEvidence]:
    """Return the figures in a verdict document; none in one that has none or is of another version. Raises
    IntegrityError if no validator wrote them: documents come from strangers."""
    recorded = [finding.measurements for finding in verdict.findings if finding.check == CHECK]
    if not recorded or recorded[0].get("version") != VERSION:
        return {}
    if len(recorded) > 1:
        raise _malformed("there are two")
    try:
        columns = _COLUMNS.validate_python({name: value for name, value in recorded[0].items() if name != "version"})
    except ValidationError as error:
        field, problem = first_problem(error.errors())
        raise _malformed(f"`{field}`: {problem}") from None
    if unknown := columns.keys() - FIGURES.keys():
        raise _malformed(f"no figure is called {min(unknown)}")
    out = {}
    for name, (total, count, *paid) in columns.items():
        if count < 0 or len(paid) not in (0, 1 + BETS):
            raise _malformed(f"`{name}` is of {len(paid) + 2} numbers, or of a negative count")
        out[name] = FigureEvidence(total, count, paid[0], tuple(paid[1:])) if paid else FigureEvidence(total, count)
    return out


def _malformed(why: str) -> IntegrityError:
    return IntegrityError(f"the evidence of a verdict document is malformed: {why}", "ask its voter")


def engines_of(verdict: Verdict) -> tuple[str, str]:
    """Return the arithmetic labels of the worker and the verifier, without versions."""
    verifier = [verdict.engine.get(name, "?") for name in ("name", "dtype", "device")]
    return arithmetic_label(*_header(verdict)), arithmetic_label(*verifier)


def engine_titles(verdict: Verdict) -> tuple[str, str]:
    """Return the same for people, with versions: what a driver or a library changes shows between them."""
    verifier = [verdict.engine.get(name, "?") for name in ("name", "version", "dtype", "device")]
    return " ".join(_header(verdict)), " ".join(verifier)


def _header(verdict: Verdict) -> list[str]:
    header = next((finding.measurements for finding in verdict.findings if finding.check == "header"), {})
    return [str(header.get(name, "?")) for name in ("engine", "dtype", "device")]


def arithmetic_label(name: str, dtype: str, device: str) -> str:
    """Return an engine's arithmetic as `name:dtype:device[:attributes]`. `name` may carry a version after a space;
    `device` its attributes after a colon (engines/torch_process.py)."""
    return ":".join([(name.split() or ["?"])[0], dtype, device])


def rounded(value: float) -> float:
    """Round to six significant digits."""
    return float(f"{value:.6g}")


_MOST_GAP = 30.0  # Beyond it e^(−gap) is lost in a float, and 1 − p with it


def unexplained(gap: float, claimed: float, own: float, expected: float) -> float:
    """Return the share of a miss, 0 to 1, that the difference of ln p leaves unexplained.

    gap: score gap of the miss, > 0. claimed, own: ln p of the chosen token, by the file and by the verifier.
    expected: the verifier's ln p of the token that the noise picks.

    An engine whose rounding leads it past the token that ours picks has other scores. If the expected token alone, of
    probability p, scored lower by the gap g, ln p of the chosen one rises by −ln(1 − p·(1 − e^(−g))); a difference of
    that size explains the miss whole. A node that picks a token by other means and proves it honestly claims our ln p.
    Honest errors may be spread otherwise and explain less: calibration measures how much less.
    """
    typical = -math.log1p(math.exp(min(0.0, expected)) * math.expm1(-min(gap, _MOST_GAP)))
    error = abs(claimed - own)
    return 1.0 - error / typical if error < typical else 0.0


# Coherence: whether signed differences of activations agree between problems that have nothing to do with one another

PROBLEMS = 8  # Of a block: blocks share no problem, so they are independent


def coherence(problems: Sequence[Drift]) -> Sum:
    """Return S and N of one block; both 0 for fewer than two problems.

    Rounding errors have no direction, while other weights push a feature the same way wherever it occurs. With P the
    sum of a problem's signed differences in a bucket of features and C their count, x = P/√C has about the same spread
    in every bucket. S = Σ ⟨x_p, x_q⟩ over the N pairs of problems is near zero in honest work.
    """
    measured = [problem for problem in problems if problem.counts.any()]
    if len(measured) < 2:
        return Sum(0.0, 0.0)
    scaled = np.array([problem.sums / np.sqrt(np.maximum(problem.counts, 1)) for problem in measured])
    together = scaled.sum(axis=0)
    total = (float(together @ together) - float((scaled * scaled).sum())) / 2
    return Sum(rounded(total), float(len(measured) * (len(measured) - 1) // 2))


def blocks_of(problems: Sequence[Drift]) -> list[Sum]:
    """Return S and N of every block of a file's problems, in order."""
    return [coherence(problems[start : start + PROBLEMS]) for start in range(0, len(problems), PROBLEMS)]
