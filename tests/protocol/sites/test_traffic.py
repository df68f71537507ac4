"""Bytes by formula, against bytes that four sites really publish and fetch."""

from fractions import Fraction

import numpy as np
import pytest

from protocol.sites.layout import F32, TensorLayout, cut
from protocol.sites.outer import OuterState
from protocol.sites.payload import decode_shard, encode_dense
from protocol.sites.traffic import Traffic, all_fetch, all_reduce, reduced_fetch, saving
from tests.protocol.sites.samples import KEYS, LIMITS

SITES: list[str] = [key.address for key in KEYS]
COUNT = len(SITES)
DICE = np.random.default_rng(0)
STATE = OuterState.start({"w": DICE.standard_normal((400, 500)).astype(np.float32)})
LAYOUT = TensorLayout.of(STATE.weights)
SHARDS = LAYOUT.shards(COUNT)


def gradient() -> dict[str, F32]:
    return {"w": (0.01 * DICE.standard_normal((400, 500))).astype(np.float32)}


def published(site: str, given: dict[str, F32]) -> list[bytes]:
    place = LIMITS.place(site)
    return [encode_dense(place, at, cut(given, pieces), "uniform") for at, pieces in enumerate(SHARDS)]


def read(data: bytes, site: str, shard: int) -> F32:
    pieces = SHARDS[shard]
    (found,) = decode_shard(data, LIMITS.place(site), shard, pieces, "int8", cut(STATE.weights, pieces))
    return found


def test_a_ring_of_four_in_float32() -> None:
    assert all_reduce(1000, 4, Fraction(4)) == Traffic(Fraction(6000), Fraction(6000))
    assert saving(1000, 4, 100, all_reduce(1000, 4, Fraction(1))) == 400
    assert saving(1000, 4, 100, all_fetch(1000, 4, Fraction(1))) == 300
    assert saving(1000, 4, 100, reduced_fetch(1000, 4, Fraction(1))) == pytest.approx(436.36, abs=0.01)
    assert saving(1000, 4, 100, reduced_fetch(1000, 4, Fraction(1), Fraction(1, 4))) == pytest.approx(408.51, abs=0.01)


def test_four_sites_move_four_hundred_times_less() -> None:
    """H = 100. Each site publishes four shards, reduces one of them, and fetches the means of the others."""
    payloads = {site: published(site, gradient()) for site in SITES}
    means = []
    for at, reducer in enumerate(SITES):
        total: F32 = np.mean([read(payloads[site][at], site, at) for site in SITES], axis=0)
        means.append(encode_dense(LIMITS.place(reducer), at, [total], "uniform"))
    for at, site in enumerate(SITES):
        sent = sum(map(len, payloads[site])) + len(means[at])
        others = [other for other in range(COUNT) if other != at]
        received = sum(len(payloads[SITES[other]][at]) + len(means[other]) for other in others)
        measured = Traffic(Fraction(sent), Fraction(received))
        each = Fraction(len(means[at]) * COUNT, LAYOUT.size)
        assert measured.total == pytest.approx(float(reduced_fetch(LAYOUT.size, COUNT, each).total), rel=0.01)
        assert float(saving(LAYOUT.size, COUNT, 100, measured)) > 440
    mean = np.concatenate([read(one, SITES[at], at) for at, one in enumerate(means)])
    whole = [np.concatenate([read(one, site, at) for at, one in enumerate(payloads[site])]) for site in SITES]
    exact = np.mean(whole, axis=0, dtype=np.float64)
    assert np.sqrt(((mean - exact) ** 2).mean()) < 0.02 * exact.std()


def test_all_that_fetch_everything_move_three_hundred_times_less() -> None:
    payload = published(SITES[0], gradient())
    whole = sum(map(len, payload))
    measured = Traffic(Fraction(whole), Fraction((COUNT - 1) * whole))
    assert 300 < float(saving(LAYOUT.size, COUNT, 100, measured)) < 330
