"""A pool's trainer as the keeper of two sites, over a bucket in memory: real files, learners, contributions and log."""

import threading
import time
from collections import Counter
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engines.loading import load_model
from localnet.sites_summary import logged_steps
from protocol.errors import ConfigError
from protocol.identity import PoolId
from protocol.sites.config import SitesConfig
from protocol.sites.run import SitesRun
from storage.keys import check_place, object_key
from storage.weights.manifest import Manifest, ManifestScope, unseal
from tests.trainer.helpers import small_model
from tests.trainer.sites.world import SITES, TRUSTED, MemoryBucket
from tests.trainer.world import CONFIG, OWNER, POOLS, Killed, TrainersWorld, start
from trainer.exits import EXIT_DONE, UnstableError
from trainer.model.sharding import Placement
from trainer.records import read_records
from trainer.sites.exchange import SiteExchange
from trainer.sites.model_tensors import model_tensors
from trainer.sites.reinforcement import ReinforcementWork, reinforcement_learners
from trainer.sites.site import Site
from trainer.sites.timeouts import Patience

POOL = PoolId(31337, POOLS, 1)
ADDRESSES = tuple(str(one.address) for one in SITES[:2])


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "base")


class SiteTrainersWorld(TrainersWorld):
    """Whose bucket has places too. `view`: the same bucket for sites, which the trainer's kills do not concern."""

    def __init__(self, base: Path, home: Path, **settings: Any) -> None:
        super().__init__(base, home)
        self.view = MemoryBucket()
        self.view.objects = self.objects
        given = {"inner_steps": 1, "shards": 2, "window_seconds": 1000, "training_seconds": 1000, "admission": TRUSTED}
        self.run = SitesRun(
            name="pool", chain_id=POOL.chain_id, pools=POOL.pools, pool=POOL.pool, keeper=OWNER.address,
            sites=ADDRESSES, work="given", pool_config=CONFIG.digest.hex(),
            settings=SitesConfig(**(given | settings)),
        )  # fmt: skip
        home.mkdir(parents=True, exist_ok=True)
        self.document = home / "run.json"
        self.document.write_text(self.run.model_dump_json())

    def put_first(self, place: str, data: bytes) -> bool:
        self.act()
        return self.objects.setdefault(check_place(place), data) is data

    def look(self, place: str, limit: int) -> bytes | None:
        return self.objects.get(place)

    def size(self, key: str) -> int | None:
        data = self.objects.get(key)
        return None if data is None else len(data)

    def manifest(self, step: int) -> Manifest:
        digest = self.steps[step]
        return unseal(self.objects[f"manifests/{digest.hex()}.json"], digest, ManifestScope(POOL, OWNER.address))


class Without(MutableMapping[str, bytes]):
    """A bucket's objects but one, which is gone."""

    def __init__(self, objects: dict[str, bytes], gone: str) -> None:
        self._objects, self._gone = objects, gone

    def __getitem__(self, key: str) -> bytes:
        if key == self._gone:
            raise KeyError(key)
        return self._objects[key]

    def __setitem__(self, key: str, value: bytes) -> None:
        self._objects[key] = value

    def __delitem__(self, key: str) -> None:
        del self._objects[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)


class CountedWork(ReinforcementWork):
    """Notes the files it was trained on; dies for good at its `fatal`-th inner step."""

    fatal, dead = -1, False

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.seen: list[str] = []

    def train(self, share: Any, number: int) -> int:
        if number == 0:
            self.fatal -= 1
            if self.fatal == -1:
                self.dead = True
                raise Killed
            self.seen += [item.hex() for item in share.own_items]
        return super().train(share, number)


@contextmanager
def sites_at_work(world: SiteTrainersWorld, home: Path, fatal: dict[int, int]) -> Iterator[list[CountedWork]]:
    """Two sites, each on a thread; `fatal`: of a site the inner step at which it dies."""
    stopping, works, threads = threading.Event(), [], []

    def work_at(site: Site) -> None:
        site.start(stopping.is_set)
        while not stopping.is_set():
            try:
                if site.turn():
                    time.sleep(0.005)
            except Killed:
                return

    for number in range(2):
        work = CountedWork(
            CONFIG, world.base, world.view.get, reinforcement_learners(CONFIG, world.base, Placement(), 5)
        )
        work.fatal = fatal.get(number, 1 << 30)
        works.append(work)
        site = Site(SiteExchange(world.view, world.run), SITES[number], work, home / f"site-{number}")
        threads.append(threading.Thread(target=work_at, args=(site,), daemon=True))
        threads[-1].start()
    try:
        yield works
    finally:
        stopping.set()
        for one in threads:
            one.join(30)


def test_two_sites_train_each_file_once_and_the_manifest_names_them(base: Path, tmp_path: Path) -> None:
    quorum = TRUSTED.model_copy(update={"minimum": 2})
    world = SiteTrainersWorld(base, tmp_path / "trainer", admission=quorum)
    with sites_at_work(world, tmp_path, {}) as works:
        made = start(world, sites=world.document)
        assert made.run() == EXIT_DONE
    trained = read_records(made.records.trained_path)
    assert [one["sequence"] for one in trained] == [0, 1, 2, 3, 4, 5]
    by_site = {address: [one["sha256"] for one in trained if one["site"] == address] for address in ADDRESSES}
    assert by_site == {address: by_site[address] for address in ADDRESSES if len(by_site[address]) == 3}
    assert [sorted(work.seen) for work in works] == [sorted(by_site[address]) for address in ADDRESSES]
    assert world.manifest(0).made_by is None, "nobody trained the base model"
    for step in (1, 2, 3):
        manifest = world.manifest(step)
        assert manifest.made_by is not None
        assert (manifest.made_by.run, manifest.made_by.outer_step) == (world.run.digest, step)
        assert manifest.made_by.sites == ADDRESSES
    steps = logged_steps(SiteExchange(world.view, world.run))
    assert [one.counted for one in steps] == [ADDRESSES] * 3
    assert {file: site for one in steps for file, site in one.site_of.items()} == {
        one["sha256"]: one["site"] for one in trained
    }
    metrics = made.records.metrics()
    assert [one["groups_used"] for one in metrics] == [4, 4, 4]
    assert all(one["grad_norm"] > 0 and one["entropy"] > 0 and one["tokens"] > 0 for one in metrics)
    published = model_tensors(load_model(made.publisher.encoder.folder(3), "float32").requires_grad_(True))
    weights = made.group.keeper.state.weights  # type: ignore[attr-defined]
    assert all(np.array_equal(published[name], value) for name, value in weights.items())
    assert len(set(world.steps)) == 4


def test_a_site_that_dies_in_an_outer_step_leaves_its_files_to_the_other(base: Path, tmp_path: Path) -> None:
    """Its time is up once the other has signed, however slow this machine is."""
    world = SiteTrainersWorld(base, tmp_path / "trainer")
    with sites_at_work(world, tmp_path, {1: 1}) as works:
        made = start(world, sites=world.document)
        keeper: Any = made.group.keeper  # type: ignore[attr-defined]
        keeper._waited = lambda: 1e9 if works[1].dead and ADDRESSES[0] in keeper.book.schedule.documents else 0.0
        while len(keeper.book.schedule.members | keeper.book.schedule.waiting) < 2:
            keeper.turn()
            time.sleep(0.01)
        assert made.run() == EXIT_DONE
    trained = read_records(made.records.trained_path)
    assert Counter(one["sequence"] for one in trained) == dict.fromkeys(range(6), 1)
    steps = {step: {one["site"] for one in trained if one["step"] == step} for step in (1, 2, 3)}
    assert steps == {1: set(ADDRESSES), 2: {ADDRESSES[0]}, 3: {ADDRESSES[0]}}
    made_by = [world.manifest(step).made_by for step in (1, 2, 3)]
    assert [one and one.sites for one in made_by] == [ADDRESSES, ADDRESSES[:1], ADDRESSES[:1]]
    assert [one["made_by"]["attempt"] > 0 for one in made.records.metrics()][1], "step 2 was begun again"
    assert len(works[1].seen) == 1


def test_a_file_that_no_site_can_have_is_left_out_of_its_step(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.sites.site.Patience", lambda seconds: Patience(0.0))
    world = SiteTrainersWorld(base, tmp_path / "trainer")
    gone = world.files[2].sha256
    world.view.objects = Without(world.objects, object_key("rollouts", gone))  # type: ignore[assignment]
    with sites_at_work(world, tmp_path, {}):
        made = start(world, sites=world.document)
        assert made.run() == EXIT_DONE
    trained = read_records(made.records.trained_path)
    assert [one["sequence"] for one in trained] == [0, 1, 2, 3, 4, 5]
    assert [one["sha256"] for one in trained if not one["site"]] == [gone.hex()]
    steps = logged_steps(SiteExchange(world.view, world.run))
    assert [len(one.site_of) for one in steps] == [2, 1, 2]
    assert gone.hex() not in steps[1].site_of
    assert len(set(world.steps)) == 4


def test_a_trainer_that_is_killed_anywhere_makes_the_same_steps(base: Path, tmp_path: Path) -> None:
    quorum = TRUSTED.model_copy(update={"minimum": 2})
    steady: list[bytes] = []
    for fuse in (None, 15, 24, 33):
        home = tmp_path / f"fuse-{fuse}"
        world = SiteTrainersWorld(base, home / "trainer", admission=quorum)
        with sites_at_work(world, home, {}):
            world.fuse, killed = fuse, False
            try:
                made = start(world, sites=world.document)
                made.run()
            except Killed:
                killed = True
            world.fuse = None
            if killed:
                made = start(world, sites=world.document)
                assert made.run() == EXIT_DONE
        assert killed == (fuse is not None)
        steady = steady or list(world.steps)
        assert world.steps == steady, f"after action {fuse}"
        assert [one["sequence"] for one in read_records(made.records.trained_path)] == [0, 1, 2, 3, 4, 5]
        assert all(one["site"] for one in read_records(made.records.trained_path))


def test_a_step_that_a_guard_refuses_stops_the_run(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise UnstableError("it is unstable")

    monkeypatch.setattr("trainer.train.check_step", refuse)
    world = SiteTrainersWorld(base, tmp_path / "trainer")
    with sites_at_work(world, tmp_path, {}):
        start(world, sites=world.document).run()
    assert world.sent == [0], "it is not published"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"work": "own"}, "data of their own"),
        ({"settings": SitesConfig(inner_steps=9, admission=TRUSTED)}, "9 inner steps"),
        ({"pool_config": "00" * 32}, "give trainer and sites the pool's own document"),
        ({"sites": (*ADDRESSES, str(SITES[2].address))}, "3 sites for 2 to 2 files"),
        ({"keeper": ADDRESSES[0]}, "the keeper of"),
        ({"pool": 2}, "is for"),
    ],
)
def test_a_run_that_does_not_fit_the_pool_is_refused(
    base: Path, tmp_path: Path, change: dict[str, Any], word: str
) -> None:
    world = SiteTrainersWorld(base, tmp_path / "trainer")
    world.document.write_text(world.run.model_copy(update=change).model_dump_json())
    with pytest.raises(ConfigError, match=word):
        start(world, sites=world.document)
