"""Calibration: thresholds hold on fresh heavy-tailed draws, follow from their document, and see what they should."""

import json
import math
import random
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from calibration.bounds import (
    EXTREMES,
    MEANS,
    MEASUREMENTS,
    Design,
    FileSample,
    RowSample,
    Sums,
    Tail,
    limit,
    mean_limit,
)
from calibration.document import Calibration, subject
from calibration.thresholds import (
    PairMeasurements,
    _event_floor,
    blind,
    file_measurements,
    summarise,
    thresholds,
)
from engines.base import EngineInfo
from protocol.accounts import Account
from protocol.config import SPARED_MISSES, ChecksConfig, EnvironmentConfig, ModelConfig, PoolConfig
from protocol.errors import ConfigError, IntegrityError
from validator.judging.checks import by_mean

INFO = EngineInfo("transformers", "5", "float32", "cpu")
DESIGN = Design(8, 4, 1.0)
ACCOUNT = Account.from_key(b"\x07" * 32)


def honest_file(source: random.Random, spread: float = 1.0) -> FileSample:
    """Log-normal errors that share a factor within a problem, outputs of 1 to 80 tokens, misses now and then."""
    rows = []
    for group in range(DESIGN.problems):
        shared = source.lognormvariate(0, 0.5)
        for _ in range(DESIGN.samples):
            tokens = source.randint(1, 80)
            chunks = -(-tokens // 32)
            errors = [shared * source.lognormvariate(0, spread) for _ in range(tokens)]
            mantissas = [shared * source.lognormvariate(0, spread) for _ in range(chunks)]
            gaps = [source.expovariate(1.0) * (source.random() < 0.01) for _ in range(tokens)]
            mismatches = [sum(source.random() < 0.02 for _ in range(20)) for _ in range(chunks)]
            rows.append(RowSample.of(group, mismatches, mantissas, gaps, errors, [0.0] * tokens))
    return FileSample(source.choice([1, 8]), tuple(rows))


def files(seed: str, count: int) -> list[FileSample]:
    source = random.Random(seed)
    return [honest_file(source) for _ in range(count)]


@cache
def document() -> Calibration:
    pair = summarise(INFO, INFO, files("made", 60), files("held out", 20))
    return Calibration(
        time=1,
        seed="1",
        pool="aa" * 32,
        weights="bb" * 32,
        problems=DESIGN.problems,
        samples=DESIGN.samples,
        audit_rate=65536,
        false_reject=1e-3,
        safety=1.0,
        pairs=(pair,),
        thresholds=thresholds([pair], DESIGN, 1e-3, 1.0),
        signer=ACCOUNT.address,
    ).signed(ACCOUNT)


def test_fresh_files_are_rejected_as_seldom_as_stated() -> None:
    """At 1e-3 asked for and without a safety factor: one of 1,500 expected at most, five would be very unlikely."""
    bounds = document().thresholds
    fresh = file_measurements(files("fresh", 1500))
    over = [any(fresh[name][i] >= bounds[name] for name in MEASUREMENTS) for i in range(1500)]
    assert sum(over) <= 5


def drawn(file: FileSample, audited: float, source: random.Random) -> FileSample:
    """What an audit draws of a file: one row always, each other by chance (protocol.seeds.audit_sample)."""
    always = source.randrange(len(file.rows))
    rows = [row for number, row in enumerate(file.rows) if number == always or source.random() < audited]
    return replace(file, rows=tuple(rows))


@pytest.mark.parametrize("audited", [1.0, 0.4, 0.06])
def test_means_of_fresh_audits_stay_below_their_bounds(audited: float) -> None:
    """At 1e-2 for all eight, so 5e-3 for the four means: of 1,200 audits six are over at most, 14 by bad luck."""
    source = random.Random("audits")
    made, held, fresh = (
        [drawn(file, audited, source) for file in files(seed, count)]
        for seed, count in (("made", 60), ("held out", 20), ("audited", 1200))
    )
    bounds = thresholds([summarise(INFO, INFO, made, held)], Design(8, 4, audited), 1e-2, 1.0)
    over = [any(mean.mean(file.rows) >= bounds[name] for name, mean in MEANS.items()) for file in fresh]
    assert sum(over) <= 14


def test_bounds_of_whole_files_hold_for_audits_of_single_rows() -> None:
    """As checks apply them: a sum may exceed its bound by what one chunk or token may reach, or by spared misses."""
    bounds, source, over = document().thresholds, random.Random("rows"), 0
    for file in files("single", 1500):
        row = source.choice(file.rows)
        for name, mean in MEANS.items():
            series, spared = mean.series(row), bounds[mean.extreme] if mean.extreme else SPARED_MISSES
            measured, limit = by_mean(series.total, series.count, bounds[name], spared)
            over += measured >= limit
    assert over <= 5


def test_events_that_the_sample_lacks_are_refused_only_in_numbers() -> None:
    """Thirty events of a sample of 10,000 tokens, and then 200,000 audits of one to 400 tokens."""
    sums = Sums(problems=((((30.0, 5000),)), ((0.0, 5000),)))
    rate, source = _event_floor([sums], 1.0, SPARED_MISSES, 1e-6), np.random.default_rng(2)
    tokens = source.integers(1, 400, 200_000)
    assert (source.poisson(0.003 * tokens) >= rate * tokens + SPARED_MISSES).sum() <= 1
    assert rate < 0.02, "and it sees something"


def mixed_file(source: random.Random) -> FileSample:
    """Two samples of 32 problems, half of which end after one token or two; misses are one in 250 tokens."""
    rows = []
    for group in range(32):
        tokens = source.choice([1, 2, source.randint(1, 96), source.randint(16, 64)])
        for _ in range(2):
            gaps = [float(source.random() < 0.004) for _ in range(tokens)]
            rows.append(RowSample.of(group, [0], [source.random()], gaps, [source.random()] * tokens, [0.0] * tokens))
    return FileSample(1, tuple(rows))


def mixed_pair(seed: int, files: int, heldout: int) -> PairMeasurements:
    source = random.Random(seed)
    return summarise(INFO, INFO, *([mixed_file(source) for _ in range(count)] for count in (files, heldout)))


def test_short_rollouts_leave_the_miss_rate_a_bound_and_one_that_sees_nothing_is_named() -> None:
    """A file's token count varies threefold here, which second moments of the sums would hold against the bound."""
    pair = mixed_pair(11, 30, 10)
    found = thresholds([pair], Design(32, 2, 1.0), 1e-6, 1.5)
    assert pair.largest["sampling_miss_rate_reject"] < found["sampling_miss_rate_reject"] < 0.1
    assert blind(found) == []
    few = mixed_pair(12, 9, 1)
    assert "sampling_miss_rate_reject" in blind(thresholds([few], Design(2, 2, 0.3), 1e-6, 1.5))


def same(row: RowSample) -> dict[str, float]:
    """The thresholds of files whose rollouts are all alike."""
    rows = tuple(replace(row, group=group) for group in range(8) for _ in range(4))
    pair = summarise(INFO, INFO, [FileSample(1, rows)] * 15, [FileSample(1, rows)] * 5)
    return thresholds([pair], DESIGN, 1e-6, 1.5)


def test_sums_without_any_spread_have_a_bound_and_zeros_have_floors() -> None:
    found = same(RowSample.of(0, [1, 1], [0.5, 0.5], [0.1] * 40, [-1.5] * 40, [-1.0] * 40))
    assert all(0 < value < math.inf for value in found.values())
    found = same(RowSample.of(0, [0, 0], [0.0, 0.0], [0.0] * 40, [-1.0] * 40, [-1.0] * 40))
    assert all(0 < value < 10 for value in found.values())
    assert found["exponent_mismatches_chunk_reject"] >= 4
    assert found["logprob_mean_reject"] == 2e-6


def test_answers_of_one_token_have_thresholds_though_no_chunk_is_judged() -> None:
    found = same(RowSample.of(0, [], [], [0.0], [-1.5], [-1.5 + 1e-6]))
    assert all(0 < value < math.inf for value in found.values())


def test_a_mean_of_which_nothing_is_spared_has_a_bound_where_an_audit_draws_hardly_more_than_one_row() -> None:
    source = random.Random(4)
    rows = [(source.expovariate(1.0), 1) for _ in range(8000)]
    sums, ratios = Sums(problems=tuple((row,) for row in rows)), Tail.of([total for total, _ in rows])
    assert 1 < mean_limit([sums], ratios, Design(16, 1, 1 / 16), 0.02, 0.0, 0.0) < 20


@pytest.mark.parametrize("value", [0.0, 5e-324, 1e12])
@pytest.mark.parametrize("counts", [(1, 2**53 - 1), (0, 0)])
def test_hostile_sums_end_in_an_answer(value: float, counts: tuple[int, int]) -> None:
    whole = json.loads(document().canonical())
    for stratum in whole["pairs"][0]["strata"]:
        for sums in stratum["sums"].values():
            others = sums["problems"][:2] if any(counts) else []
            sums["problems"] = [[[value, counts[0]]], *others, [[value, counts[1]]]]
    with pytest.raises(IntegrityError):
        Calibration.parse(json.dumps(whole).encode(), "x").signed(ACCOUNT).check()


def test_thresholds_are_not_needlessly_wide() -> None:
    """A mean threshold stays within a few times the largest measurement of a file seen."""
    bounds, largest = document().thresholds, document().pairs[0].largest
    for name in MEANS:
        assert largest[name] < bounds[name] < 4 * largest[name], name
    for name in EXTREMES:
        assert largest[name] < bounds[name] < 12 * largest[name], name


def test_a_tail_limit_holds_for_exponential_tails() -> None:
    source = random.Random(3)
    found = [limit(Tail.of([source.expovariate(1.0) for _ in range(5000)]), 1e-6, 0.0).value for _ in range(20)]
    true = -math.log(1e-6)
    assert sum(value >= true for value in found) >= 18
    assert max(found) < 2 * true


@pytest.mark.parametrize(("power", "short"), [(6.0, 2.0), (3.0, 4.0)])
def test_a_power_tail_is_followed_roughly(power: float, short: float) -> None:
    """What the documentation admits: far beyond the data a power law may be underestimated by this factor."""
    source = random.Random(3)
    found = sorted(
        limit(Tail.of([source.paretovariate(power) for _ in range(5000)]), 1e-6, 0.0).value for _ in range(9)
    )
    true = 1e-6 ** (-1 / power)
    assert true / short < found[4] < 4 * true


def test_smaller_audits_get_wider_bounds() -> None:
    pair = document().pairs[0]
    full, quarter = (thresholds([pair], Design(8, 4, share), 1e-3, 1.0) for share in (1.0, 0.25))
    assert all(quarter[name] > full[name] for name in ("mantissa_mean_reject", "logprob_mean_reject"))


def test_a_document_survives_its_bytes() -> None:
    again = Calibration.parse(document().canonical(), "x")
    again.check(ACCOUNT.address)
    assert again == document()
    assert again.checks == {**again.thresholds, "audit_rate": again.audit_rate}
    assert again.checks.keys() < ChecksConfig.model_fields.keys()


def test_changed_documents_and_other_signers_are_refused() -> None:
    with pytest.raises(IntegrityError, match="not by"):
        document().check("0x" + "11" * 20)
    with pytest.raises(IntegrityError, match="not signed"):
        document().model_copy(update={"safety": 2.0}).check()
    bounds = dict(document().thresholds) | {"sampling_gap_reject": 9.0}
    with pytest.raises(IntegrityError, match="sampling_gap_reject"):
        document().model_copy(update={"thresholds": bounds}).signed(ACCOUNT).check()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("pairs", 0, "strata"), []),
        (("pairs", 0, "extremes", "sampling_gap_reject", "top"), [1.0, 2.0]),
        (("pairs", 0, "ratios"), {}),
        (("thresholds", "sampling_gap_reject"), -1),
        (("false_reject",), 0),
        (("surprise",), 1),
    ],
)
def test_hostile_fields_are_named(path: tuple[str | int, ...], value: object) -> None:
    whole = json.loads(document().canonical())
    at = whole
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    with pytest.raises(ConfigError, match=str(path[0])):
        Calibration.parse(json.dumps(whole).encode(), "x")


def test_too_few_files_and_measurements_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ConfigError, match="--files"):
        summarise(INFO, INFO, files("few", 2), files("few", 1))
    with pytest.raises(IntegrityError, match="not numbers"):
        RowSample.of(0, [0], [math.nan], [0.0], [0.0], [0.0])


def test_a_calibration_is_of_model_task_and_work_alone() -> None:
    config = PoolConfig(name="a", model=ModelConfig(source="m"), environments=(EnvironmentConfig(name="t"),))
    other = config.model_copy(update={"checks": ChecksConfig(sampling_gap_reject=1.0), "name": "b"})
    assert subject(config) == subject(other)
    assert subject(config) != subject(config.model_copy(update={"environments": (EnvironmentConfig(name="u"),)}))
