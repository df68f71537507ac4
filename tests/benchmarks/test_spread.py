"""The virtual network: lines are shared fairly and in full, and a small crowd brings everything to everybody."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.flows import Lines
from benchmarks.spread import CASES, SpreadCase, network, simulated, small
from benchmarks.spread_network import Simulation
from benchmarks.spread_parts import NodeCrowd, NodeKind

MB = 1 << 20


def few(name: str) -> SpreadCase:
    case = next(case for case in CASES if case.name == name)
    relays = 3 if case.relays else 0
    return replace(case, peers=12, relays=relays, bytes=6 * MB, shard=MB, bucket_line=100.0, slice_seconds=0.1)


def test_a_line_is_shared_equally_and_what_one_cannot_use_goes_to_the_others() -> None:
    lines = Lines(np.array([90.0, 0.0, 0.0, 0.0]), np.array([0.0, 10.0, 90.0, 90.0]))
    source, sink = np.array([0, 0, 0]), np.array([1, 2, 3])
    brought = lines.brought(source, sink, np.array([1e9, 1e9, 1e9]), 1.0)
    assert brought == pytest.approx([10.0, 40.0, 40.0])
    assert lines.brought(source, sink, np.array([1e9, 5.0, 0.0]), 1.0) == pytest.approx([10.0, 5.0, 0.0])


def test_a_relay_passes_on_as_it_comes_but_not_the_last_byte() -> None:
    kinds = [NodeKind.HONEST] * 3
    lines = Lines(np.array([1e6, 1e6, 0.0]), np.array([0.0, 1e6, 1e6]))
    crowd = NodeCrowd(kinds, [[], [0], [1]], [[], [], [0]], lines, 1, 10**6, relays=1)
    run = Simulation(crowd, 0.05)
    run.run(0.9)
    assert run.share() == 0.0
    run.run(10.0)
    assert 1.0 < run.now < 1.5, "not the two seconds that one after the other would take"
    assert run.sent[0] == pytest.approx(1e6)
    assert run.sent[1] == pytest.approx(1e6)


@pytest.mark.parametrize("name", ["step tree", "step peers", "step both"])
def test_everything_comes_to_everybody_although_a_third_is_hostile(name: str) -> None:
    case = few(name)
    crowd = network(case)
    serving = crowd.kinds[1:] if case.serve else crowd.kinds[1 : 1 + crowd.relays]
    assert sum(kind is not NodeKind.HONEST for kind in serving) / len(serving) == pytest.approx(1 / 3, abs=0.05)
    found = simulated(case, lambda _: None)
    assert found is not None
    assert found["seconds"] is not None
    assert found["sent_per_copy"] >= 1.0
    assert simulated(case, lambda _: None) == found, "the same every time"


def test_a_case_in_slices_is_the_case_in_one_go(tmp_path: Path) -> None:
    case, state = few("step peers"), tmp_path / "case.state"
    slices, found = 0, None
    while found is None and slices < 200:
        found = simulated(case, lambda _: time.sleep(0.05), state, time.monotonic() + 0.04)
        slices += 1
    assert slices > 3
    assert found == simulated(case, lambda _: None)


def test_a_state_of_another_case_is_not_gone_on_with(tmp_path: Path) -> None:
    case, state = few("step peers"), tmp_path / "case.state"
    assert simulated(case, lambda _: None, state, time.monotonic()) is None
    other = replace(case, seed=2)
    assert simulated(other, lambda _: None, state) == simulated(other, lambda _: None)


def test_the_small_case_takes_as_long_as_the_bytes_of_the_honest_ones() -> None:
    assert 96 / 9 <= small(False) <= 13
    assert 96 / 6 <= small(True) <= 20
