"""Sites, keeper and a real bucket: whatever is killed when, no outer step is lost or made twice, and all hold the same
bits, which are those that anybody computes from what was published."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.site_faults import signed_twice
from benchmarks.site_letters import LetterTable
from protocol.errors import IntegrityError, UnreachableError
from protocol.sites.log import Boundary
from storage.s3 import Bucket
from tests.localnet.services.running import ServiceProcess, running, settings_of
from tests.trainer.sites.killing import SiteKilled, kill_keeper_anywhere, kill_site_anywhere
from tests.trainer.sites.replaying import boundaries, held_at_the_end, replayed
from tests.trainer.sites.world import SITES, TRUSTED, MemoryBucket, SitesWorld, make_run
from trainer.sites.events import OuterPhase
from trainer.sites.exchange import SiteExchange
from trainer.sites.site import Site


@pytest.fixture
def bucket() -> MemoryBucket:
    return MemoryBucket()


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    with running(ServiceProcess("s3", tmp_path_factory.mktemp("swift") / "data")) as service:
        yield Bucket(settings_of(service))


def test_three_sites_make_the_steps_that_anybody_computes(s3: Bucket, tmp_path: Path) -> None:
    world = SitesWorld(s3, make_run(3, "three", inner_steps=20, state_every=100, training_seconds=1000), tmp_path)
    before = world.start(0).inner.loss(0, 40)  # type: ignore[attr-defined]
    for number in (1, 2):
        world.start(number)
    world.until(1)
    states = replayed(world.keeper.exchange)
    assert [one.step for one in states] == [0, 1]
    assert {site.state.digest for site in world.sites.values()} == {states[-1].digest} == {world.keeper.state.digest}
    table = LetterTable()
    table.load(states[-1].weights)
    assert table.loss(0, 40) < before - 0.5


@pytest.mark.parametrize("settings", [{"mode": "sparse"}, {"mode": "float32", "overlap": 2}, {"codebook": "quantile"}])
def test_every_mode_and_overlap(bucket: MemoryBucket, tmp_path: Path, settings: dict[str, Any]) -> None:
    world = SitesWorld(bucket, make_run(3, "modes", **settings), tmp_path)
    for number in range(3):
        world.start(number)
    world.until(2)
    assert {site.state.digest for site in world.sites.values()} == {replayed(world.keeper.exchange)[-1].digest}


def test_a_kill_anywhere_loses_and_repeats_nothing(
    bucket: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Site 0 is killed at its first use of bucket or disk, then at the second after that, and so on round the step."""
    run = make_run(2, "kills", admission=TRUSTED, inner_steps=2, mode="sparse", training_seconds=1000)
    world = SitesWorld(bucket, run, tmp_path)
    assert kill_site_anywhere(world, monkeypatch, places=16, turns=60) > 20
    states = replayed(SiteExchange(bucket, run))
    assert [one.step for one in states] == list(range(world.keeper.state.step + 1))
    assert {site.state.digest for site in world.sites.values()} == {states[-1].digest}
    assert signed_twice(world.keeper.exchange) == 0, "what a site signed it signs again, and nothing else"


@pytest.mark.parametrize("mode", ["sparse", "int8"])
def test_a_kill_before_an_outer_step_is_made_takes_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Optimiser, place in the data and what is owed are those of the contribution that counted, so that the run goes on
    as one without a kill."""

    def work_at(name: str, kill: bool) -> tuple[list[str], dict[str, Any]]:
        run = make_run(2, "taken back", mode=mode, admission=TRUSTED, inner_steps=3, training_seconds=1000)
        world = SitesWorld(MemoryBucket(), run, tmp_path / name)
        site = world.start(0)
        world.until(2)
        if kill:
            monkeypatch.setattr(Site, "_hold", killed)
            with pytest.raises(SiteKilled):
                world.until(3)
            monkeypatch.undo()
            site = world.start(0)
        while site.state.step < 3:
            site.turn()
            world.keeper.turn()
        table: Any = site.inner
        kept = {"place": table.place, "owed": site._owed, **table.velocity}
        world.sites = {0: site}
        world.until(5)
        return [one.digest.hex() for one in replayed(world.keeper.exchange)], kept

    def killed(*_: Any) -> None:
        raise SiteKilled

    whole, wanted = work_at("whole", kill=False)
    states, found = work_at("killed", kill=True)
    assert states == whole
    assert (mode == "sparse") == (found["owed"] is not None)
    assert found["place"] == wanted["place"]
    assert all(np.array_equal(found[name], wanted[name]) for name in ("table", "bias"))


def test_a_keeper_that_is_killed_anywhere_writes_one_log(bucket: MemoryBucket, tmp_path: Path) -> None:
    run = make_run(2, "keeper-kills", admission=TRUSTED, inner_steps=1, training_seconds=1000)
    world = SitesWorld(bucket, run, tmp_path)
    assert kill_keeper_anywhere(world, places=14, turns=40) > 10
    assert {site.state.digest for site in world.sites.values()} == {replayed(world.keeper.exchange)[-1].digest}


def test_it_shrinks_to_one_site_and_grows_again(bucket: MemoryBucket, tmp_path: Path) -> None:
    run = make_run(3, "shrinks", admission=TRUSTED, window_seconds=1, training_seconds=1000, state_every=2)
    world = SitesWorld(bucket, run, tmp_path)
    for number in (0, 1):
        world.start(number)
    world.until(2)
    world.sites.pop(1).leave()
    world.until(world.keeper.state.step + 2)
    assert set(world.keeper.book.schedule.members) == {SITES[0].address}
    for number in (1, 2):
        world.start(number)
    world.until(world.keeper.state.step + 2)
    assert len(world.keeper.book.schedule.members) == 3
    assert {1, 2, 3} <= {len(one.made_of) for one in boundaries(world.keeper.exchange)}
    assert {site.state.digest for site in world.sites.values()} == {replayed(world.keeper.exchange)[-1].digest}


def test_a_site_leaves_whatever_step_it_has_heard_of(bucket: MemoryBucket, tmp_path: Path) -> None:
    """Its note names an outer step that is over when the keeper reads it; a keeper that restarts heeds it no more."""
    run = make_run(2, "leaves", admission=TRUSTED, training_seconds=1000)
    world = SitesWorld(bucket, run, tmp_path)
    for number in (0, 1):
        world.start(number)
    world.until(2)
    gone = world.sites.pop(1)
    while gone.book.schedule.phase != OuterPhase.OPEN or world.keeper.state.step == gone.state.step:
        if gone.book.schedule.phase != OuterPhase.OPEN:
            gone.turn()
        else:
            gone._mouth._publish(gone._own)  # type: ignore[arg-type]
        world.turn()
    assert gone.book.schedule.step < world.keeper.state.step
    gone.leave()
    world.keeper.turn()
    assert SITES[1].address not in world.keeper.book.schedule.members
    world.start(1)
    world.until(world.keeper.state.step + 2)
    world.start_keeper()
    world.keeper.turn()
    assert SITES[1].address in world.keeper.book.schedule.members


def test_a_site_that_cannot_reach_the_bucket_ends_all_the_same(bucket: MemoryBucket, tmp_path: Path) -> None:
    class Gone:
        def __getattr__(self, name: str) -> Any:
            raise UnreachableError("it is gone")

    world = SitesWorld(bucket, make_run(1, "gone", admission=TRUSTED), tmp_path)
    site = world.start(0)
    world.until(1)
    monkey: Any = site.exchange
    monkey._bucket = Gone()
    site.leave()


def test_a_dead_site_is_not_waited_for_longer_than_the_time_out(bucket: MemoryBucket, tmp_path: Path) -> None:
    run = make_run(2, "dead", admission=TRUSTED, window_seconds=1, training_seconds=1)
    world = SitesWorld(bucket, run, tmp_path)
    for number in (0, 1):
        world.start(number)
    world.until(2)
    world.sites.pop(1)
    step = world.keeper.state.step
    world.until(step + 1)
    assert set(world.keeper.book.schedule.members) == {SITES[0].address}


def test_a_site_that_has_another_base_takes_the_published_state(bucket: MemoryBucket, tmp_path: Path) -> None:
    run = make_run(2, "other-base", admission=TRUSTED, training_seconds=1000)
    world = SitesWorld(bucket, run, tmp_path)
    world.start(0)
    world.until(2)
    table = LetterTable()
    table.load({name: one + np.float32(1) for name, one in table.weights().items()})
    other = Site(SiteExchange(bucket, run), SITES[1], table, tmp_path / "other")
    other.start()
    assert other.state.digest == world.keeper.state.digest


def test_what_no_honest_keeper_writes_is_refused(bucket: MemoryBucket, tmp_path: Path) -> None:
    world = SitesWorld(bucket, make_run(2, "liar", admission=TRUSTED, training_seconds=1000), tmp_path)
    site, keeper = world.start(0), world.keeper
    held_at_the_end(world)
    now = keeper.book.schedule
    wrong = Boundary(
        step=1, digest="ab" * 32, attempt=now.attempt, members=sorted(now.members), made_of=dict(now.contributors),
        before=keeper.book.chapter,
    )  # fmt: skip
    keeper._tell(wrong)
    while site.book.boundary.step == 0:
        site.turn()
    with pytest.raises(IntegrityError, match="does not lead to the state that the log names"):
        site.turn()
    assert site.state.step == 0
