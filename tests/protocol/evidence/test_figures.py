"""A file's figures as a verdict document publishes them: they come back, and what a stranger bends is refused."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from protocol.errors import IntegrityError
from protocol.evidence.figures import (
    FigureEvidence,
    Sum,
    arithmetic_label,
    blocks_of,
    coherence,
    engines_of,
    figures_of,
    finding,
    unexplained,
)
from protocol.toploc.codec import BUCKETS, Drift
from protocol.verdict import Code, Finding, Measurement, Verdict

FIGURES = {"mantissas": [Sum(1.25, 3.0), Sum(1.1, 2.0)], "gaps": [Sum(0.03, 39.0), Sum(0.0, 40.0)]}
HONEST, NATS = {"mantissas": 0.2}, {"mantissas": (0.5, -1.25)}
HEADER = Finding("header", Code.ACCEPT, {"engine": "vllm 0.32.0", "dtype": "bfloat16", "device": "cpu:tp=2"})
ENGINE = {"name": "transformers", "version": "5.1", "dtype": "bfloat16", "device": "cpu"}


def verdict(*own: Finding) -> Verdict:
    return Verdict(
        1, "0x" + "22" * 20, 1, 7, "0x" + "11" * 20, 3, 0, "aa" * 32, "bb" * 32, "cc" * 32, Code.ACCEPT, ENGINE,
        [0, 1, 3], (HEADER, *own),
    )  # fmt: skip


def test_figures_come_back_from_the_document() -> None:
    sent = Verdict.parse(verdict(finding(FIGURES, HONEST, NATS)).canonical())
    assert figures_of(sent) == {
        "mantissas": FigureEvidence(2.35, 5.0, 0.2, (0.5, -1.25)),
        "gaps": FigureEvidence(0.03, 79.0),
    }
    assert engines_of(sent) == ("vllm:bfloat16:cpu:tp=2", "transformers:bfloat16:cpu")
    assert arithmetic_label("", "?", "?") == "?:?:?"


def test_a_document_of_another_version_or_without_numbers_is_no_evidence() -> None:
    assert figures_of(verdict()) == {}
    assert figures_of(verdict(finding({"gaps": [Sum(float("nan"), 1.0)]}, {}, {}))) == {}
    assert figures_of(verdict(Finding("evidence", Code.ACCEPT, {"version": 1, "row": [0]}))) == {}


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("luck", [1.0, 1.0]),
        ("gaps", [1.0]),
        ("gaps", [1.0, 1.0, 1.0]),
        ("gaps", [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("gaps", [1.0, -1.0]),
        ("gaps", [1e300, 1.0]),
        ("gaps", [10**400, 1.0]),
        ("gaps", ["x", 1.0]),
        ("gaps", 1.0),
        ("mantissas", [1.0, 1.0, 0.1, 1e13, 0.0]),
    ],
)
def test_bent_figures_are_refused(name: str, column: Any) -> None:
    bent: dict[str, Measurement] = {**finding(FIGURES, HONEST, NATS).measurements, name: column}
    with pytest.raises(IntegrityError, match="malformed"):
        figures_of(verdict(Finding("evidence", Code.ACCEPT, bent)))


def test_a_second_finding_is_refused() -> None:
    own = finding(FIGURES, HONEST, NATS)
    with pytest.raises(IntegrityError, match="there are two"):
        figures_of(verdict(own, replace(own)))


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


def drift(source: np.random.Generator, push: float) -> Drift:
    """Each of 9 values of a bucket errs by a step up or down; every feature is pushed by `push` of a step."""
    way = np.where(np.arange(BUCKETS) % 2, 1, -1)
    sums = source.choice((-1, 1), (9, BUCKETS)).sum(axis=0) + np.rint(9 * push * way).astype(np.int64)
    return Drift(sums, np.full(BUCKETS, 9, dtype=np.int64))


def test_the_sum_over_pairs_is_that_of_a_plain_loop() -> None:
    source = np.random.default_rng(1)
    problems = [drift(source, 0.3) for _ in range(5)]
    scaled = [one.sums / 3 for one in problems]
    plain = sum(float(scaled[a] @ scaled[b]) for a in range(5) for b in range(a))
    found = coherence(problems)
    assert found.total == pytest.approx(plain, rel=1e-5)
    assert found.count == 10


def test_errors_without_a_direction_add_up_to_nothing_and_a_direction_does() -> None:
    source = np.random.default_rng(2)
    honest = [coherence([drift(source, 0.0) for _ in range(8)]).total for _ in range(200)]
    pushed = [coherence([drift(source, 1 / 3) for _ in range(8)]).total for _ in range(20)]
    spread = float(np.std(honest))
    assert abs(float(np.mean(honest))) < 4 * spread / 200**0.5
    assert min(pushed) > 10 * spread


def test_blocks_are_of_eight_problems() -> None:
    source = np.random.default_rng(3)
    problems = [drift(source, 0.0) for _ in range(20)]
    found = blocks_of(problems)
    assert [block.count for block in found] == [28, 28, 6]
    assert found[0] == coherence(problems[:8])
    assert blocks_of([drift(source, 0.0), Drift.none()]) == [Sum(0.0, 0.0)], "one problem has no pair"
    assert coherence([Drift.none(), drift(source, 0.0)]) == Sum(0.0, 0.0), "nothing compared is no problem"
