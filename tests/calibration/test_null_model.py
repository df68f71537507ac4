"""The null model of honest work: no bet pays on fresh problems of the measured null model, and a cheat pays."""

import math
import random
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from calibration.bounds import Array
from calibration.null_model import Draws, log_wealth, nats_wanted, pair_null_model
from protocol.evidence.figures import FIGURES, FileFigures, Sum, coherence
from protocol.evidence.null_model import NodeEvidence, PairNullModel
from protocol.toploc.codec import BUCKETS, Drift

PROBLEM_FIGURES = ("mantissas", "logprobs", "unexplained", "gaps")
WANTED = nats_wanted(1, 0)


def problem(source: random.Random, worse: float = 1.0) -> dict[str, Sum]:
    """Eight rows with log-normal errors that share a factor, with tails heavier than exponential."""
    shared, sums = source.lognormvariate(0, 0.3), dict.fromkeys(PROBLEM_FIGURES, 0.0)
    all_tokens = chunks = 0
    for _ in range(8):
        tokens = source.randint(2, 40)
        misses = sum(source.random() < 0.01 * worse for _ in range(tokens))
        all_tokens, chunks = all_tokens + tokens, chunks + 1 + (tokens > 32)
        sums["mantissas"] += worse * shared * source.lognormvariate(-0.5, 0.6)
        sums["logprobs"] += worse * shared * sum(0.01 * source.lognormvariate(0, 1.5) for _ in range(tokens))
        sums["gaps"] += worse * sum(source.expovariate(30) for _ in range(misses))
        sums["unexplained"] += sum(source.random() < 0.01 * worse for _ in range(misses))
    return {name: Sum(total, chunks if name == "mantissas" else all_tokens) for name, total in sums.items()}


def audited(files: Sequence[FileFigures]) -> list[Draws]:
    """Each file in one audit of all its rows."""
    return [(file,) for file in files]


@cache
def measured(seed: str, count: int, worse: float = 1.0) -> tuple[FileFigures, ...]:
    """Files of 16 problems."""
    source = random.Random(seed)
    return tuple(file_of([problem(source, worse) for _ in range(16)], blocks(f"{seed} {n}", 2)) for n in range(count))


def file_of(problems: list[dict[str, Sum]], own_blocks: list[Sum]) -> FileFigures:
    return {name: [one[name] for one in problems] for name in problems[0]} | {"coherence": own_blocks}


def blocks(seed: str, count: int, pushed: float = 0.0) -> list[Sum]:
    """Of two engines whose rounding errors are one step of bfloat16, where weights push each feature by `pushed`."""
    source = np.random.default_rng(list(seed.encode()))
    push = pushed * source.standard_normal(BUCKETS)
    return [coherence(_drifts(source, push)) for _ in range(count)]


def _drifts(source: np.random.Generator, push: Array) -> list[Drift]:
    counts = source.integers(0, 12, (8, BUCKETS))
    noise = np.sqrt(counts) * source.standard_normal((8, BUCKETS))
    return [Drift(*one) for one in zip(np.rint(noise + counts * push).astype(np.int64), counts, strict=True)]


PILOT = audited(measured("pilot", 16))


@cache
def null_model() -> PairNullModel:
    return pair_null_model("w", "v", [*map(audited, (measured("one", 40), measured("two", 40)))], PILOT)


@pytest.mark.parametrize("worse", [1.0, 1.05])
def test_no_bet_pays_on_fresh_problems(worse: float) -> None:
    """Also where machines err a little more than those measured: that is what the safety factor is for."""
    fresh = measured("fresh", 250, worse)
    for name, bets in null_model().bets.items():
        for bet in bets:
            assert bet.tilt, f"{name} has no bet"
            paid = np.exp([bet.nats([one]) for file in fresh for one in file[name]])
            assert paid.mean() <= 1.0, (name, bet)


def test_a_small_change_is_found_in_a_few_files_and_honest_work_is_not() -> None:
    honest, cheat = NodeEvidence(), NodeEvidence()
    for evidence, files in ((honest, measured("life", 100)), (cheat, measured("cheat", 20, 2.0))):
        for file in files:
            evidence.add(null_model().nats(file))
    assert cheat.accused
    assert honest.peak < 3


def test_weights_that_push_features_by_less_than_rounding_errors_are_found_by_the_direction_alone() -> None:
    """A sixth of a step where the engines differ by one: the mean of absolute differences grows by a hundredth."""
    honest, cheat, nothing = NodeEvidence(), NodeEvidence(), [Sum(0.0, 0.0)]
    for evidence, pushed, count in ((honest, 0.0, 200), (cheat, 1 / 6, 32)):
        own = blocks("life", count, pushed)
        for start in range(0, count, 2):
            file = dict.fromkeys(PROBLEM_FIGURES, nothing) | {"coherence": own[start : start + 2]}
            evidence.add(null_model().nats(file))
    assert cheat.accused
    assert cheat.most == "coherence"
    assert honest.peak < 3


def test_an_engine_by_itself_has_no_coherence_and_no_rate_is_below_zero() -> None:
    own = pair_null_model("w", "w", [audited(measured("one", 40))], PILOT)
    assert set(own.bets) == set(PROBLEM_FIGURES)
    assert set(null_model().bets) == set(FIGURES)
    assert min(bet.rate for bets in null_model().bets.values() for bet in bets) >= 0
    assert max(bet.rate for bet in null_model().bets["coherence"]) < 20, "little beside what a direction adds up to"


@pytest.mark.parametrize("count", [20, 200])
def test_events_that_honest_work_hardly_has_pay_the_more_the_more_problems_were_measured(count: int) -> None:
    """One problem in five with such an event: found in fewer files by a model of more problems, and by that alone."""
    none = [file_of([dict.fromkeys(PROBLEM_FIGURES, Sum(0.0, 80.0))] * 16, [Sum(0.0, 28.0)] * 2)] * count
    found = pair_null_model("w", "w", [audited(none)], audited(none)).bets["unexplained"]
    assert all(bet.tilt for bet in found)
    assert max(bet.tilt * bet.most for bet in found) == pytest.approx(math.log1p(0.05 * 16 * count / WANTED), 1e-3)
    file = [Sum(float(place % 5 == 0), 80.0) for place in range(16)]
    needed = min(math.ceil(20 / nats) for bet in found if (nats := bet.nats(file)) > 0)
    assert needed in {20: range(7, 26), 200: range(2, 4)}[count]
    assert all(bet.nats([Sum(0.0, 80.0)] * 16) < 0 for bet in found), "files without such events clear a node"


def test_one_extreme_problem_accuses_nobody() -> None:
    evidence = NodeEvidence()
    evidence.add(null_model().nats({name: [Sum(1e9, 1.0)] for name in FIGURES}))
    assert evidence.total < 6


def test_the_rate_is_refused_as_long_as_the_problems_do_not_bear_it_out() -> None:
    """The wealth against a rate under which the bet pays exactly 1 stays small, in 99 of 100 samples below 100."""
    source = np.random.default_rng(0)
    most = 1.2
    chance = (1 - math.exp(-0.4)) / (math.exp(most) - math.exp(-0.4))
    edge = [np.where(source.random(500) < chance, most, -0.4) for _ in range(400)]
    assert sum(log_wealth(-np.expm1(nats), most) >= math.log(100) for nats in edge) <= 400 / 100 + 6
    assert log_wealth(np.full(500, 0.1), most) > math.log(1e6), "a bet that always loses is borne out"


def test_too_few_problems_make_no_bet() -> None:
    few = pair_null_model("w", "v", [audited(measured("few", 1))], PILOT)
    assert not any(bet.tilt for bets in few.bets.values() for bet in bets)


def test_draws_of_one_file_are_no_more_problems_and_what_was_not_drawn_says_nothing() -> None:
    files = measured("one", 40)
    nothing = {name: [Sum(0.0, 0.0)] * len(units) for name, units in files[0].items()}
    alone, again, partly = (
        pair_null_model("w", "v", [[(file, *more(file)) for file in files]], PILOT)
        for more in (lambda _: (), lambda file: (file,) * 3, lambda _: (nothing,))
    )
    assert alone == again
    assert all(alone.bets[name] == partly.bets[name] for name in PROBLEM_FIGURES)


def test_a_problem_whose_rows_a_figure_does_not_count_weighs_as_much_as_others() -> None:
    """A text of one token has no mantissas to judge. Were it left out, texts that are short now and then would weigh
    more in a calibration than in audits."""
    source = random.Random(4)
    files = []
    for _ in range(40):
        counted = [source.random() < 0.5 for _ in range(16)]
        draws = []
        for draw in range(2):
            none = dict.fromkeys(PROBLEM_FIGURES, Sum(0.0, 1.0)) | {"mantissas": Sum(0.0, 0.0)}
            some = none | {"mantissas": Sum(0.3, 1.0)}
            sums = [some if draw and here else none for here in counted]
            draws.append(file_of(sums, [Sum(0.0, 0.0)] * 2))
        files.append(tuple(draws))
    rare = pair_null_model("w", "w", [files], files).bets["mantissas"][0]
    often = pair_null_model("w", "w", [[(one[1],) for one in files]], files).bets["mantissas"][0]
    assert rare.rate > often.rate


def test_the_calibrations_of_all_steps_share_one_probability() -> None:
    """Each asks for more than the one before, and together they fail no more often than one alone may."""
    shares = [math.exp(nats_wanted(1, 0) - nats_wanted(1, step)) for step in range(10_000)]
    assert shares == sorted(shares, reverse=True)
    assert 1.99 < sum(shares) < 2, "half of the calibrations' part is that of step 0"


def exact(source: random.Random, error: float) -> FileFigures:
    """Engines that agree to the bit, but for how each rounds ln p: `error` a token."""
    rows = [dict.fromkeys(PROBLEM_FIGURES, Sum(0.0, 160.0)) for _ in range(16)]
    return file_of([one | {"logprobs": Sum(160 * error * source.random(), 160.0)} for one in rows], [])


@pytest.mark.parametrize("error", [5e-9, 5e-8, 1e-6])
def test_what_float32_rounds_accuses_nobody(error: float) -> None:
    """A policy that is a little less sharp has ln p that are rounded more coarsely than those measured."""
    source = random.Random(6)
    known, pilot = ([exact(source, 5e-9) for _ in range(count)] for count in (40, 12))
    model = pair_null_model("w", "w", [audited(known)], audited(pilot))
    evidence = NodeEvidence()
    for _ in range(100):
        evidence.add(model.nats(exact(source, error)))
    assert not evidence.accused
    for _ in range(16):
        evidence.add(model.nats(exact(source, 1e-3)))
    assert evidence.accused, "a policy one step behind at lr 1e-6 errs by that much"
