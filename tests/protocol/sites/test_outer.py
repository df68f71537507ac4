"""The outer optimiser against torch's and against exact sums; the same bits in any cut and any order of arrival."""

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ConfigError
from protocol.sites.config import OuterConfig
from protocol.sites.layout import F32, Tensors, cut
from protocol.sites.outer import OuterState, OuterStepError, advance
from tests.protocol.sites.samples import KEYS, LAYOUT, STATE, random_tensors

CONFIG = OuterConfig()
SITES: list[str] = [key.address for key in KEYS]
EQUAL = {site: Fraction(1, len(SITES)) for site in SITES}


def same(one: Tensors, other: Tensors) -> bool:
    return one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)


def run(steps: int, order: list[str]) -> OuterState:
    state = STATE
    for step in range(steps):
        given = {site: random_tensors(100 * step + SITES.index(site), 0.01) for site in order}
        state = advance(state, given, {site: EQUAL[site] for site in order}, CONFIG)
    return state


def test_it_is_nesterov_as_torch_has_it() -> None:
    made = run(5, SITES)
    parameters = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in STATE.weights.items()}
    optimizer = torch.optim.SGD(parameters.values(), lr=0.7, momentum=0.9, nesterov=True)
    for step in range(5):
        given = [random_tensors(100 * step + number, 0.01) for number in range(len(SITES))]
        for name, parameter in parameters.items():
            parameter.grad = torch.tensor(sum(one[name].astype(np.float64) for one in given) / len(given)).float()
        optimizer.step()
    for name, parameter in parameters.items():
        np.testing.assert_allclose(made.weights[name], parameter.detach().numpy(), rtol=0, atol=2e-6)


def test_the_order_of_arrival_changes_nothing() -> None:
    first, second = run(3, SITES), run(3, SITES[::-1])
    assert first.digest == second.digest
    assert same(first.weights, second.weights)
    assert first.step == 3


@given(bounds=st.lists(st.integers(0, LAYOUT.size), max_size=6))
def test_any_cut_of_the_tensors_gives_the_same_bits(bounds: list[int]) -> None:
    """Every tensor is one line; each part is updated alone, and the parts are joined."""
    flat = {"all": np.concatenate([one.reshape(-1) for one in STATE.weights.values()])}
    given = {site: {"all": flat["all"] * np.float32(0.01 * (1 + at))} for at, site in enumerate(SITES)}
    whole = advance(OuterState.start(flat), given, EQUAL, CONFIG)
    whole = advance(whole, given, EQUAL, CONFIG)
    edges = sorted({0, flat["all"].size, *bounds})
    parts = []
    for start, end in pairwise(edges):
        piece = {site: {"all": one["all"][start:end]} for site, one in given.items()}
        part = advance(OuterState.start({"all": flat["all"][start:end]}), piece, EQUAL, CONFIG)
        parts.append(advance(part, piece, EQUAL, CONFIG))
    assert whole.weights["all"].tobytes() == b"".join(part.weights["all"].tobytes() for part in parts)
    assert whole.momentum["all"].tobytes() == b"".join(part.momentum["all"].tobytes() for part in parts)


def test_each_operation_is_rounded_once_in_the_stated_order() -> None:
    """By scalars, one after another."""
    given = {site: {"x": np.array([0.1 * (at + 1)], np.float32)} for at, site in enumerate(sorted(SITES))}
    state = OuterState(3, {"x": np.array([0.3], np.float32)}, {"x": np.array([0.05], np.float32)})
    made = advance(state, given, EQUAL, CONFIG)
    f, total = np.float32, np.float32(0)
    for site in sorted(SITES):
        total = f(total + f(f(0.25) * given[site]["x"][0]))
    momentum = f(f(f(0.9) * f(0.05)) + total)
    assert made.momentum["x"][0] == momentum
    assert made.weights["x"][0] == f(f(0.3) - f(f(0.7) * f(total + f(f(0.9) * momentum))))


def test_everything_that_is_common_is_in_the_digest() -> None:
    moved = {**STATE.weights, "a.norm": STATE.weights["a.norm"] + np.float32(1e-6)}
    others = [
        OuterState(1, STATE.weights, STATE.momentum),
        OuterState(0, moved, STATE.momentum),
        OuterState(0, STATE.weights, moved),
        OuterState(0, STATE.momentum, STATE.weights),
        OuterState(0, {f"z{name}": one for name, one in STATE.weights.items()}, STATE.momentum),
    ]
    assert len({STATE.digest, *(one.digest for one in others)}) == 6
    assert OuterState.start(random_tensors(0)).digest == STATE.digest


def changed(value: Any, name: str = "a.norm") -> dict[str, F32]:
    return {**random_tensors(1), name: value}


@pytest.mark.parametrize(
    ("tensors", "word"),
    [
        (changed(np.zeros(6, np.float32)), "other tensors"),
        (changed(np.zeros(7, np.float64)), "other tensors"),
        ({}, "other tensors"),
        (changed(np.full(7, np.nan, np.float32)), "not be finite"),
        (changed(np.full(7, 3e38, np.float32)), "not be finite"),
    ],
)
def test_what_does_not_fit_makes_no_step(tensors: dict[str, F32], word: str) -> None:
    digest = STATE.digest
    with pytest.raises(OuterStepError, match=word):
        advance(STATE, {SITES[0]: tensors}, {SITES[0]: Fraction(2)}, CONFIG)
    assert STATE.digest == digest


def test_nothing_makes_no_step() -> None:
    with pytest.raises(OuterStepError, match="0 contributions"):
        advance(STATE, {}, {}, CONFIG)
    with pytest.raises(OuterStepError, match="1 contributions and 4 shares"):
        advance(STATE, {SITES[0]: random_tensors(1)}, EQUAL, CONFIG)


def test_a_process_that_flushes_small_floats_makes_no_step() -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot")
    try:
        with pytest.raises(ConfigError, match="flushes"):
            run(1, SITES)
    finally:
        torch.set_flush_denormal(False)


@given(count=st.integers(1, 40))
def test_shards_hold_every_element_once(count: int) -> None:
    shards = LAYOUT.shards(count)
    assert len(shards) == count
    sizes = [sum(piece.size for piece in pieces) for pieces in shards]
    assert sum(sizes) == LAYOUT.size
    assert max(sizes) - min(sizes) <= 1
    joined = LAYOUT.joined(shards, [cut(STATE.weights, pieces) for pieces in shards])
    assert same(joined, STATE.weights)
