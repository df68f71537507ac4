"""What a verdict document says of every audited row: the figures from which a node's evidence is added up.

They are one more finding of the document, `evidence`, which judges nothing: columns of numbers, one entry per row, in
the order of the document's `audited`; since version 2 two columns with an entry for each block of problems, since
version 3 `unexplained`. A document without it (a file refused before the prefill, or an older program's) holds no
evidence. Documents come from strangers, so everything is checked before it counts.
"""

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

from protocol.errors import IntegrityError
from protocol.verdict import Code, Finding, Verdict

CHECK = "evidence"
VERSION = 3
MOST_ROWS = 2048
"""Rows of one file whose figures are published: the first audited ones. Which rows they are depends on no figure."""
_COUNTS = ("row", "tokens", "chunks", "misses")
_SIGNED = ("surprise", "dullness", "reward")


@dataclass(frozen=True)
class RowFigures:
    """One audited rollout against the verifier's own pass over it.

    tokens, chunks: how many were judged (chunks of one token are not). mantissas: sum over chunks of the mean mantissa
    difference. errors: sum over tokens of |claimed − own ln p|. misses: tokens that the verifier's race gives to
    another; gaps: sum of the score gaps of those. surprise, dullness: logarithms of two e-values of the chosen tokens
    (validator/judging/measurements.py). reward: the rollout's. unexplained: sum over misses of the share that differences of
    ln p do not explain (protocol/evidence/figures.py); None where an older document does not say. Six significant
    digits.
    """

    row: int
    tokens: int
    chunks: int
    misses: int
    mantissas: float
    errors: float
    gaps: float
    surprise: float
    dullness: float
    reward: float
    unexplained: float | None = None


NAMES = tuple(one.name for one in fields(RowFigures))
BLOCK_NAMES = ("coherence", "pairs")
"""S and N of a block of problems (protocol/evidence/coherence.py)."""
Blocks = Sequence[tuple[float, int]]
_COLUMNS = {1: NAMES[:-1], 2: (*NAMES[:-1], *BLOCK_NAMES), 3: (*NAMES, *BLOCK_NAMES)}
"""Of each version of the finding."""


def finding(rows: Sequence[RowFigures], blocks: Blocks = ()) -> Finding:
    """The finding that publishes figures. What is not a number is published as such, and is no evidence."""
    kept = [astuple(row) for row in rows[:MOST_ROWS]]
    columns = {name: list(column) for name, column in zip(NAMES, zip(*kept, strict=True), strict=True)} if kept else {}
    if kept:
        columns |= {"coherence": [own for own, _ in blocks], "pairs": [pairs for _, pairs in blocks]}
    if any(value is None or not math.isfinite(value) for row in kept for value in row):
        return Finding(CHECK, Code.ACCEPT, {"version": VERSION}, "a figure is not a number")
    return Finding(CHECK, Code.ACCEPT, {"version": VERSION, **columns})


def rows_of(verdict: Verdict) -> tuple[RowFigures, ...]:
    """The figures in a verdict document, none if it has none. Raises IntegrityError for what no validator writes."""
    found = _columns(verdict)
    if not found:
        return ()
    names = [name for name in NAMES if name in found]
    lists = [found[name] for name in names]
    if {len(one) for one in lists} != {min(len(verdict.audited), MOST_ROWS)}:
        raise _malformed("its columns do not have one entry for each audited row")
    rows = tuple(map(_row, zip(*lists, strict=True)))
    for row, audited in zip(rows, verdict.audited, strict=False):
        _check(row, names, audited)
    return rows


def blocks_in(verdict: Verdict) -> tuple[tuple[float, int], ...] | None:
    """(S, N) of every block in a verdict document; None in one of version 1, which has none. Raises IntegrityError."""
    found = _columns(verdict)
    if not found or "pairs" not in found:
        return None
    totals, pairs = (found[name] for name in BLOCK_NAMES)
    if len(totals) != len(pairs) or len(pairs) > MOST_ROWS:
        raise _malformed("its columns of blocks do not have one length")
    for total, count in zip(totals, pairs, strict=True):
        numbers = type(count) is int and type(total) in (int, float)
        if not numbers or not abs(total) <= 1e12 or not 0 <= count <= 1e12:
            raise _malformed("a block's figures are no numbers of their kind")
    return tuple(zip(totals, pairs, strict=True))


def _columns(verdict: Verdict) -> dict[str, list[Any]]:
    """The columns of the finding, by name; empty where there is none that we know. Raises IntegrityError."""
    found = [one.measurements for one in verdict.findings if one.check == CHECK]
    version = found[0].get("version") if found else None
    if type(version) is not int or version not in _COLUMNS or len(found[0]) == 1:
        return {}
    names = _COLUMNS[version]
    columns = {name: own for name in names if isinstance(own := found[0].get(name), list)}
    if len(found) > 1 or len(found[0]) != 1 + len(names) or len(columns) != len(names):
        raise _malformed(f"its columns are not those of version {version}")
    return columns


def engines_of(verdict: Verdict) -> tuple[str, str]:
    """(worker's, verifier's) arithmetic as `name:dtype:device`, by the file's header and the document. Versions are
    left out: a law says which it was measured with."""
    header = next((one.measurements for one in verdict.findings if one.check == "header"), {})
    said = [str(header.get(name, "?")) for name in ("engine", "dtype", "device")]
    own = [verdict.engine.get(name, "?") for name in ("name", "dtype", "device")]
    return engine_key(*said), engine_key(*own)


def engine_labels(verdict: Verdict) -> tuple[str, str]:
    """The same for people, with versions: what a driver or a library changes shows between them."""
    header = next((one.measurements for one in verdict.findings if one.check == "header"), {})
    own = [verdict.engine.get(name, "?") for name in ("name", "version", "dtype", "device")]
    return " ".join(str(header.get(name, "?")) for name in ("engine", "dtype", "device")), " ".join(own)


def engine_key(name: str, dtype: str, device: str) -> str:
    """`name` may carry a version after a space."""
    return ":".join([(name.split() or ["?"])[0], dtype, device])


def rounded(value: float) -> float:
    """Six significant digits."""
    return float(f"{value:.6g}")


def _row(values: tuple[Any, ...]) -> RowFigures:
    return RowFigures(*values)


def _check(row: RowFigures, names: Sequence[str], audited: int) -> None:
    for name in names:
        value = getattr(row, name)
        if isinstance(value, bool) or not isinstance(value, int if name in _COUNTS else int | float):
            raise _malformed(f"`{name}` of row {audited} is no number of its kind")
        if not abs(value) <= 1e12 or (name not in _SIGNED and value < 0):
            raise _malformed(f"`{name}` of row {audited} is {str(value)[:40]}")
    most = max(row.misses, row.chunks)
    if row.row != audited or not row.tokens or most > row.tokens or (row.unexplained or 0) > row.misses:
        raise _malformed(f"the counts of row {audited} cannot be")


def _malformed(why: str) -> IntegrityError:
    return IntegrityError(f"the evidence of a verdict document is malformed: {why}", "ask its voter")


# ~ Does a miss come with the difference of scores that it takes?
# ~
# ~ An engine whose rounding leads it past the token that ours picks has scores unlike ours: that of its own token is higher
# ~ by the score gap, or that of the expected one lower. Either changes ln p of its token. The least change is where only
# ~ the expected token's score fell by the gap g: then ln p of the other is larger by −ln(1 − p·(1 − e^(−g))), about p·g,
# ~ for the expected token's p. Who picks a token by other means and proves the text honestly claims our own ln p.


_MOST_GAP = 30.0
"""Beyond it e^(−gap) is lost in a float, and 1 − p with it."""


def unexplained(gap: float, claimed: float, own: float, expected: float) -> float:
    """The share of a miss, 0 to 1, that the difference of ln p leaves unexplained.

    gap: score gap of the miss, > 0. claimed, own: ln p of the chosen token, as the file says and as the verifier finds.
    expected: the verifier's ln p of the token that the noise picks.
    """
    least = -math.log1p(math.exp(min(0.0, expected)) * math.expm1(-min(gap, _MOST_GAP)))
    found = abs(claimed - own)
    return 1.0 - found / least if found < least else 0.0
