"""The null model of honest work: no bet pays on fresh problems of the measured null model, and a cheat pays."""

import math
import random
from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from calibration.bounds import Array
from calibration.null_model import HonestSums, Problem, as_problem, log_wealth, pair_null_model
from protocol.evidence.coherence import coherence
from protocol.evidence.figures import RowFigures
from protocol.evidence.null_model import (
    ACCUMULATORS,
    BETS,
    BLOCK_ACCUMULATORS,
    FALSE_ACCUSATION,
    NAMES,
    NodeEvidence,
    PairNullModel,
    Sum,
    block_sums,
    problem_sums,
)
from protocol.toploc.codec import BUCKETS, Drift

SAFETY = 1.1
WANTED = math.log(2 * len(NAMES) * BETS / FALSE_ACCUSATION)


def row(source: random.Random, number: int, shared: float, worse: float) -> RowFigures:
    tokens = source.randint(2, 40)
    misses = sum(source.random() < 0.01 * worse for _ in range(tokens))
    return RowFigures(
        row=number,
        tokens=tokens,
        chunks=1 + (tokens > 32),
        mantissas=worse * shared * source.lognormvariate(-0.5, 0.6),
        errors=worse * shared * sum(0.01 * source.lognormvariate(0, 1.5) for _ in range(tokens)),
        gaps=worse * sum(source.expovariate(30) for _ in range(misses)),
        unexplained=float(sum(source.random() < 0.01 * worse for _ in range(misses))),
    )


def problem(source: random.Random, worse: float = 1.0) -> Problem:
    """Log-normal errors that share a factor within a problem, with tails heavier than exponential."""
    shared = source.lognormvariate(0, 0.3)
    return as_problem(problem_sums([row(source, number, shared, worse) for number in range(8)]))


@cache
def measured(seed: str, count: int, worse: float = 1.0) -> tuple[Problem, ...]:
    source = random.Random(seed)
    return tuple(problem(source, worse) for _ in range(count))


@cache
def blocks(seed: str, count: int, pushed: float = 0.0) -> tuple[Problem, ...]:
    """Of two engines whose rounding errors are one step of bfloat16, where weights push each feature by `pushed`."""
    source = np.random.default_rng(list(seed.encode()))
    push = pushed * source.standard_normal(BUCKETS)
    return tuple(as_problem(*block_sums([coherence(_problems(source, push))])) for _ in range(count))


def _problems(source: np.random.Generator, push: Array) -> list[Drift]:
    counts = source.integers(0, 12, (8, BUCKETS))
    noise = np.sqrt(counts) * source.standard_normal((8, BUCKETS))
    return [Drift(*one) for one in zip(np.rint(noise + counts * push).astype(np.int64), counts, strict=True)]


@cache
def null_model() -> PairNullModel:
    strata = [HonestSums(measured(seed, 300), blocks(seed, 300)) for seed in ("one", "two")]
    return pair_null_model("w", "v", strata, HonestSums(measured("pilot", 200), blocks("pilot", 60)), SAFETY)


def sums(problems: tuple[Problem, ...], names: Iterable[str] = ACCUMULATORS) -> list[dict[str, Sum]]:
    return [{name: Sum(*pair) for name, pair in zip(names, one, strict=True)} for one in problems]


@pytest.mark.parametrize("worse", [1.0, 1.05])
def test_no_bet_pays_on_fresh_problems(worse: float) -> None:
    """Also where machines err a little more than those measured: that is what the safety factor is for."""
    fresh = sums(measured("fresh", 4000, worse)), sums(blocks("fresh", 2000), BLOCK_ACCUMULATORS)
    for name, bets in null_model().bets.items():
        for bet in bets:
            assert bet.tilt, f"{name} has no bet"
            paid = np.exp([bet.nats([one[name]]) for one in fresh[name in BLOCK_ACCUMULATORS]])
            assert paid.mean() <= 1.0, (name, bet)


def test_a_small_change_is_found_in_a_few_files_and_honest_work_is_not() -> None:
    honest, cheat = NodeEvidence(), NodeEvidence()
    for evidence, problems in ((honest, measured("life", 1600)), (cheat, measured("cheat", 320, 2.0))):
        for start in range(0, len(problems), 16):
            evidence.add(null_model().nats(sums(problems[start : start + 16])))
    assert cheat.accused
    assert honest.peak < 3


def test_weights_that_push_features_by_less_than_rounding_errors_are_found_by_the_direction_alone() -> None:
    """A sixth of a step where the engines differ by one: the mean of absolute differences grows by a hundredth."""
    honest, cheat = NodeEvidence(), NodeEvidence()
    for evidence, own in ((honest, blocks("life", 200)), (cheat, blocks("cheat", 32, 1 / 6))):
        for start in range(0, len(own), 2):
            evidence.add(null_model().nats([], sums(own[start : start + 2], BLOCK_ACCUMULATORS)))
    assert cheat.accused
    assert max(cheat.wealth, key=cheat.nats) == "coherence"
    assert honest.peak < 3


@pytest.mark.parametrize("count", [300, 3000])
def test_events_that_honest_work_hardly_has_pay_the_more_the_more_problems_were_measured(count: int) -> None:
    """One problem in five with such an event: found in fewer files by a model of more problems, and by that alone."""
    none = [{name: Sum(0.0, 80.0) for name in ACCUMULATORS}] * count
    own = HonestSums([as_problem(one) for one in none])
    found = pair_null_model("w", "v", [own], own, SAFETY).bets["unexplained"]
    assert all(bet.tilt for bet in found)
    assert max(bet.tilt * bet.most for bet in found) == pytest.approx(1.2 * math.log1p(0.05 * count / WANTED), 1e-3)
    file = [Sum(float(place % 5 == 0), 80.0) for place in range(16)]
    needed = [math.ceil(20 / nats) for bet in found if (nats := bet.nats(file)) > 0]
    assert min(needed) <= {300: 21, 3000: 3}[count]
    assert min(needed) >= {300: 7, 3000: 2}[count]
    assert all(bet.nats([Sum(0.0, 80.0)] * 16) < 0 for bet in found), "files without such events clear a node"


def test_one_extreme_problem_accuses_nobody() -> None:
    wild = {name: Sum(1e9, 1.0) for name in NAMES}
    evidence = NodeEvidence()
    evidence.add(null_model().nats([wild], [wild]))
    assert evidence.total < 6


def test_the_rate_is_refused_as_long_as_the_problems_do_not_bear_it_out() -> None:
    """The wealth against a rate under which the bet pays exactly 1 stays small, in 99 of 100 samples below 100."""
    source = np.random.default_rng(0)
    most = 1.2
    chance = (1 - math.exp(-0.4)) / (math.exp(most) - math.exp(-0.4))
    edge = [np.where(source.random(500) < chance, most, -0.4) for _ in range(400)]
    assert sum(log_wealth(nats, most) >= math.log(100) for nats in edge) <= 400 / 100 + 6
    assert log_wealth(np.full(500, -0.1), most) > math.log(1e6), "a bet that always loses is borne out"


def test_too_few_problems_make_no_bet() -> None:
    few = pair_null_model("w", "v", [HonestSums(measured("few", 4))], HonestSums(measured("pilot", 200)), SAFETY)
    assert not any(bet.tilt for bets in few.bets.values() for bet in bets)


def exact(source: random.Random, error: float) -> Problem:
    """Engines that agree to the bit, but for how each rounds ln p: `error` a token."""
    rows = [replace(row(source, number, 0.0, 0.0), errors=0.0) for number in range(8)]
    return as_problem(problem_sums([replace(one, errors=error * one.tokens * source.random()) for one in rows]))


@pytest.mark.parametrize("error", [5e-9, 5e-8, 1e-6])
def test_what_float32_rounds_accuses_nobody(error: float) -> None:
    """A policy that is a little less sharp has ln p that are rounded more coarsely than those measured."""
    source = random.Random(6)
    known, pilot = (HonestSums([exact(source, 5e-9) for _ in range(count)]) for count in (600, 200))
    model = pair_null_model("w", "v", [known], pilot, SAFETY)
    evidence = NodeEvidence()
    for _ in range(100):
        evidence.add(model.nats(sums(tuple(exact(source, error) for _ in range(16)))))
    assert not evidence.accused
    for _ in range(16):
        evidence.add(model.nats(sums(tuple(exact(source, 1e-3) for _ in range(16)))))
    assert evidence.accused, "a policy one step behind at lr 1e-6 errs by that much"
