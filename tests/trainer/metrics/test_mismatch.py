"""Mismatch by source is the plain mean over that source's tokens, whatever the packing and the ranks."""

import math
import random

import pytest
import torch

from trainer.batch import GroupSettings, Source, TrainRollout
from trainer.distributed import OneRank
from trainer.metrics import batch_metrics
from trainer.step_metrics import MismatchTotals

ADA, BOB = Source("0xada", "vllm 0.32", 3), Source("0xbob", "transformers 5.19", 1)


def sample(source: Source | None, tokens: int = 3) -> TrainRollout:
    return TrainRollout((1,), tuple(range(tokens)), 1.0, source=source)


def test_each_source_has_the_mean_of_its_own_tokens() -> None:
    dice = random.Random(3)
    samples = [sample(ADA, 3), sample(BOB, 2), sample(ADA, 4), sample(None, 1)]
    old = [[dice.uniform(-3, 0) for _ in one.output] for one in samples]
    sampled = [[dice.uniform(-3, 0) for _ in one.output] for one in samples]
    totals = MismatchTotals(4, torch.device("cpu"))
    parts: tuple[tuple[int, ...], ...] = ((2, 0), (1,), (3,))
    for places in parts:
        sequence = torch.cat([torch.full((len(old[place]),), at) for at, place in enumerate(places)])
        flat = [torch.tensor([value for place in places for value in rows[place]]) for rows in (old, sampled)]
        totals.add(places, sequence, *flat)
    overall, found = totals.by_source(samples, 4, OneRank())

    def expected(*places: int) -> tuple[float, float]:
        ratios = [a - b for place in places for a, b in zip(old[place], sampled[place], strict=True)]
        kl = sum(math.exp(ratio) - 1 - ratio for ratio in ratios) / len(ratios)
        return kl, sum(map(abs, ratios)) / len(ratios)

    by_node = {one.node: one for one in found}
    expectations: tuple[tuple[str, str, int, tuple[int, ...]], ...] = (
        ("0xada", "vllm 0.32", 1, (0, 2)),
        ("0xbob", "transformers 5.19", 3, (1,)),
        ("", "", 0, (3,)),
    )
    for node, engine, staleness, places in expectations:
        one = by_node[node]
        assert (one.engine, one.staleness) == (engine, staleness)
        assert one.tokens == sum(len(old[place]) for place in places)
        assert (one.kl, one.absolute) == pytest.approx(expected(*places), rel=1e-5)
    assert overall == pytest.approx(expected(0, 1, 2, 3)[0], rel=1e-5)
    assert [one.kl for one in found] == sorted((one.kl for one in found), reverse=True)


def test_equal_policies_have_no_mismatch() -> None:
    totals = MismatchTotals(1, torch.device("cpu"))
    logp = torch.tensor([-0.5, -2.0])
    totals.add((0,), torch.zeros(2, dtype=torch.int64), logp, logp)
    overall, found = totals.by_source([sample(ADA, 2)], 3, OneRank())
    assert overall == found[0].kl == found[0].absolute == 0.0


def test_a_wild_log_probability_of_a_file_stays_a_number() -> None:
    totals = MismatchTotals(1, torch.device("cpu"))
    totals.add((0,), torch.zeros(2, dtype=torch.int64), torch.zeros(2), torch.tensor([-1e30, float("nan")]))
    overall, _ = totals.by_source([sample(ADA, 2)], 3, OneRank())
    assert overall is not None
    assert math.isfinite(overall)


def test_without_log_probabilities_there_is_no_mismatch() -> None:
    assert MismatchTotals(1, torch.device("cpu")).by_source([sample(ADA)], 3, OneRank()) == (None, ())


def test_a_batch_says_rewards_length_errors_and_staleness() -> None:
    sums, words = GroupSettings("sums"), GroupSettings("words")
    right = TrainRollout((1,), (1, 2, 3), 1.0, 1.0, target=5, settings=sums)
    wrong = TrainRollout((1,), (1, 2, 3, 4), 0.0, 0.0, target=3, settings=sums)
    spelt = TrainRollout((1,), (1, 2), 1.0, 1.0, settings=words)
    assert batch_metrics([(right, wrong), (spelt,)], [4, 2, 4], 5) == {
        "rewards_by_environment": {"sums": 0.5, "words": 1.0},
        "length_error": 1.5,
        "staleness": {"0": 2, "2": 1},
        "staleness_mean": pytest.approx(2 / 3),
    }
    assert batch_metrics([], [], 5) == {
        "rewards_by_environment": {},
        "length_error": None,
        "staleness": {},
        "staleness_mean": None,
    }
