"""Sites, keeper and a real bucket: whatever is killed when, no outer step is lost or made twice, and all hold the same
bits, which are those that anybody computes from what was published."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.site_faults import signed_twice
from benchmarks.site_letters import LetterTable
from protocol.errors import IntegrityError, UnreachableError
from protocol.sites.log import Boundary
from protocol.sites.outer import OuterState
from storage.bucket import Bucket
from tests.demo.services.running import ServiceProcess, running, settings_of
from tests.trainer.sites.world import SITES, TRUSTED, MemoryBucket, SitesWorld, make_run
from trainer.sites.catching_up import step_to
from trainer.sites.events import OuterPhase
from trainer.sites.exchange import SiteExchange
from trainer.sites.inner import Saving
from trainer.sites.logbook import Logbook
from trainer.sites.site import Site


@pytest.fixture
def bucket() -> MemoryBucket:
    return MemoryBucket()


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    with running(ServiceProcess("s3", tmp_path_factory.mktemp("swift") / "data")) as service:
        yield Bucket(settings_of(service))


class SiteKilled(BaseException):
    """As a kill: nothing of the process goes on."""


class Fuse:
    """A bucket, and a disk, of a process that is killed before or after its `left`-th use of them (-1: never)."""

    def __init__(self, bucket: MemoryBucket) -> None:
        self._bucket = bucket
        self.arm(-1)

    def arm(self, left: int) -> None:
        self._left, self.dead = left, False

    def burn(self) -> None:
        self.dead = self.dead or self._left == 0
        self._left -= self._left > 0
        if self.dead:
            raise SiteKilled

    def put(self, key: str, data: bytes) -> bool:
        return bool(self._call(self._bucket.put, key, data))

    def put_first(self, place: str, data: bytes) -> bool:
        return bool(self._call(self._bucket.put_first, place, data))

    def get(self, key: str, limit: int) -> bytes:
        return bytes(self._call(self._bucket.get, key, limit))

    def size(self, key: str) -> int | None:
        return self._bucket.size(key)

    def look(self, place: str, limit: int) -> bytes | None:
        if self.dead:
            raise SiteKilled
        return self._bucket.look(place, limit)

    def _call(self, of: Callable[..., Any], *given: Any) -> Any:
        self.burn()
        answer = of(*given)
        self.burn()
        return answer


class BurningTable(LetterTable):
    """SiteKilled before or after it has written itself down, too."""

    fuse: Fuse

    def save(self, folder: Path) -> Saving:
        self.fuse.burn()
        saving = super().save(folder)
        self.fuse.burn()
        return saving


def replayed(exchange: SiteExchange) -> list[OuterState]:
    """The states of a run as anybody makes them who has the bucket and the first weights, and no state of others."""
    state = OuterState.start(LetterTable().weights())
    book = Logbook.newest(exchange)
    assert book is not None
    states = [state]
    for _, boundary in reversed(list(book.chapters_back())[:-1]):
        states.append(step_to(exchange, states[-1], boundary)[0])
    return states


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
    world, dice, kills = SitesWorld(bucket, run, tmp_path), random.Random(3), 0
    world.start(1)
    fuse = Fuse(bucket)
    BurningTable.fuse = fuse
    monkeypatch.setattr("tests.trainer.sites.world.LetterTable", BurningTable)
    for point in [*range(16), *(dice.randrange(16) for _ in range(8))]:
        fuse.arm(point)
        try:
            site = world.start(0, fuse)
            for _ in range(60):
                site.turn()
                world.keeper.turn()
                world.sites[1].turn()
        except SiteKilled:
            kills += 1
        fuse.arm(-1)
        world.sites.pop(0, None)
    assert kills > 20
    fuse.arm(-1)
    world.start(0)
    step = world.keeper.state.step
    world.until(step + 1)
    states = replayed(SiteExchange(bucket, run))
    assert [one.step for one in states] == list(range(step + 2))
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
    fuse = Fuse(bucket)
    run = make_run(2, "keeper-kills", admission=TRUSTED, inner_steps=1, training_seconds=1000)
    world, kills = SitesWorld(bucket, run, tmp_path), 0
    for number in range(2):
        world.start(number)
    world.until(1)
    world.bucket = fuse
    for point in range(14):
        fuse.arm(point)
        try:
            world.start_keeper()
            for _ in range(40):
                world.turn()
        except SiteKilled:
            kills += 1
    fuse.arm(-1)
    assert kills > 10
    world.start_keeper()
    world.until(world.keeper.state.step + 1)
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
    book, members = Logbook.newest(world.keeper.exchange), []
    assert book is not None
    for _, boundary in book.chapters_back():
        members.append(len(boundary.made_of))
    assert {1, 2, 3} <= set(members)
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
    while keeper.book.schedule.phase.value != "settle":
        site.turn()
        keeper._read_notes()
        keeper._open()
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
