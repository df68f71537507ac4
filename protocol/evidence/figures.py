"""The figures of every audited row in a verdict document, from which a node's evidence is added up.

They are one more finding of the document, `evidence`, which judges nothing: columns of numbers with one entry per row
of the document's `audited`, and two with one entry per block of problems. A file refused before the prefill has none.
Documents come from strangers, so everything is checked before it counts.
"""

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from protocol.encoding import Document
from protocol.errors import IntegrityError, first_problem
from protocol.verdict import Code, Finding, Verdict

CHECK = "evidence"
VERSION = 1
MOST_ROWS = 2048
"""Rows of one file whose figures are published: the first audited ones. Which rows they are depends on no figure."""
_Count = Annotated[int, Field(ge=0, le=10**12, strict=True)]
_Sum = Annotated[float, Field(ge=0, le=1e12, strict=True)]
_Signed = Annotated[float, Field(ge=-1e12, le=1e12, strict=True)]


@dataclass(frozen=True)
class RowFigures:
    """One audited rollout against the verifier's own pass over it, in six significant digits.

    tokens, chunks: how many were judged (a chunk of one token is not).
    mantissas: sum over chunks of the mean mantissa difference.
    errors: sum over tokens of |claimed − own ln p|.
    gaps: sum of score gaps over tokens that the verifier's race gives to another token (misses).
    unexplained: sum over misses of the share that differences of ln p do not explain (`unexplained`).
    """

    row: int
    tokens: int
    chunks: int
    mantissas: float
    errors: float
    gaps: float
    unexplained: float


NAMES = tuple(one.name for one in fields(RowFigures))
Blocks = Sequence[tuple[float, int]]


def finding(rows: Sequence[RowFigures], blocks: Blocks = ()) -> Finding:
    """Return the finding that publishes these figures; without columns if a figure is not finite."""
    kept = [astuple(row) for row in rows[:MOST_ROWS]]
    if any(not math.isfinite(value) for row in kept for value in row):
        return Finding(CHECK, Code.ACCEPT, {"version": VERSION}, "a figure is not a number")
    if not kept:
        return Finding(CHECK, Code.ACCEPT, {"version": VERSION})
    columns = {name: list(column) for name, column in zip(NAMES, zip(*kept, strict=True), strict=True)}
    columns |= {"coherence": [total for total, _ in blocks], "pairs": [pairs for _, pairs in blocks]}
    return Finding(CHECK, Code.ACCEPT, {"version": VERSION, **columns})


class _Columns(Document):
    """The finding's measurements; `coherence`, `pairs`: S and N of each block (protocol/evidence/coherence.py)."""

    version: Literal[1]
    row: list[_Count]
    tokens: list[_Count]
    chunks: list[_Count]
    mantissas: list[_Sum]
    errors: list[_Sum]
    gaps: list[_Sum]
    unexplained: list[_Sum]
    coherence: list[_Signed] = Field(max_length=MOST_ROWS)
    pairs: list[_Count] = Field(max_length=MOST_ROWS)


def rows_of(verdict: Verdict) -> tuple[RowFigures, ...]:
    """Return the figures in a verdict document, if any. Raises IntegrityError if no validator wrote them."""
    columns = _columns(verdict)
    if columns is None:
        return ()
    lists = [getattr(columns, name) for name in NAMES]
    if {len(one) for one in lists} != {min(len(verdict.audited), MOST_ROWS)}:
        raise _malformed("its columns do not have one entry for each audited row")
    rows = tuple(RowFigures(*values) for values in zip(*lists, strict=True))
    for row, audited in zip(rows, verdict.audited, strict=False):
        if row.row != audited or not row.tokens or max(row.chunks, row.unexplained) > row.tokens:
            raise _malformed(f"the counts of row {audited} cannot be")
    return rows


def blocks_in(verdict: Verdict) -> tuple[tuple[float, int], ...]:
    """Return (S, N) of every block in a verdict document, if any. Raises IntegrityError."""
    columns = _columns(verdict)
    if columns is None:
        return ()
    if len(columns.coherence) != len(columns.pairs):
        raise _malformed("its columns of blocks do not have one length")
    return tuple(zip(columns.coherence, columns.pairs, strict=True))


def _columns(verdict: Verdict) -> _Columns | None:
    """Return the columns of the finding, None for a document without them or of an unknown version."""
    found = [one.measurements for one in verdict.findings if one.check == CHECK]
    version = found[0].get("version") if found else None
    if type(version) is not int or version != VERSION or len(found[0]) == 1:
        return None
    if len(found) > 1:
        raise _malformed("there are two")
    try:
        return _Columns.model_validate(found[0])
    except ValidationError as error:
        field, problem = first_problem(error.errors())
        raise _malformed(f"`{field}`: {problem}") from None


def _malformed(why: str) -> IntegrityError:
    return IntegrityError(f"the evidence of a verdict document is malformed: {why}", "ask its voter")


def engines_of(verdict: Verdict) -> tuple[str, str]:
    """Return (worker's, verifier's) arithmetic as `name:dtype:device`, without the versions."""
    verifier = [verdict.engine.get(name, "?") for name in ("name", "dtype", "device")]
    return engine_key(*_header(verdict)), engine_key(*verifier)


def engine_labels(verdict: Verdict) -> tuple[str, str]:
    """Return the same for people, with versions: what a driver or a library changes shows between them."""
    verifier = [verdict.engine.get(name, "?") for name in ("name", "version", "dtype", "device")]
    return " ".join(_header(verdict)), " ".join(verifier)


def _header(verdict: Verdict) -> list[str]:
    header = next((one.measurements for one in verdict.findings if one.check == "header"), {})
    return [str(header.get(name, "?")) for name in ("engine", "dtype", "device")]


def engine_key(name: str, dtype: str, device: str) -> str:
    """Return `name:dtype:device`; `name` may carry a version after a space."""
    return ":".join([(name.split() or ["?"])[0], dtype, device])


def rounded(value: float) -> float:
    """Round to six significant digits."""
    return float(f"{value:.6g}")


_MOST_GAP = 30.0
"""Beyond it e^(−gap) is lost in a float, and 1 − p with it."""


def unexplained(gap: float, claimed: float, own: float, expected: float) -> float:
    """Return the share of a miss, 0 to 1, that the difference of ln p leaves unexplained.

    gap: score gap of the miss, > 0. claimed, own: ln p of the chosen token, by the file and by the verifier.
    expected: the verifier's ln p of the token that the noise picks.

    An engine whose rounding leads it past the token that ours picks scores its own token higher by the gap, or the
    expected one lower. Either changes ln p of its token: if the expected token, of probability p, fell by the gap g, it
    rises by −ln(1 − p·(1 − e^(−g))). A node that picks a token by other means and proves it honestly claims our ln p.
    """
    least = -math.log1p(math.exp(min(0.0, expected)) * math.expm1(-min(gap, _MOST_GAP)))
    found = abs(claimed - own)
    return 1.0 - found / least if found < least else 0.0
