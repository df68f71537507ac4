"""The trainer of a pool: its guards, kills, full disks, unusable files, and its ranks."""

import math
import resource
import shutil
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.resume import run as run_resume
from localnet.plan import DEMO_ENVIRONMENT
from protocol.api.work import StepRequest
from protocol.config import EvaluationConfig, TrainConfig
from protocol.errors import IntegrityError, UnreachableError
from protocol.identity import PoolId
from protocol.verdict import Code
from protocol.waits import wait_for
from tests.trainer import world as world_module
from tests.trainer.crew import on_ranks, outcomes
from tests.trainer.world import (
    FILES,
    NODE,
    OWNER,
    POOLS,
    STRANGER,
    Killed,
    QuarterSolver,
    TrainersWorld,
    check_kills,
    config_of,
    killed,
    start,
    steady_steps,
    trained,
)
from trainer.checkpoint import checkpoints
from trainer.config import GuardConfig, MemoryConfig, ParallelConfig
from trainer.data.files import StepFiles
from trainer.distributed import NonZeroRank, Ranks
from trainer.exits import EXIT_DONE, EXIT_LOST, EXIT_STOPPED, EXIT_UNSTABLE, UnstableError
from trainer.learner import start_learners
from trainer.model.sharding import make_placement
from trainer.reports.records import Records, read_records
from trainer.reports.step_metrics import StepMetrics
from trainer.train import LocalSteps, check_step

GUARDS = GuardConfig(norm_factor=10, norm_window=6, entropy_share=0.1)


def step(number: int, **changes: Any) -> StepMetrics:
    """An ordinary step of the run, but for `changes`."""
    values: dict[str, Any] = dict.fromkeys(StepMetrics.__dataclass_fields__, 0)
    ordinary = {"step": number, "loss": 0.1, "entropy": 1.0, "grad_norm": 0.5, "groups_used": 4, "tokens": 100}
    return StepMetrics(**values | ordinary | changes)


def records(count: int, **changes: Any) -> list[dict[str, Any]]:
    return [asdict(step(number, **changes)) for number in range(1, count + 1)]


NO_SIGNAL = {"grad_norm": 0.0, "groups_used": 0, "tokens": 0, "entropy": 0.0}
WINDOW = records(6, grad_norm=9.0) + records(6) + records(3, **NO_SIGNAL)
FALLING = [asdict(step(number, entropy=0.8**number)) for number in range(40)]
FLOOR = GUARDS.model_copy(update={"entropy_floor": 0.05})


@pytest.mark.parametrize(
    ("guards", "last", "earlier", "sign"),
    [
        *((GUARDS, {name: math.nan}, [], f"{name} nan") for name in ("loss", "entropy")),
        *((GUARDS, {"grad_norm": value}, [], f"gradient norm {value}") for value in (math.nan, math.inf)),
        (GUARDS, {"grad_norm": 5.1}, records(8), r"a gradient norm of 5\.1, 10 times that of earlier steps"),
        (GUARDS, {"grad_norm": 4.9}, records(8), ""),
        # Six steps of 0.5 after larger ones; steps whose every group was dropped have no gradient.
        (GUARDS, {"grad_norm": 5.1}, WINDOW, r"a gradient norm of 5\.1, 10 times"),
        (GUARDS, {"grad_norm": 4.9}, WINDOW, ""),
        (GUARDS, {"entropy": 0.09}, records(8), "an entropy of 0.09, after 1 in the steps before"),
        *((GUARDS, {"entropy": 0.8**number}, FALLING[:number], "") for number in range(1, 40)),
        (FLOOR, {"entropy": 0.04}, records(1, entropy=0.06), r"an entropy of 0\.04, below `guards.entropy_floor`"),
        # The first steps have nothing to be compared with.
        *((GUARDS, {"grad_norm": 500.0, "entropy": 0.001}, records(count), "") for count in range(5)),
        (GUARDS, NO_SIGNAL, records(8), ""),
    ],
)
def test_guards_stop_a_step_that_stands_out(
    guards: GuardConfig, last: dict[str, Any], earlier: list[dict[str, Any]], sign: str
) -> None:
    if not sign:
        return check_step(guards, step(41, **last), earlier)
    hint = "look at the rollouts of its files, then name bad ones in `exclude`"
    said = f"step 41 has {sign}.*; it is not published, .* step 40 is kept; {hint}"
    with pytest.raises(UnstableError, match=said):
        check_step(guards, step(41, **last), earlier)


def test_a_run_trains_publishes_and_reports_every_step(base: Path, tmp_path: Path) -> None:
    """It waits an outage of the bucket out."""
    world = TrainersWorld(base, tmp_path)
    world.outages = 2
    made = start(world)
    assert made.run() == EXIT_DONE
    assert world.outages == 0
    assert world.sent == [0, 1, 2, 3]
    assert trained(made) == [0, 1, 2, 3, 4, 5]
    consumed = {step: report.consumed for step, report in world.reports.items()}
    assert consumed == {0: [], 1: [0, 1], 2: [2, 3], 3: [4, 5]}
    measured = [world.reports[step].evaluation for step in range(4)]
    assert [signed and signed.evaluation.results[0].average for signed in measured] == [0.25, None, None, 0.25]
    for step, signed in enumerate(measured):
        if signed:
            signed.check(PoolId(31337, POOLS, 1), OWNER.address)
            assert bytes.fromhex(signed.evaluation.manifest) == world.steps[step]
            assert made.records.evaluations()[step] == signed
    assert set(world.reports[1].timings) == {"wait", "train", "publish"}
    assert len(set(world.steps)) == 4, "every step has other weights"
    metrics = made.records.metrics()
    assert [one["groups_used"] for one in metrics] == [4, 4, 4]
    assert [one["staleness"] for one in metrics] == [{"0": 2}, {"1": 2}, {"2": 2}]
    assert all(one["rewards_by_environment"] == {DEMO_ENVIRONMENT.name: 0.5} for one in metrics)
    assert [(one["node"], one["engine"]) for one in metrics[0]["mismatches"]] == [(NODE, "test")]
    assert all(0 <= one["idle_share"] < 1 for one in metrics)
    assert "muster_trainer_step 3.0" in (tmp_path / "metrics.prom").read_text()
    told = world.reports[3].metrics
    assert told["staleness_mean"] == 2.0
    assert told["mismatch"] == metrics[2]["mismatch"]


def test_a_run_ends_with_the_reward_to_stop_at_and_stays_ended_after_a_kill(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for files that nobody makes when the evaluation comes, and has steps left."""
    goals = EvaluationConfig(every=1, stop_at=0.25)
    endless = world_module.CONFIG.model_copy(update={"evaluation": goals, "train": TrainConfig(files_per_step=2)})
    monkeypatch.setattr(world_module, "CONFIG", endless)
    monkeypatch.setattr(QuarterSolver, "least_step", 2)
    world = TrainersWorld(base, tmp_path)
    assert not killed(world, 40)
    again = start(world)
    assert again.run() == EXIT_DONE
    last = max(world.reports)
    assert 2 <= last <= FILES / 2
    assert [report.final for _, report in sorted(world.reports.items())] == [False] * last + [True]
    assert len(world.steps) == last + 1
    shutil.rmtree(tmp_path / "checkpoints")  # the next one is behind the records, and knows the evaluation
    told = list[bool]()
    report = world.report_step

    def listen(body: StepRequest) -> None:
        report(body)
        told.append(world.reports[last].final)

    monkeypatch.setattr(world, "report_step", listen)
    again = start(world)
    assert again.run() == EXIT_DONE
    assert again.step == last == len(world.steps) - 1
    assert told
    assert all(told), "leases would be granted again"


def test_a_kill_at_any_action_changes_nothing(base: Path, tmp_path: Path) -> None:
    check_kills(base, tmp_path, range(0, 60, 4))


def test_a_step_is_published_while_the_next_one_trains(base: Path, tmp_path: Path) -> None:
    """The bucket takes no manifest before the learner is a step further; one full checkpoint is written, at the end."""

    class SlowBucket(TrainersWorld):
        def put(self, key: str, data: bytes) -> bool:
            if key.startswith("manifests/") and 0 < len(self.steps) < 3:
                wait_for("the next step", lambda: made.step > len(self.steps) or None, 60, poll=0.01)
            return super().put(key, data)

    world = SlowBucket(base, tmp_path)
    made = start(world)
    assert made.run() == EXIT_DONE
    assert world.sent == [0, 1, 2, 3]
    assert [path.name for path in checkpoints(tmp_path / "checkpoints")] == ["step-000003"]
    assert start(world).run() == EXIT_DONE
    assert world.sent == [0, 1, 2, 3]


def test_what_is_repeated_in_other_arithmetic_stays_as_it_was_published(base: Path, tmp_path: Path) -> None:
    """Rows of another size sum in another order, as another number of ranks does."""

    world = UntilStep2(base, tmp_path)
    assert not killed(world, 1 << 20)
    published = list(world.steps)
    assert len(published) == 3
    assert not checkpoints(tmp_path / "checkpoints")
    for path in (tmp_path / "policies").glob("step-*"):
        shutil.rmtree(path)
    again = start(world, memory=MemoryConfig(row_tokens=16))
    assert again.step == 0
    assert again.run() == EXIT_DONE
    assert world.steps[:3] == published
    assert world.sent == [0, 1, 2, 3]


class UntilStep2(TrainersWorld):
    """Kills the trainer once step 2 is on chain."""

    def ensure_step(self, pool: int, step: int, manifest: bytes, root: bytes) -> int:
        block = super().ensure_step(pool, step, manifest, root)
        self.fuse = 0 if step == 2 else self.fuse
        return block


def test_a_lost_file_is_not_replaced_in_the_step_that_a_kill_repeats(base: Path, tmp_path: Path) -> None:
    """The file in its place would be trained on again in the step that its record names."""
    world = UntilStep2(base, tmp_path)
    assert not killed(world, 1 << 20)
    del world.objects[f"rollouts/{world.files[0].sha256.hex()}.parquet"]
    made = start(world, missing_seconds=0.0)
    assert made.run() == EXIT_DONE
    assert world.sent == [0, 1, 2, 3]
    assert trained(made) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("when", ["before the record", "before the export"])
def test_a_full_disk_holds_a_step_up_and_loses_nothing(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    world, unlimited = TrainersWorld(base, tmp_path / "full"), resource.getrlimit(resource.RLIMIT_FSIZE)
    made, polls = start(world), list[int]()
    record, begin = made.checkpoint, made._begin_publishing

    def fill(moment: str, room: int) -> None:
        if when == moment and made.step == 2 and not polls:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, unlimited[1]))

    def checkpoint(*arguments: Any) -> bool:
        made._settle()
        fill("before the record", 16)
        return record(*arguments)

    def begin_publishing() -> None:
        fill("before the export", 1 << 16)  # for the small files
        begin()

    def poll(_: object) -> None:
        if resource.getrlimit(resource.RLIMIT_FSIZE) != unlimited:
            polls.append(made.step)
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)

    monkeypatch.setattr("trainer.train._DISK_RETRY_SECONDS", 0.001)
    monkeypatch.setattr(LocalSteps, "poll", poll)
    monkeypatch.setattr(made, "checkpoint", checkpoint)
    monkeypatch.setattr(made, "_begin_publishing", begin_publishing)
    try:
        assert made.run() == EXIT_DONE
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert polls, "it waited"
    assert world.steps == steady_steps(base, tmp_path / "steady")
    assert trained(made) == [0, 1, 2, 3, 4, 5]


def test_a_stop_does_not_wait_for_an_upload_that_hangs(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed, waited = threading.Event(), list[str]()

    class HangingBucket(TrainersWorld):
        def put(self, key: str, data: bytes) -> bool:
            if len(self.steps) == 2 and not freed.is_set():
                made.stop()
                if not freed.wait(60):
                    waited.append(key)
                raise UnreachableError("no bucket")
            return super().put(key, data)

    monkeypatch.setattr("trainer.train._LAST_SECONDS", 0.01)
    world = HangingBucket(base, tmp_path)
    made = start(world)
    assert made.run() == EXIT_STOPPED
    assert not waited
    freed.set()
    assert start(world).run() == EXIT_DONE
    assert world.sent == [0, 1, 2, 3]


def test_a_step_without_files_is_repeated_without_files(base: Path, tmp_path: Path) -> None:
    made = start(TrainersWorld(base, tmp_path))
    assert made.files.batch(1, set()) != StepFiles([], [])
    made.records.write(records(1)[0], [])
    assert made.files.batch(1, set()) == StepFiles([], [])


def test_what_the_chain_forgot_is_published_and_what_a_damaged_checkpoint_held_is_made_again(
    base: Path, tmp_path: Path
) -> None:
    world = TrainersWorld(base, tmp_path)
    assert start(world, checkpoint_seconds=0.0).run() == EXIT_DONE
    steps = list(world.steps)
    del world.steps[2:]
    assert start(world).run() == EXIT_DONE
    assert world.steps == steps
    assert world.sent == [0, 1, 2, 3, 2, 3]
    (checkpoints(tmp_path / "checkpoints")[-1] / "__0_0.distcp").write_bytes(b"")
    again = start(world)
    assert again.step == 2
    assert again.run() == EXIT_DONE
    assert world.steps == steps
    assert len(read_records(again.records.trained_path)) == 6
    world.steps[1] = bytes(32)
    with pytest.raises(IntegrityError, match="not the one this trainer made"):
        start(world).run()


def test_unusable_files_are_passed_over(base: Path, tmp_path: Path) -> None:
    world = TrainersWorld(base, tmp_path)
    first, second = (f"rollouts/{one.sha256.hex()}.parquet" for one in world.files[:2])
    world.objects[first] = b"PAR1 nonsense PAR1"
    del world.objects[second]
    made = start(world, missing_seconds=0.0)
    assert made.run() == EXIT_DONE
    assert trained(made) == [2, 3, 4, 5, 6, 7]
    assert len(made.files.refused) == 2


def unstable_with(node: str) -> Callable[..., None]:
    """A guard that every step with a file of this node trips; any step, if it is empty."""

    def check(guards: GuardConfig, metrics: StepMetrics, earlier: object) -> None:
        if not node or any(one.node == node for one in metrics.mismatches):
            raise UnstableError(f"step {metrics.step} is unstable")

    return check


def test_a_file_that_makes_a_step_unstable_is_left_out_and_does_not_stop_the_pool(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sends it, before the first checkpoint or after; the weights are those of a run that never saw it."""
    worlds = [TrainersWorld(base, tmp_path / name) for name in ("attacked", "calm")]
    for world in worlds:
        for number in (1, 4):
            world.files[number] = world.make_file(number, STRANGER)
    attacked, calm = worlds
    bad = [calm.files[number].sha256.hex() for number in (1, 4)]
    assert start(calm, exclude=tuple(bad)).run() == EXIT_DONE
    monkeypatch.setattr("trainer.train.check_step", unstable_with(STRANGER))
    made = start(attacked)
    assert made.run() == EXIT_DONE
    assert made.files.refused == set(bad)
    assert start(attacked).files.refused == set(bad), "it is not tried again after a restart"
    assert attacked.steps == calm.steps
    assert trained(made) == [0, 2, 3, 5, 6, 7]


@pytest.mark.parametrize("bad", [(0,), (63,), (17, 40)])
def test_bad_files_are_found_by_halving(tmp_path: Path, bad: tuple[int, ...]) -> None:
    passes: list[int] = []

    def train_step(groups: list[Any]) -> Any:
        passes.append(len(groups))
        return groups

    def check(groups: Any, _: object) -> None:
        if set(groups) & set(bad):
            raise UnstableError("unstable")

    records, rewound, refused = Records(tmp_path), list[int](), list[int]()
    trainer: Any = SimpleNamespace(
        step=3,
        group=SimpleNamespace(train_step=train_step),
        check=check,
        records=records,
        files=SimpleNamespace(refuse=lambda sub, _: refused.append(sub.number)),
        rewind=rewound.append,
    )
    subs: list[Any] = [SimpleNamespace(number=n, sha256=bytes([n]), node="") for n in range(64)]
    groups_of: list[Any] = [[n] for n in range(64)]
    assert LocalSteps(trainer).train_step(StepFiles(subs, groups_of)) is None
    assert refused == list(bad)
    assert records.refused() == {bytes([n]).hex() for n in bad}
    assert len(passes) <= 1 + 12 * len(bad)
    assert set(rewound) == {3}


def test_training_that_is_unstable_whatever_the_files_stops(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.train.check_step", unstable_with(""))
    world = TrainersWorld(base, tmp_path)
    assert start(world).run() == EXIT_UNSTABLE
    assert world.sent == [0]


def test_files_wait_until_they_are_deep_and_one_that_is_no_longer_due_is_not_kept_in_memory(
    base: Path, tmp_path: Path
) -> None:
    """Else whoever sends what is loaded and then disputed, or comes too late, fills it."""
    world = TrainersWorld(base, tmp_path)
    world.files = [replace(one, decided_block=world.head - 1) for one in world.files]
    made = start(world)
    made.publish_step()
    assert made.files.due(1, set()) == []
    world.head += 1
    first, *others = world.files
    assert [one.sequence for one in made.files.due(1, set())] == [0, 1]
    world.files[0] = refused = replace(first, code=int(Code.REJECT_WEIGHTS))
    assert [one.sequence for one in made.files.due(1, set())] == [1, 2]
    world.files = [first, *(replace(one, decided_block=world.head) for one in others)]
    assert made.files.batch(1, set()) is None
    assert made.files.awaited.ready == 1
    world.files[0] = refused
    assert made.files.batch(1, set()) is None
    world.files[0] = first
    made.files.due(1, set())
    assert made.files.awaited.ready == 0, "it has to be fetched again"


def run(ranks: Ranks, base: Path, home: Path, fuse: int | None = None) -> tuple[int, list[int], list[int]]:
    """Exit code, steps sent to the chain, and files trained, in order; the first rank dies when the fuse has burnt."""
    placement = make_placement(ParallelConfig(), MemoryConfig(), "cpu", ranks)
    if ranks.rank:
        ranks.shorten_wait(5.0)
        return NonZeroRank(placement.ranks, lambda: start_learners(config_of(base, home), placement)).run(), [], []
    world = TrainersWorld(base, home)
    world.fuse = fuse
    made = start(world, placement)
    return made.run(), world.sent, trained(made)


def test_the_others_end_when_rank_0_fails_and_all_resume_together(base: Path, tmp_path: Path) -> None:
    (failed, text), (_, other) = outcomes(2, run, base, tmp_path, 12)
    assert failed
    assert Killed.__name__ in text
    assert other[0] == EXIT_LOST
    first, second = on_ranks(2, run, base, tmp_path, stay=False)
    assert (first[0], first[2]) == (EXIT_DONE, [0, 1, 2, 3, 4, 5])
    assert second[0] == EXIT_DONE


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_twenty_kills_change_no_bit_and_train_no_file_twice() -> None:
    found = run_resume(quick=False, progress=print)
    assert found["kills"] == 20
    assert found["bit_equal"]
    assert found["repeated"] == 0
    assert set(found["ranks"]) == {"2->1", "2->4", "1->2", "4->2"}
    assert max(found["ranks"].values()) < 1e-5
