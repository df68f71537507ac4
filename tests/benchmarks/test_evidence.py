"""Many lives at once are what one node's case is, file by file; the edges are laws at which some bet pays 1."""

import os
import random

import numpy as np
import pytest

from benchmarks.evidence import _key, wanted
from benchmarks.evidence_files import MeasuredRow, _engine
from benchmarks.evidence_lives import BLOCKS, Lives, ProblemBlock, Table, edges
from benchmarks.evidence_making import _environment_of, audited, means, scaled
from benchmarks.evidence_settings import AVX2, DEMO, SETTINGS
from protocol.errors import ConfigError
from protocol.evidence.figures import RowFigures
from protocol.evidence.law import BETS, Bet, PairLaw
from protocol.evidence.process import LIMIT_NATS, NAMES, NodeCase
from protocol.evidence.sums import ALL, Sum
from protocol.toploc.codec import BUCKETS, Drift

BETS_OF = tuple(Bet(tilt=0.2 * 2**place, rate=1.3, most=2.0) for place in range(BETS))
LAW = PairLaw(worker="w", verifier="v", bets=dict.fromkeys(ALL, BETS_OF))


def table(worse: float) -> Table:
    source = random.Random(3)
    sums = [{name: Sum(worse * source.expovariate(1), 1.0) for name in ALL} for _ in range(1800)]
    return Table.of(LAW, [ProblemBlock(sums[at + 1 : at + 9], sums[at]) for at in range(0, 1800, 9)])


@pytest.mark.parametrize("worse", [0.3, 2.0])
def test_lives_are_cases(worse: float) -> None:
    paid, files = table(worse), 12
    peaks, found = Lives(paid, np.random.default_rng(5)).run(2, files)
    same, cases = np.random.default_rng(5), [NodeCase(), NodeCase()]
    at = [0, 0]
    for number in range(1, files + 1):
        drawn = same.choice(len(paid.nats), (2, BLOCKS), p=None)
        for life, case in enumerate(cases):
            total = paid.nats[drawn[life]].sum(axis=0)
            case.add({name: tuple(total[place].tolist()) for place, name in enumerate(NAMES)})
            if case.accused and not at[life]:
                at[life] = number
    assert peaks.largest == pytest.approx(max(case.peak for case in cases))
    assert found.at.tolist() == at
    assert peaks.accused == sum(case.peak >= LIMIT_NATS for case in cases)
    assert any(at) == (worse > 1)


def test_an_edge_is_where_a_bet_stops_losing() -> None:
    source = random.Random(4)
    sums = [{name: Sum(0.3 * source.expovariate(1), 1.0) for name in ALL} for _ in range(200)]
    paid = Table.of(LAW, [ProblemBlock([one], one) for one in sums])
    found = edges(paid, LAW, ALL)
    assert set(found) == set(ALL)
    for weights in found.values():
        means = np.einsum("p,pnb->nb", weights, np.exp(paid.nats))
        assert means.max() == pytest.approx(1.0, abs=1e-6)
        assert weights.sum() == pytest.approx(1.0)


def test_audits_count_the_rows_that_they_draw() -> None:
    drift = Drift(np.ones(BUCKETS, dtype=np.int64), np.ones(BUCKETS, dtype=np.int64))
    rows = [MeasuredRow(RowFigures(row, 10, 1, 0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0), drift) for row in range(128)]
    (whole,) = audited([rows], 65536, draws=1, samples=8)
    assert [problem["mantissas"] for block in whole for problem in block.problems] == [Sum(8.0, 8.0)] * 16
    assert [block.together["coherence"].count for block in whole] == [28.0, 28.0]
    drawn = list(audited([rows], 4096, draws=64, samples=8))
    counts = [sum(one["mantissas"].count for block in file for one in block.problems) for file in drawn]
    assert {(len(file), len(file[0].problems)) for file in drawn} == {(2, 8)}
    assert 7 < sum(counts) / len(counts) < 11, "one row of sixteen, and one more"
    assert len(set(counts)) > 3


def test_means_are_of_whole_files() -> None:
    problem = {name: Sum(0.25, 10.0) for name in ALL}
    assert means([ProblemBlock([problem] * 8, problem)] * 3 * BLOCKS) == {"tokens": 160.0, "unexplained": 4.0}


def test_a_line_without_a_setting_is_the_demos() -> None:
    line = {"table": "lives", "pair": "transformers to transformers", "name": "", "audit": 65536, "lives": 3800}
    assert _key(line) in wanted(DEMO, quick=False)
    others = [row for setting in SETTINGS[1:] for row in wanted(setting, quick=False)]
    assert _key(line | {"setting": "long"}) in others
    assert _key(line) not in others


def test_a_restricted_engine_is_started_in_its_own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    with _environment_of(AVX2):
        assert (os.environ["ATEN_CPU_CAPABILITY"], os.environ["ONEDNN_MAX_CPU_ISA"]) == ("avx2", "AVX2")
    assert os.environ["ATEN_CPU_CAPABILITY"] == "default"
    assert "ONEDNN_MAX_CPU_ISA" not in os.environ


def test_an_engine_on_the_wrong_processor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX512")
    with pytest.raises(ConfigError, match="transformers-avx2 computes on cpu"):
        _engine(AVX2, 16)
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX2")
    assert _engine(AVX2, 16).info.device.endswith("avx2")


def test_scaled_figures_are_worse_by_the_safety_factor() -> None:
    (block,) = scaled([ProblemBlock([{"misses": Sum(2.0, 5.0)}], {"coherence": Sum(-1.0, 3.0)})])
    assert block.problems[0]["misses"].total == pytest.approx(2.2)
    assert block.together["coherence"].total == pytest.approx(-0.9), "up, whatever its sign"
    assert (block.problems[0]["misses"].count, block.together["coherence"].count) == (5.0, 3.0)
