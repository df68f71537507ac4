"""A site's states are written while its inner steps go on: a kill meanwhile takes nothing back, and nobody hears of
work that began from a state which is not there."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.site_letters import LetterTable
from protocol.errors import ConfigError
from protocol.files import put_folder
from protocol.sites.outer import OuterState
from tests.trainer.sites.killing import SiteKilled
from tests.trainer.sites.replaying import replayed
from tests.trainer.sites.world import TRUSTED, MemoryBucket, SitesWorld, make_run
from trainer.sites import replica_store
from trainer.sites.exchange import SiteExchange
from trainer.sites.replica_store import StateFolder
from trainer.sites.site import Site

STEPS = 3


class SlowDisk:
    """Lets no folder of the site be put in place until it is `released`; or `killed`: then never."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._go, self._dead, self._put = threading.Event(), False, put_folder
        monkeypatch.setattr(replica_store, "put_folder", self._late)

    def release(self) -> None:
        self._go.set()

    def kill(self) -> None:
        self._dead = True
        self._go.set()

    def _late(self, aside: Path, target: Path) -> None:
        if "site-0" in target.parts:
            self._go.wait(30)
            if self._dead:
                raise SiteKilled
        self._put(aside, target)


def world_at(home: Path, mode: str = "int8") -> tuple[SitesWorld, Site]:
    """A site alone, two outer steps on."""
    run = make_run(1, "disk", mode=mode, admission=TRUSTED, inner_steps=STEPS, training_seconds=1000)
    world = SitesWorld(MemoryBucket(), run, home)
    site = world.start(0)
    world.until(2)
    site.finish()
    return world, site


def step_on(world: SitesWorld, site: Site, made: int) -> None:
    """One outer step, and so many inner steps after it."""
    step = site.state.step + 1
    for _ in range(1000):
        if site.state.step == step and site._progress.made == made:
            return
        world.turn()
    raise AssertionError("it did not go on")


def what_it_has(site: Site) -> dict[str, Any]:
    table: Any = site.inner
    return {"place": np.array(table.place), **table.velocity, **table.weights(), **(site._owed or {})}


@pytest.mark.parametrize("made", [0, 1, STEPS - 1])
@pytest.mark.parametrize("mode", ["int8", "sparse"])
def test_a_kill_while_a_state_is_written_takes_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, made: int
) -> None:
    """Optimiser, place and what is owed are those right after the outer step, whatever was trained since; the outer
    step is made of the same bytes, and the run goes on as one without a kill."""
    whole, other = world_at(tmp_path / "whole", mode)
    step_on(whole, other, 0)
    wanted = what_it_has(other)
    whole.until(5)
    world, site = world_at(tmp_path / "killed", mode)
    disk = SlowDisk(monkeypatch)
    step_on(world, site, made)
    assert newest_on(tmp_path / "killed" / "site-0" / "outer") == 2, "inner steps did not wait for the disk"
    disk.kill()
    with pytest.raises(SiteKilled):
        site.finish()
    monkeypatch.undo()
    site = world.start(0)
    assert site.state.step == 3
    found = what_it_has(site)
    assert found.keys() == wanted.keys()
    assert all(np.array_equal(value, wanted[name]) for name, value in found.items())
    world.until(5)
    assert [one.digest for one in replayed(world.keeper.exchange)] == [
        one.digest for one in replayed(whole.keeper.exchange)
    ]


def newest_on(folder: Path) -> int:
    return max(int(one.name.removeprefix("step-")) for one in folder.glob("step-*"))


def test_a_kill_between_a_state_and_the_end_of_its_contribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The contribution that led to a state is still there beside it: it is not taken for one to the next step."""
    world, site = world_at(tmp_path)
    monkeypatch.setattr("trainer.sites.share_of_step.PendingFolder.drop", killed)
    with pytest.raises(SiteKilled):
        world.until(9)
    monkeypatch.undo()
    assert newest_on(tmp_path / "site-0" / "outer") == 3
    assert list((tmp_path / "site-0" / "pending").glob("step-*2-*")), "both are there"
    site = world.start(0)
    assert site._own is None
    world.until(5)
    assert len(replayed(world.keeper.exchange)) == 6


def killed(*_: Any) -> None:
    raise SiteKilled


def test_a_contribution_waits_for_the_state_that_it_is_made_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, site = world_at(tmp_path)
    disk = SlowDisk(monkeypatch)
    step_on(world, site, STEPS - 1)
    offering = threading.Thread(target=site.turn)
    offering.start()
    offering.join(0.3)
    notes = [place for place in world.bucket.objects if "/notes/" in place]  # type: ignore[attr-defined]
    assert offering.is_alive(), "it waits for the disk"
    assert not list((tmp_path / "site-0" / "pending").glob("step-*3-*"))
    disk.release()
    offering.join(30)
    assert list((tmp_path / "site-0" / "pending").glob("step-*3-*"))
    world.until(4)
    assert len([place for place in world.bucket.objects if "/notes/" in place]) > len(notes)  # type: ignore[attr-defined]


def test_a_disk_that_takes_no_state_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    state = OuterState.start(LetterTable().weights())
    folder = StateFolder(tmp_path, state.layout, 2)
    folder.begin(state)
    folder.finish()
    monkeypatch.setattr(replica_store, "put_folder", full)
    folder.begin(OuterState(1, state.weights, state.momentum))
    with pytest.raises(ConfigError, match=r"cannot write .*step-0000000001: No space left"):
        folder.finish()
    assert folder.newest() is not None, "the one before is as it was"
    assert [one.name for one in tmp_path.iterdir()] == ["step-0000000000"]


def test_a_keeper_publishes_while_steps_go_on_and_again_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the log names is there in the end, though the steps did not wait for it; a newcomer that comes before takes
    an older one."""
    bucket, gate, dead = MemoryBucket(), threading.Event(), False
    publish = SiteExchange.publish_state

    def slow(self: SiteExchange, state: OuterState) -> str:
        if state.step and not gate.wait(30):
            raise AssertionError
        if dead:
            raise SiteKilled
        return publish(self, state)

    monkeypatch.setattr(SiteExchange, "publish_state", slow)
    run = make_run(2, "published", admission=TRUSTED, training_seconds=1000, state_every=1)
    world = SitesWorld(bucket, run, tmp_path)
    world.start(0)
    world.until(3)
    named = [one.state for _, one in world.keeper.book.chapters_back()]
    assert [one is not None for one in named] == [False, False, True, True], "while one is sent no other is"
    exchange = world.keeper.exchange
    assert named[2] is not None
    assert not exchange.has_state(named[2])
    late = world.start(1)
    assert late.state.digest == world.keeper.state.digest
    dead = True
    gate.set()
    world.sites.pop(1)
    dead = False
    world.start_keeper()
    world.until(4)
    world.keeper.finish()
    newest = world.keeper.book.boundary.state
    assert newest is not None
    assert exchange.has_state(newest)
