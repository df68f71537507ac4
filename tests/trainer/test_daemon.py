"""The trainer's process, killed between any two of its actions: same weights, every file once, every step once.

Chain, bucket and service are kept in memory; files, learner, checkpoints and records are the real ones.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from eth_account import Account

from chain.records import Pool, Step, Submission
from chain.state import State
from demo.pool import DEMO_TASK
from protocol.api.evaluation import SetResult
from protocol.api.work import HeartbeatRequest, StepRequest
from protocol.config import PoolConfig, WorkConfig
from protocol.errors import IntegrityError, UnreachableError
from protocol.identity import PoolId, WorkId
from protocol.models.tokenizer import load_tokenizer
from protocol.rollouts.file import write
from protocol.rollouts.schema import Rollout, RolloutHeader
from protocol.seeds import Work
from protocol.tasks.environment import Environment
from protocol.tasks.rewards import float32
from protocol.training import TrainConfig
from protocol.verdict import Code
from runtime.process import KeyConfig
from storage.keys import MissingObjectError
from storage.settings import S3Settings
from tests.chain.game import terms
from tests.trainer.helpers import small_model
from trainer.collaborators import TrainerCollaborators
from trainer.config import GuardConfig, TrainerConfig
from trainer.daemon import Trainer
from trainer.exits import EXIT_DONE, EXIT_UNSTABLE
from trainer.guards import UnstableError
from trainer.model.sharding import Placement
from trainer.state.checkpoint import checkpoints
from trainer.step_metrics import StepMetrics
from trainer.tiny_model import tiny_model_config

OWNER = Account.from_key(b"\x07" * 32)
NODE = Account.from_key(b"\x08" * 32).address
STRANGER = Account.from_key(b"\x09" * 32).address
POOLS = "0x" + "00" * 19 + "99"
CONFIG = PoolConfig(
    name="test",
    model=tiny_model_config(),
    task=DEMO_TASK,
    work=WorkConfig(problems_per_file=2, samples_per_problem=2, max_new_tokens=8, max_prompt_tokens=32),
    train=TrainConfig(steps=3, files_per_step=2),
)
TERMS = terms()
FILES = 8


class Killed(BaseException):
    """A kill -9: nothing catches it."""


class TrainersWorld:
    """Everything outside the trainer; it outlives its kills. `fuse` counts actions down to a kill, `outages` failures
    of the bucket."""

    def __init__(self, base: Path, home: Path) -> None:
        self.base, self.home = base, home
        self.objects: dict[str, bytes] = {}
        self.steps: list[bytes] = []
        self.sent: list[int] = []
        self.reports: dict[int, StepRequest] = {}
        self.fuse: int | None = None
        self.outages = 0
        self.files = [self.make_file(number) for number in range(FILES)]
        self.head = 1000

    def act(self) -> None:
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                raise Killed

    def state(self) -> State:
        state = State(head=self.head)
        made = [Step(number, digest, bytes(32), 5, 5, 0, "") for number, digest in enumerate(self.steps)]
        state.pools[1] = Pool(1, OWNER.address, CONFIG.digest, TERMS, 0, 0, steps=made, sequences=list(range(FILES)))
        state.submissions = {(1, one.sequence): one for one in self.files}
        return state

    def ensure_step(self, pool: int, step: int, manifest: bytes, root: bytes) -> int:
        self.act()
        assert step == len(self.steps)
        self.steps.append(manifest)
        self.sent.append(step)
        self.act()
        return 7

    # ---- Bucket
    def put(self, key: str, data: bytes) -> bool:
        self.act()
        if self.outages:
            self.outages -= 1
            raise UnreachableError("no bucket")
        self.objects[key] = data
        return True

    def get(self, key: str, limit: int = 1 << 30) -> bytes:
        self.act()
        if key not in self.objects:
            raise MissingObjectError(f"no object {key}")
        return self.objects[key]

    # ---- Service
    def report_step(self, report: StepRequest) -> None:
        self.act()
        self.reports[report.step] = report

    def heartbeat(self, beat: HeartbeatRequest) -> None:
        pass

    def make_file(self, number: int, node: str = NODE) -> Submission:
        book, tokenizer = Environment.of(CONFIG, self.base), load_tokenizer(self.base)
        rows = []
        for slot in range(2):
            seed = 10 * number + slot
            for sample, answer in enumerate((book.problem(seed).answer, "x")):
                output = (*tokenizer.encode(f"</think>{answer}"), book.eos_ids[0])
                score = book.score(seed, 0, output)
                logs = tuple(float32(-1.5) for _ in output)
                rows.append(
                    Rollout(
                        slot, sample, seed, 0, book.prompt(seed, 0), output, 0, logs, *vars_of(score), (b"p" * 258,)
                    )
                )
        work = Work(WorkId(PoolId(31337, POOLS, 1), node, 0, number), bytes(32), bytes(32))
        header = RolloutHeader(work, "test", "float32", "cpu")
        data = write(header, rows)
        digest = hashlib.sha256(data).digest()
        self.objects[f"rollouts/{digest.hex()}.parquet"] = data
        return Submission(
            1, number, node, 0, number, 20, 4, digest, digest, 5, 0, "", code=int(Code.ACCEPT), decided_block=9
        )


class PoolInMemory:
    """What the trainer uses of a PoolClient; `suite.pools` is the world itself."""

    def __init__(self, world: TrainersWorld) -> None:
        self._world, self.home = world, world.home
        self.pool_id = PoolId(31337, POOLS, 1)
        self.suite = SimpleNamespace(pools=world)

    @property
    def state(self) -> State:
        return self._world.state()

    def refresh(self) -> State:
        return self._world.state()

    def pool(self) -> Pool:
        return self._world.state().pools[1]

    def pool_config(self) -> PoolConfig:
        return CONFIG

    def close(self) -> None:
        pass


class QuarterSolver:
    """Measures without a model."""

    def __call__(self, pool: PoolConfig, folder: Path, step: int) -> list[SetResult]:
        assert (folder / "config.json").is_file()
        return [SetResult(name="held-out", problems=4, samples=1, average=0.25, error=0.0, length=3.0, seconds=0.0)]

    def stop(self) -> None:
        pass


class MortalTrainer(Trainer):
    """May be killed before and after a checkpoint."""

    def __init__(
        self, world: TrainersWorld, config: TrainerConfig, outside: TrainerCollaborators, placement: Placement | None
    ) -> None:
        super().__init__(config, outside, placement)
        self._world = world

    def checkpoint(self, record: dict[str, Any], files: list[dict[str, Any]]) -> bool:
        self._world.act()
        done = super().checkpoint(record, files)
        self._world.act()
        return done


def config_of(base: Path, home: Path) -> TrainerConfig:
    """Of a trainer in a world with these folders."""
    return TrainerConfig(
        home=home, deployment=Path(), rpc=("http://127.0.0.1:1",), pool=1, orchestrator="", cache=Path(),
        key=KeyConfig(keystore=Path()), s3=S3Settings(endpoint="http://127.0.0.1:1", bucket="pool", credentials=Path()),
        base=base, seed=5, poll_seconds=0.001, heartbeat_seconds=1,
    )  # fmt: skip


def start(world: TrainersWorld, placement: Placement | None = None, **changes: object) -> Trainer:
    """A trainer in a world."""
    config = config_of(world.base, world.home).model_copy(update=changes)
    fakes: Any = {"client": PoolInMemory(world), "bucket": world, "orchestrator": world, "account": OWNER}
    outside = TrainerCollaborators(**fakes, carrier=None, evaluator=QuarterSolver())
    return MortalTrainer(world, config, outside, placement)


def vars_of(score: Any) -> tuple[float, float, float]:
    return score.task_reward, score.length_penalty, score.reward


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "base")


def test_a_run_trains_publishes_and_reports_every_step(base: Path, tmp_path: Path) -> None:
    world = TrainersWorld(base, tmp_path)
    made = start(world)
    assert made.run() == EXIT_DONE
    assert world.sent == [0, 1, 2, 3]
    assert [one["sequence"] for one in made.records.trained()] == [0, 1, 2, 3, 4, 5]
    assert {step: report.consumed for step, report in world.reports.items()} == {
        0: [],
        1: [0, 1],
        2: [2, 3],
        3: [4, 5],
    }
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
    assert all(one["rewards_by_task"] == {DEMO_TASK.name: 0.5} for one in metrics)
    assert [(one["node"], one["engine"]) for one in metrics[0]["mismatches"]] == [(NODE, "test")]
    assert all(0 <= one["idle_share"] < 1 for one in metrics)
    assert "muster_trainer_step 3.0" in (tmp_path / "metrics.prom").read_text()
    told = world.reports[3].metrics
    assert told["staleness_mean"] == 2.0
    assert told["mismatch"] == metrics[2]["mismatch"]


def test_a_kill_at_any_action_changes_nothing(base: Path, tmp_path: Path) -> None:
    steady = TrainersWorld(base, tmp_path / "steady")
    assert start(steady).run() == EXIT_DONE
    for fuse in range(0, 60, 4):
        world = TrainersWorld(base, tmp_path / f"fuse-{fuse}")
        world.fuse = fuse
        try:
            start(world).run()
            done = True
        except Killed:
            done = False
        world.fuse = None
        again = start(world)
        assert again.run() == EXIT_DONE
        assert world.steps == steady.steps, f"after action {fuse}"
        assert world.sent == [0, 1, 2, 3]
        assert [one["sequence"] for one in again.records.trained()] == [0, 1, 2, 3, 4, 5]
        assert world.reports[3].consumed == [4, 5]
        if done:
            break


def test_steps_that_the_chain_forgot_are_published_again(base: Path, tmp_path: Path) -> None:
    world = TrainersWorld(base, tmp_path)
    made = start(world)
    assert made.run() == EXIT_DONE
    steps = list(world.steps)
    del world.steps[2:]
    assert start(world).run() == EXIT_DONE
    assert world.steps == steps
    assert world.sent == [0, 1, 2, 3, 2, 3]


def test_other_weights_on_chain_stop_the_trainer(base: Path, tmp_path: Path) -> None:
    world = TrainersWorld(base, tmp_path)
    world.steps.append(bytes(32))
    with pytest.raises(IntegrityError, match="not the one this trainer made"):
        start(world).run()


def test_a_damaged_checkpoint_is_passed_over_and_its_step_made_again(base: Path, tmp_path: Path) -> None:
    world = TrainersWorld(base, tmp_path)
    assert start(world).run() == EXIT_DONE
    steps = list(world.steps)
    newest = checkpoints(tmp_path / "checkpoints")[-1]
    (newest / "__0_0.distcp").write_bytes(b"")
    again = start(world)
    assert again.learner.step == 2
    assert again.run() == EXIT_DONE
    assert world.steps == steps
    assert len(again.records.trained()) == 6


def test_unusable_files_are_passed_over(base: Path, tmp_path: Path) -> None:
    world = TrainersWorld(base, tmp_path)
    first, second = (f"rollouts/{one.sha256.hex()}.parquet" for one in world.files[:2])
    world.objects[first] = b"PAR1 nonsense PAR1"
    del world.objects[second]
    made = start(world, missing_seconds=0.0)
    assert made.run() == EXIT_DONE
    assert [one["sequence"] for one in made.records.trained()] == [2, 3, 4, 5, 6, 7]
    assert len(made.files.refused) == 2


def test_files_not_yet_deep_or_overturned_wait(base: Path, tmp_path: Path) -> None:
    world = TrainersWorld(base, tmp_path)
    world.files = [replace(one, decided_block=world.head - 1) for one in world.files]
    made = start(world)
    made.publish_step()
    assert made.files.due(1, set()) == []
    world.head += 1
    assert [one.sequence for one in made.files.due(1, set())] == [0, 1]
    world.files[0] = replace(world.files[0], code=int(Code.REJECT_WEIGHTS))
    assert [one.sequence for one in made.files.due(1, set())] == [1, 2]


def test_an_outage_is_waited_out(base: Path, tmp_path: Path) -> None:
    world = TrainersWorld(base, tmp_path)
    made = start(world)
    world.outages = 2
    assert made.run() == EXIT_DONE
    assert world.outages == 0
    assert world.sent == [0, 1, 2, 3]


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
    monkeypatch.setattr("trainer.daemon.check_step", unstable_with(STRANGER))
    made = start(attacked)
    assert made.run() == EXIT_DONE
    assert made.files.refused == set(bad)
    assert attacked.steps == calm.steps
    assert [one["sequence"] for one in made.records.trained()] == [0, 2, 3, 5, 6, 7]


def test_training_that_is_unstable_whatever_the_files_stops(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.daemon.check_step", unstable_with(""))
    world = TrainersWorld(base, tmp_path)
    assert start(world).run() == EXIT_UNSTABLE
    assert world.sent == [0]


def test_a_file_that_is_no_longer_due_is_not_kept_in_memory(base: Path, tmp_path: Path) -> None:
    """Else whoever sends what is loaded and then disputed, or comes too late, fills it."""
    world = TrainersWorld(base, tmp_path)
    made = start(world)
    made.publish_step()
    first, *others = world.files
    world.files = [first, *(replace(one, decided_block=world.head) for one in others)]
    assert made.files.batch(1, set()) is None
    assert made.files.awaited.ready == 1
    world.files[0] = replace(first, code=int(Code.REJECT_WEIGHTS))
    assert made.files.batch(1, set()) is None
    world.files[0] = first
    made.files.due(1, set())
    assert made.files.awaited.ready == 0, "it has to be fetched again"
