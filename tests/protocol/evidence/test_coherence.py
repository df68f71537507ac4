"""Signed differences that agree between problems: a direction adds up, errors without one do not."""

import numpy as np
import pytest

from protocol.evidence.coherence import blocks_of, coherence
from protocol.evidence.figures import Sum
from protocol.toploc.codec import BUCKETS, Drift


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
    problems = {slot: drift(source, 0.0) for slot in range(20)}
    found = blocks_of(problems)
    assert [block.count for block in found] == [28, 28, 6]
    assert found[0] == coherence([problems[slot] for slot in range(8)])
    assert blocks_of({3: drift(source, 0.0)}) == [Sum(0.0, 0.0)], "one problem has no pair"
    assert coherence([Drift.none(), drift(source, 0.0)]) == Sum(0.0, 0.0), "nothing compared is no problem"
