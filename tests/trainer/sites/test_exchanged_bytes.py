"""Bytes that four sites really put into a bucket and get from it in an outer step, everything counted: payloads, means,
checks, documents, notes and the log."""

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from protocol.sites.layout import F32, Tensors
from protocol.sites.outer import OuterState
from protocol.sites.traffic import Traffic, reduced_fetch, saving
from tests.trainer.sites.world import KEEPER, MemoryBucket, SitesWorld, make_run
from trainer.sites.exchange import SiteExchange
from trainer.sites.inner import SAVED, Saving, Share
from trainer.sites.keeper import SitesKeeper

SIZE = 800_000


class NormalWork:
    """Moves its weights by what all sites have in common, and something of its own."""

    def __init__(self, seed: int = 0) -> None:
        self._weights: dict[str, F32] = {"w": np.zeros((800, 1000), np.float32)}
        self._made = 0

    def weights(self) -> Tensors:
        return {name: one.copy() for name, one in self._weights.items()}

    def load(self, weights: Tensors) -> None:
        self._weights = {name: np.array(one) for name, one in weights.items()}

    def train(self, share: Share, number: int) -> int:
        self._made += 1
        seeds = [[share.step, number], [share.step, number, int(share.site, 16) % 1000]]
        for seed in seeds:
            moved = np.random.default_rng(seed).standard_normal((800, 1000), np.float32)
            self._weights["w"] += np.float32(1e-3) * moved
        return 100

    def figures(self) -> Mapping[str, float]:
        return {}

    def save(self, folder: Path) -> Saving:
        folder.mkdir()
        np.save(folder / "w.npy", self._weights["w"])
        return SAVED

    def restore(self, folder: Path) -> None:
        self._weights["w"] = np.load(folder / "w.npy")


class CountingBucket:
    """The bucket as one site uses it."""

    def __init__(self, bucket: MemoryBucket) -> None:
        self._bucket, self.counts = bucket, Counter[str]()

    def put(self, key: str, data: bytes) -> bool:
        self.counts["sent"] += len(data)
        return self._bucket.put(key, data)

    def put_first(self, place: str, data: bytes) -> bool:
        self.counts["sent"] += len(data)
        return self._bucket.put_first(place, data)

    def get(self, key: str, limit: int) -> bytes:
        data = self._bucket.get(key, limit)
        self.counts["received"] += len(data)
        return data

    def look(self, place: str, limit: int) -> bytes | None:
        data = self._bucket.look(place, limit)
        self.counts["received"] += len(data or b"")
        return data

    def size(self, key: str) -> int | None:
        return self._bucket.size(key)


class NormalWorld(SitesWorld):
    def start_keeper(self) -> None:
        first = OuterState.start(NormalWork().weights())
        self.keeper = SitesKeeper(SiteExchange(self.bucket, self.run), KEEPER, first, self.home / "keeper")
        self.keeper.start()


def exchanged(home: Path, steps: int, **settings: Any) -> list[Traffic]:
    """Of each of four sites and each of so many outer steps of all of them."""
    given = {"inner_steps": 1, "shards": 4, "window_seconds": 1000, "training_seconds": 1000} | settings
    run, bucket = make_run(4, "bytes", **given), MemoryBucket()
    world = NormalWorld(bucket, run, home, NormalWork)
    counted = [CountingBucket(bucket) for _ in range(4)]
    for number in range(4):
        world.start(number, counted[number])
    world.until(1)
    while len(world.keeper.book.boundary.members) < 4:
        world.turn()
    world.until(world.keeper.state.step)
    found: list[Traffic] = []
    for _ in range(steps):
        before = [one.counts.copy() for one in counted]
        world.until(world.keeper.state.step + 1)
        assert len(world.keeper.book.boundary.made_of) == 4
        for now, then in zip(counted, before, strict=True):
            moved = {name: Fraction(now.counts[name] - then[name]) for name in ("sent", "received")}
            found.append(Traffic(moved["sent"], moved["received"]))
    return found


def fewer(moved: Traffic) -> float:
    """Times than data parallelism at H = 100."""
    return float(saving(SIZE, 4, 100, moved))


@pytest.mark.parametrize("codebook", ["uniform", "quantile"])
def test_sites_that_reduce_shards_move_four_hundred_times_less(codebook: str, tmp_path: Path) -> None:
    """Also on average with the checks, which each site makes with probability a quarter."""
    without = exchanged(tmp_path / "none", 2, exchange="shards", checks=0.0, codebook=codebook)
    always = exchanged(tmp_path / "all", 2, exchange="shards", checks=1.0, codebook=codebook)
    least, most = (fmean(float(one.total) for one in found) for found in (without, always))
    assert most - least == pytest.approx(0.75 * SIZE * (0.935 if codebook == "uniform" else 1.0), rel=0.03)
    mean = Traffic(Fraction(least + 0.25 * (most - least)), Fraction(0))
    assert fewer(mean) > 400
    each = Fraction(0.935 if codebook == "uniform" else 1.0)
    assert float(mean.total) == pytest.approx(float(reduced_fetch(SIZE, 4, each, Fraction(1, 4)).total), rel=0.03)
    assert make_run(4).checks == 0.25, "as runs are by default"


def test_sites_that_fetch_all_move_three_hundred_times_less(tmp_path: Path) -> None:
    found = exchanged(tmp_path, 1)
    assert {300 < fewer(one) < 325 for one in found} == {True}
