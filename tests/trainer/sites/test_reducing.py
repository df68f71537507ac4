"""Outer steps in which each member reduces some shards: all come to the same bits, which anybody computes again from
the contributions themselves, whatever is killed when."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.site_faults import signed_twice
from protocol.sites.codebook import bin_width
from protocol.sites.outer import OuterState
from tests.trainer.sites.killing import kill_keeper_anywhere, kill_site_anywhere
from tests.trainer.sites.replaying import agreed, boundaries, just_told, time_is_up_for
from tests.trainer.sites.world import SITES, TRUSTED, MemoryBucket, SitesWorld, make_run
from trainer.sites.catching_up import limits_at
from trainer.sites.events import OuterPhase
from trainer.sites.exchange import SiteExchange
from trainer.sites.reduction import Payloads


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"mode": "sparse"},
        {"mode": "float32", "overlap": 2},
        {"codebook": "quantile", "shards": 7, "checks": 1.0},
        {"shards": 2, "checks": 1.0, "audited": 64},
    ],
)
def test_every_mode_comes_to_the_bits_that_anybody_computes(tmp_path: Path, settings: dict[str, Any]) -> None:
    given = {"shards": 3, "training_seconds": 1000, "window_seconds": 1000} | settings
    world = SitesWorld(MemoryBucket(), make_run(3, "modes", exchange="shards", **given), tmp_path)
    for number in range(3):
        world.start(number)
    world.until(2)
    assert [one.step for one in agreed(world)] == [0, 1, 2]
    assert {len(one.means) for one in boundaries(world.keeper.exchange)[1:]} == {3}


def test_in_float32_it_is_the_step_of_those_who_fetch_all(tmp_path: Path) -> None:
    """To the bit."""
    states = []
    for exchange in ("all", "shards"):
        given = {"mode": "float32", "training_seconds": 1000, "window_seconds": 1000, "shards": 3}
        world = SitesWorld(MemoryBucket(), make_run(3, "same", exchange=exchange, **given), tmp_path / exchange)
        for number in range(3):
            world.start(number)
        world.until(1)
        states.append(world.keeper.state)
    assert states[0].digest == states[1].digest


def test_what_a_mean_is_off_by_in_int8(tmp_path: Path) -> None:
    """It is added in float32, and quantised as a contribution is: within a bin where all but the tails are."""
    dice = np.random.default_rng(0)
    state = OuterState.start({"w": np.zeros((256, 256), np.float32)})
    run = make_run(3, "off", exchange="shards")
    limits = limits_at(SiteExchange(MemoryBucket(), run), state)
    payloads = Payloads(limits, state, {}, lambda entry: b"")
    mean = [dice.standard_normal(one.size).astype(np.float32) for one in payloads.pieces(0)]
    data = payloads.write_mean(str(SITES[0].address), 0, mean)
    (told,) = payloads.read_mean(str(SITES[0].address), 0, data)
    off = told - mean[0]
    assert np.abs(off[np.abs(mean[0]) < 2.9]).max() < bin_width(mean[0])
    assert np.sqrt((off**2).mean()) < 0.02
    assert abs(off.mean()) < 1e-6, "the mean of all elements is kept"


@pytest.mark.parametrize("mode", ["sparse", "int8"])
def test_a_kill_anywhere_loses_and_repeats_nothing(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Site 0 is killed at its first use of bucket or disk, then at the second after that, and so on round the step."""
    bucket = MemoryBucket()
    run = make_run(
        2, "kills", exchange="shards", checks=0.5, admission=TRUSTED, inner_steps=2, mode=mode, training_seconds=1000,
        window_seconds=1000,
    )  # fmt: skip
    world = SitesWorld(bucket, run, tmp_path)
    assert kill_site_anywhere(world, monkeypatch, places=36, turns=300) > 36
    assert [one.step for one in agreed(world)] == list(range(world.keeper.state.step + 1))
    assert signed_twice(world.keeper.exchange) == 0, "what a site signed it signs again, and nothing else"


def test_a_keeper_that_is_killed_anywhere_writes_one_log(tmp_path: Path) -> None:
    bucket = MemoryBucket()
    run = make_run(
        2, "keeper-kills", exchange="shards", admission=TRUSTED, inner_steps=1, training_seconds=1000,
        window_seconds=1000,
    )  # fmt: skip
    world = SitesWorld(bucket, run, tmp_path)
    assert kill_keeper_anywhere(world, places=30, turns=150) > 25
    agreed(world)


@pytest.mark.parametrize("phase", [OuterPhase.OPEN, OuterPhase.PRODUCTS, OuterPhase.MEANS, OuterPhase.CHECK])
def test_a_reducer_that_falls_silent_is_done_without(phase: OuterPhase, tmp_path: Path) -> None:
    """The attempt begins again with the contributions of the others as they are, or is settled if only its word is
    missing; it is out of this step, and back in the next."""
    run = make_run(
        3, "silent", exchange="shards", admission=TRUSTED, window_seconds=1000, training_seconds=1000, shards=3
    )
    world = SitesWorld(MemoryBucket(), run, tmp_path)
    for number in range(3):
        world.start(number)
    world.until(1)
    while not (world.keeper.book.schedule.phase == phase and len(world.keeper.book.schedule.members) == 3):
        for site in world.sites.values():
            site.turn()
        world.keeper.turn()
    gone, step = str(SITES[2].address), world.keeper.state.step
    before = dict(world.keeper.book.schedule.documents)
    world.sites.pop(2)
    time_is_up_for(world, gone)
    world.until(step + 1)
    made = boundaries(world.keeper.exchange)[step + 1]
    left = {site: one for site, one in before.items() if site != gone}
    assert dict(made.made_of) == (before if phase == OuterPhase.CHECK else left), "nobody trains again"
    assert (made.attempt == 0) == (phase in (OuterPhase.OPEN, OuterPhase.CHECK))
    assert made.marks[gone].marks == 1
    world.start(2)
    step = world.keeper.state.step
    while len(boundaries(world.keeper.exchange)[-1].made_of) < 3:
        world.turn()
    world.until(world.keeper.state.step)
    agreed(world)


def test_who_leaves_with_shards_to_reduce_begins_the_attempt_again(tmp_path: Path) -> None:
    run = make_run(
        3, "leaves", exchange="shards", admission=TRUSTED, window_seconds=1000, training_seconds=1000, shards=3
    )
    world = SitesWorld(MemoryBucket(), run, tmp_path)
    for number in range(3):
        world.start(number)
    world.until(1)
    just_told(world, OuterPhase.PRODUCTS)
    step = world.keeper.state.step
    world.sites.pop(2).leave()
    world.until(step + 1)
    made = boundaries(world.keeper.exchange)[step + 1]
    assert (made.attempt, len(made.made_of)) == (1, 2)
    agreed(world)
