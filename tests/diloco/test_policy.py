"""A pool's trainer as the coordinator of two workers, over a bucket in memory: real files, learners, contributions and
log; and what it makes of workers' false metrics."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from diloco.config import DilocoConfig, DilocoRun
from diloco.inner import MAX_ITEMS
from diloco.log import MadeStep, read_step
from diloco.policy import DilocoPolicy, plausible
from diloco.state_machine import Phase
from diloco.tasks import RlTask, check_pool_run, model_tensors
from diloco.transport import Transport
from diloco.worker import Worker
from engines.loading import load_model
from localnet.diloco import logged_steps
from protocol.encoding import canonical_json, sha256_hex
from protocol.errors import ConfigError, UnreachableError
from protocol.identity import PoolId
from protocol.waits import wait_for
from storage.keys import object_key
from storage.weights.manifest import Manifest, ManifestScope, unseal
from tests.diloco.world import NAMES, TRUSTED, WORKERS, MemoryBucket
from tests.trainer.helpers import small_model
from tests.trainer.world import CONFIG, OWNER, POOLS, Killed, TrainersWorld, start
from trainer.checkpoint import read_checkpoint
from trainer.config import GuardConfig
from trainer.data.files import Loader
from trainer.exits import EXIT_DONE, UnstableError
from trainer.learner import Learner
from trainer.model.sharding import Placement
from trainer.reports.records import read_records
from trainer.train import Trainer, check_step

POOL = PoolId(31337, POOLS, 1)
ADDRESSES = tuple(NAMES[:2])


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "base")


class WorkersView(MemoryBucket):
    """The trainer's bucket as workers see it, whom the trainer's kills do not concern. They cannot have `gone`."""

    gone = ""

    def _read(self, key: str, limit: int) -> bytes | None:
        return None if key == self.gone else super()._read(key, limit)


class PolicyWorld(TrainersWorld):
    """Whose bucket has places too."""

    def __init__(self, base: Path, home: Path, **settings: Any) -> None:
        super().__init__(base, home / "trainer")
        self.root, self.view = home, WorkersView(self.objects)
        given = {"inner_steps": 1, "shards": 2, "window_seconds": 1000, "training_seconds": 1000, "admission": TRUSTED}
        self.run = DilocoRun(
            name="pool", chain_id=POOL.chain_id, pools=POOL.pools, pool=POOL.pool, coordinator=OWNER.address,
            workers=ADDRESSES, assigned=True, pool_config=CONFIG.digest.hex(),
            settings=DilocoConfig(**(given | settings)),
        )  # fmt: skip
        self.home.mkdir(parents=True, exist_ok=True)
        self.document = self.home / "run.json"
        self.document.write_text(self.run.model_dump_json())
        self.read_document, self.size = self.view.read_document, self.view.size

    def put_first(self, place: str, data: bytes) -> bool:
        self.act()
        return self.view.put_first(place, data)

    def train(self, **changes: Any) -> Trainer:
        """Let a trainer run to its end; return it."""
        made = start(self, run=self.document, **changes)
        assert made.run() == EXIT_DONE
        return made

    def manifest(self, step: int) -> Manifest:
        digest = self.steps[step]
        return unseal(self.objects[f"manifests/{digest.hex()}.json"], digest, ManifestScope(POOL, OWNER.address))


class CountedTask(RlTask):
    """Notes the files it was trained on; dies for good at its `fatal`-th inner step; reports metrics of its own."""

    fatal, dead = -1, False
    false: dict[str, float] | None = None

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.seen: list[str] = []

    def train(self, share: Any, number: int) -> int:
        if number == 0:
            self.fatal -= 1
            if self.fatal == -1:
                self.dead = True
                raise Killed
            self.seen += [item.hex() for item in share.files]
        return super().train(share, number)

    def metrics(self) -> dict[str, float]:
        found = super().metrics()
        if self.false is None:
            return found
        return {name: value for name, value in (found | self.false).items() if value == value}


@contextmanager
def workers_running(
    world: PolicyWorld, fatal: dict[int, int] | None = None, false: dict[str, float] | None = None
) -> Iterator[list[CountedTask]]:
    """Two workers, each on a thread; `fatal`: of a worker the inner step at which it dies; `false`: metrics that the
    second one makes up (NaN: leaves out)."""
    stopping, tasks, threads = threading.Event(), [], []

    def work(worker: Worker) -> None:
        worker.start(stopping.is_set)
        while not stopping.is_set():
            try:
                if worker.turn():
                    time.sleep(0.05)  # leaves the interpreter to whoever has work
            except Killed:
                return

    for number in range(2):
        train, temperature = CONFIG.train, CONFIG.work.temperature
        learner = Learner(world.base, train, temperature, CONFIG.model.dtype, Placement(), 5)
        task = CountedTask(CONFIG, learner, Loader(CONFIG, world.view.get, world.base))
        task.fatal = (fatal or {}).get(number, 1 << 30)
        task.false = false if number == 1 else None
        tasks.append(task)
        worker = Worker(Transport(world.view, world.run), WORKERS[number], task, world.root / f"worker-{number}")
        worker.timeouts = replace(worker.timeouts, window=0.0)
        threads.append(threading.Thread(target=work, args=(worker,), daemon=True))
        threads[-1].start()
    try:
        yield tasks
    finally:
        stopping.set()
        for one in threads:
            one.join(30)


def trained_by(made: Trainer) -> list[dict[str, Any]]:
    """Return the records of all files that were trained on, of which each is of another sequence number."""
    trained = read_records(made.records.trained_path)
    assert [one["sequence"] for one in trained] == [0, 1, 2, 3, 4, 5]
    return trained


def coordinator_of(made: Trainer) -> Any:
    return made.group.coordinator


QUORUM = TRUSTED.model_copy(update={"minimum": 2})


def test_two_workers_train_each_file_once_and_the_manifest_names_them(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the bucket fails as the trainer takes a committed step over."""
    read: list[int] = []

    def read_late(*given: Any) -> MadeStep:
        read.append(given[-1])
        if len(read) == 1:
            raise UnreachableError("no bucket")
        return read_step(*given)

    monkeypatch.setattr("diloco.policy.read_step", read_late)
    world = PolicyWorld(base, tmp_path, admission=QUORUM)
    with workers_running(world) as tasks:
        made = world.train()
    assert read == [0, 0, 1, 2]
    trained = trained_by(made)
    by_worker = {name: [one["sha256"] for one in trained if one["worker"] == name] for name in ADDRESSES}
    assert [len(files) for files in by_worker.values()] == [3, 3]
    assert [sorted(task.seen) for task in tasks] == [sorted(by_worker[name]) for name in ADDRESSES]
    assert world.manifest(0).made_by is None, "nobody trained the base model"
    for step in (1, 2, 3):
        made_by = world.manifest(step).made_by
        assert made_by is not None
        assert (made_by.run, made_by.outer_step, made_by.workers) == (world.run.digest, step, ADDRESSES)
    steps = logged_steps(Transport(world.view, world.run))
    assert [one.counted for one in steps] == [ADDRESSES] * 3
    assert {file: worker for one in steps for file, worker in one.worker_of.items()} == {
        one["sha256"]: one["worker"] for one in trained
    }
    metrics = made.records.metrics()
    assert [one["groups_used"] for one in metrics] == [4, 4, 4]
    assert all(one["grad_norm"] > 0 and one["entropy"] > 0 and one["tokens"] > 0 for one in metrics)
    published = model_tensors(load_model(made.publisher.folder(3), "float32").requires_grad_(True))
    assert all(np.array_equal(published[name], one) for name, one in coordinator_of(made).state.weights.items())
    assert len(set(world.steps)) == 4


def test_a_worker_that_dies_in_an_outer_step_leaves_its_files_to_the_other(base: Path, tmp_path: Path) -> None:
    """Its time is up once the other has signed, however slow this machine is."""
    world = PolicyWorld(base, tmp_path)
    with workers_running(world, {1: 1}) as tasks:
        made = start(world, run=world.document)
        coordinator = coordinator_of(made)

        def waited() -> float:
            schedule = coordinator.log.schedule
            collecting = schedule.phase == Phase.COLLECT and ADDRESSES[0] in schedule.documents
            return 1e9 if tasks[1].dead and collecting else 0.0

        coordinator._waited = waited
        while len(coordinator.log.schedule.members | coordinator.log.schedule.waiting) < 2:
            coordinator.turn()
            time.sleep(0.01)
        assert made.run() == EXIT_DONE
    trained = trained_by(made)
    steps = {step: {one["worker"] for one in trained if one["step"] == step} for step in (1, 2, 3)}
    assert steps == {1: set(ADDRESSES), 2: {ADDRESSES[0]}, 3: {ADDRESSES[0]}}
    made_by = [world.manifest(step).made_by for step in (1, 2, 3)]
    assert [one and one.workers for one in made_by] == [ADDRESSES, ADDRESSES[:1], ADDRESSES[:1]]
    assert [one["made_by"]["attempt"] > 0 for one in made.records.metrics()][1], "step 2 was begun again"
    assert len(tasks[1].seen) == 1


def test_a_file_that_no_worker_can_have_is_left_out_of_its_step(base: Path, tmp_path: Path) -> None:
    world = PolicyWorld(base, tmp_path)
    gone = world.files[2].sha256
    world.view.gone = object_key("rollouts", gone)
    with workers_running(world):
        trained = trained_by(world.train())
    assert [one["sha256"] for one in trained if not one["worker"]] == [gone.hex()]
    steps = logged_steps(Transport(world.view, world.run))
    assert [len(one.worker_of) for one in steps] == [2, 1, 2]
    assert gone.hex() not in steps[1].worker_of


def test_a_trainer_that_is_killed_anywhere_makes_the_same_steps(base: Path, tmp_path: Path) -> None:
    steady: list[bytes] = []
    for fuse in (None, 15, 24, 33):
        world, killed = PolicyWorld(base, tmp_path / f"fuse-{fuse}", admission=QUORUM), False
        with workers_running(world):
            world.fuse = fuse
            try:
                made = start(world, run=world.document)
                made.run()
            except Killed:
                killed = True
            world.fuse = None
            if killed:
                made = world.train()
        assert killed == (fuse is not None)
        steady = steady or list(world.steps)
        assert world.steps == steady, f"after action {fuse}"
        assert all(one["worker"] for one in trained_by(made))


def test_a_step_is_on_disk_before_the_workers_begin_the_next(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not go back: without its folder a trainer that is killed then could not publish it."""
    world, there = PolicyWorld(base, tmp_path, admission=QUORUM), dict[int, bool]()
    with workers_running(world):
        made = start(world, run=world.document)
        assign, publish = coordinator_of(made).assign, made._publish

        def assigned(files: list[str]) -> None:
            there.setdefault(made.step, made.publisher.folder(made.step).is_dir())  # the first of several tries
            assign(files)

        def late(step: int, *rest: Any) -> bytes | None:
            if step in (1, 2):
                wait_for("the next step", lambda: step in there, 60, poll=0.01)
            return publish(step, *rest)

        coordinator_of(made).assign = assigned
        monkeypatch.setattr(made, "_publish", late)
        assert made.run() == EXIT_DONE
    assert there == {0: True, 1: True, 2: True}


FALSE = {
    "a huge gradient norm": {"grad_norm": 1e9},
    "an impossible entropy": {"entropy": -1e9, "loss": 1e9},
    "no entropy": {"entropy": float("nan")},
    "a collapsed entropy": {"entropy": 0.0},
}


@pytest.mark.parametrize("name", FALSE)
def test_one_workers_false_metrics_stop_nothing(
    name: str, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.train._LEAST_HISTORY", 1)  # the guards compare from the second step on
    world = PolicyWorld(base, tmp_path, admission=QUORUM)
    with workers_running(world, false=FALSE[name]):
        made = world.train(guards=GuardConfig(entropy_floor=0.01))
    metrics = made.records.metrics()
    assert len(metrics) == 3
    assert all(one["grad_norm"] < 100 and abs(one["loss"]) < 100 for one in metrics), "what is shown is plausible"


def test_a_collapse_that_all_workers_report_still_stops_the_run() -> None:
    """The guard sees the largest of their entropies."""
    earlier: Any = [{"grad_norm": 1.0, "entropy": 0.5, "tokens": 10}] * 6
    reports = [{"entropy": 0.001, "tokens": 1.0}, {"entropy": 0.002, "tokens": 1.0}]
    assert plausible(reports, "entropy") == [0.001, 0.002]
    metrics: Any = SimpleNamespace(groups_used=1, loss=0.0, entropy=0.002, grad_norm=1.0, step=6)
    with pytest.raises(UnstableError, match="an entropy of"):
        check_step(GuardConfig(), metrics, earlier)
    assert plausible([{"entropy": 0.5}], "entropy") == [], "of a worker that trained on nothing"


def test_a_step_that_a_guard_refuses_stops_the_run(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise UnstableError("it is unstable")

    monkeypatch.setattr("trainer.train.check_step", refuse)
    world = PolicyWorld(base, tmp_path)
    with workers_running(world):
        start(world, run=world.document).run()
    assert world.sent == [0], "it is not published"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"assigned": False}, "data of their own"),
        ({"settings": DilocoConfig(inner_steps=9, admission=TRUSTED)}, "9 inner steps"),
        ({"pool_config": "00" * 32}, "give trainer and workers the pool's own document"),
        ({"workers": tuple(NAMES[:3])}, "3 workers for 2 to 2 files"),
        ({"coordinator": ADDRESSES[0]}, "the coordinator of"),
        ({"pool": 2}, "is for"),
    ],
)
def test_a_run_that_does_not_fit_the_pool_is_refused(
    base: Path, tmp_path: Path, change: dict[str, Any], word: str
) -> None:
    world = PolicyWorld(base, tmp_path)
    world.document.write_text(world.run.model_copy(update=change).model_dump_json())
    with pytest.raises(ConfigError, match=word):
        start(world, run=world.document)


@pytest.mark.parametrize(("files", "fits"), [(2, True), (1, False), (MAX_ITEMS + 1, False)])
def test_a_run_fits_its_pool(files: int, fits: bool) -> None:
    pool = CONFIG.model_copy(update={"train": CONFIG.train.model_copy(update={"files_per_step": files})})
    run = DilocoRun(
        name="a", coordinator=OWNER.address, workers=ADDRESSES, assigned=True, pool_config=pool.digest.hex(),
        settings=DilocoConfig(inner_steps=1, admission=TRUSTED),
    )  # fmt: skip
    with nullcontext() if fits else pytest.raises(ConfigError, match=f"2 workers for {files} to {files} files"):
        check_pool_run(run, pool)


def policy_at(home: Path, outer: int, run: DilocoRun) -> DilocoPolicy:
    """Of a coordinator that is at an outer state, without a policy."""
    coordinator: Any = SimpleNamespace(start=lambda: None, status=dict, state=SimpleNamespace(step=outer), run=run)
    policy: Any = None
    return DilocoPolicy(coordinator, policy, Placement(), home)


def test_checkpoints_of_another_kind_or_run_or_place_are_refused(base: Path, tmp_path: Path) -> None:
    run, folder = PolicyWorld(base, tmp_path).run, tmp_path / "step-000003"
    made = policy_at(tmp_path, 4, run)
    made.step = made.outer = 3
    made.start_checkpoint(folder, {"consumed": []})
    assert policy_at(tmp_path, 4, run).load_checkpoint(folder) == {"consumed": []}
    with pytest.raises(ConfigError, match="at outer step 9, the checkpoint at 3"):
        policy_at(tmp_path, 9, run).load_checkpoint(folder)
    with pytest.raises(ConfigError, match="another DiLoCo run"):
        policy_at(tmp_path, 4, run.model_copy(update={"name": "other"})).load_checkpoint(folder)
    with pytest.raises(ConfigError, match="DiLoCo"):
        read_checkpoint(folder, None, [], Placement().ranks)
    alone = {"version": 2, "step": 3, "updates": 9, "extra": {}}
    sealed = {"state": alone, "sha256": sha256_hex(canonical_json(alone))}
    (folder / "state.json").write_bytes(canonical_json(sealed))
    with pytest.raises(ConfigError, match="a trainer without one"):
        policy_at(tmp_path, 4, run).load_checkpoint(folder)
