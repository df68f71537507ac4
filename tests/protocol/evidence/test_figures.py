"""Figures of rows as a verdict document publishes them: they come back, and what a stranger bends is refused."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from protocol.errors import IntegrityError
from protocol.evidence.figures import RowFigures, blocks_in, engine_key, engines_of, finding, rows_of, unexplained
from protocol.evidence.null_model import Sum, file_sums
from protocol.verdict import Code, Finding, Measurement, Verdict

ROWS = (
    RowFigures(0, 6, 1, 0.5, 0.02, 0.0, 0.0),
    RowFigures(1, 33, 1, 0.7, 0.1, 0.03, 1.5),
    RowFigures(3, 40, 2, 1.1, 0.2, 0.0, 0.0),
)
HEADER = Finding("header", Code.ACCEPT, {"engine": "vllm 0.32.0", "dtype": "bfloat16", "device": "cpu"})
ENGINE = {"name": "transformers", "version": "5.1", "dtype": "bfloat16", "device": "cpu"}


def verdict(own: Finding, audited: tuple[int, ...] = (0, 1, 3)) -> Verdict:
    return Verdict(
        1, "0x" + "22" * 20, 1, 7, "0x" + "11" * 20, 3, 0, "aa" * 32, "bb" * 32, "cc" * 32, Code.ACCEPT, ENGINE,
        list(audited), (HEADER, own),
    )  # fmt: skip


def test_figures_come_back_from_the_document() -> None:
    sent = Verdict.parse(verdict(finding(ROWS)).canonical())
    assert rows_of(sent) == ROWS
    assert blocks_in(verdict(finding(ROWS, [(1.5, 28), (-2, 0)]))) == ((1.5, 28), (-2, 0))
    assert engines_of(sent) == ("vllm:bfloat16:cpu", "transformers:bfloat16:cpu")
    assert engine_key("", "?", "?") == "?:?:?"


def test_a_document_of_another_version_or_without_numbers_is_no_evidence() -> None:
    assert rows_of(replace(verdict(HEADER), findings=(HEADER,))) == ()
    assert rows_of(verdict(finding([replace(ROWS[0], errors=float("nan")), *ROWS[1:]]))) == ()
    assert rows_of(verdict(replace(finding(ROWS), measurements={"version": 1}))) == ()
    assert rows_of(verdict(replace(finding(ROWS), measurements={"version": 4, "row": [0]}))) == ()


@pytest.mark.parametrize("bent", [[(1.0, -1)], [(1.0, 2.0)], [("1", 1)], [(1e300, 1)], [(True, 1)], [(1.0, 1)] * 4096])
def test_bent_blocks_are_refused(bent: Any) -> None:
    with pytest.raises(IntegrityError, match="malformed"):
        blocks_in(verdict(finding(ROWS, bent)))


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("tokens", [6, 33]),
        ("tokens", [6, 33, 0]),
        ("tokens", [6.5, 33.0, 40.0]),
        ("chunks", [7, 2, 0]),
        ("unexplained", [0.0, 33.5, 0.0]),
        ("unexplained", [0.0, None, 0.0]),
        ("row", [0, 1, 2]),
        ("mantissas", [0.5, -0.7, 1.1]),
        ("errors", [0.02, 0.1, 1e300]),
        ("errors", [0.02, 0.1, 10**400]),
        ("tokens", [6, 33, 10**400]),
        ("gaps", ["1", "0", "1"]),
        ("extra", [1, 1, 1]),
    ],
)
def test_bent_columns_are_refused(name: str, column: list[int]) -> None:
    bent: dict[str, Measurement] = {**finding(ROWS).measurements, name: column}
    with pytest.raises(IntegrityError, match="malformed"):
        rows_of(verdict(Finding("evidence", Code.ACCEPT, bent)))


def test_sums_are_taken_by_problem() -> None:
    first, second = file_sums(ROWS, 2)
    assert first["mantissas"] == Sum(1.2, 2.0)
    assert first["unexplained"] == Sum(1.5, 39.0)
    assert second["logprobs"] == Sum(0.2, 40.0)


def logprobs(logits: np.ndarray) -> np.ndarray:
    out: np.ndarray = logits - np.logaddexp.reduce(logits)
    return out


@pytest.mark.parametrize("moved", ["expected", "chosen"])
def test_what_one_score_is_off_by_explains_the_miss_that_it_makes(moved: str) -> None:
    """Also where the expected token is a rare one, and ln p of the chosen one hardly changes."""
    for expected, chosen, gap in [(1.0, 0.5, 0.3), (-6.0, 2.0, 0.05), (3.0, -4.0, 0.9), (0.0, 0.0, 0.001)]:
        own = np.array([expected, chosen, 0.3, -1.0])
        theirs = own + np.array([-gap, 0, 0, 0] if moved == "expected" else [0, gap, 0, 0])
        own, theirs = logprobs(own), logprobs(theirs)
        assert unexplained(gap, theirs[1], own[1], own[0]) == pytest.approx(0.0, abs=1e-9)
        assert unexplained(gap, own[1], own[1], own[0]) == 1.0
        assert unexplained(gap, (theirs[1] + own[1]) / 2, own[1], own[0]) == pytest.approx(0.5) or moved == "chosen"


def test_rounding_of_all_scores_explains_nearly_all_of_its_misses_and_cooler_sampling_none() -> None:
    """Scores of 40 tokens in steps of bfloat16 around 8, each rounded anew with probability 1/10."""
    source = np.random.default_rng(2)
    honest: list[float] = []
    cooler: list[float] = []
    for _ in range(60):
        own = source.normal(4, 3, 40)
        noise = source.gumbel(size=(2000, 40))
        theirs = own + source.choice([-1, 0, 0, 0, 0, 0, 0, 0, 0, 1], 40) / 32
        for logits, found in ((theirs, honest), (own / 0.98, cooler)):
            mine, other = (own + noise).argmax(1), (logits + noise).argmax(1)
            for draw in np.flatnonzero(mine != other):
                gap = (own + noise[draw])[mine[draw]] - (own + noise[draw])[other[draw]]
                claimed = logprobs(logits if found is honest else own)[other[draw]]
                found.append(unexplained(gap, claimed, logprobs(own)[other[draw]], logprobs(own)[mine[draw]]))
    assert len(honest) > 100
    assert np.mean(honest) < 0.1
    assert len(cooler) > 100
    assert min(cooler) == 1.0, "the text was proven by the very scores that the verifier has"


@pytest.mark.parametrize("gap", [1e-12, 30.0, math.inf])
@pytest.mark.parametrize("expected", [0.0, 1e-9, -1e-12, -1e4])
def test_no_figure_breaks_it(gap: float, expected: float) -> None:
    for claimed in (-3.0, 0.0, -1e300):
        assert 0.0 <= unexplained(gap, claimed, -3.0, expected) <= 1.0
