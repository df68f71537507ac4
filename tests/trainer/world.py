"""Everything outside a trainer, in memory: chain, bucket, service. It outlives the trainer's kills."""

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from chain.indexer.records import Account, FileNumbers, Pool, Step, Submission
from chain.indexer.state import State
from diloco.config import PolicyCoordinatorConfig
from environments.pool import PoolEnvironments, float32
from localnet.plan import DEMO_ENVIRONMENT
from protocol import VERSION
from protocol.accounts import Account as KeyPair
from protocol.api.work import HeartbeatRequest, HeartbeatResponse, SetResult, StepRequest
from protocol.config import PoolConfig, TrainConfig, WeightsConfig, WorkConfig
from protocol.errors import UnreachableError
from protocol.identity import PoolId, WorkId
from protocol.models import load_tokenizer
from protocol.rollout_file.file import write
from protocol.rollout_file.rows import Rollout, RolloutHeader
from protocol.seeds import Work
from protocol.verdict import Code
from runtime.process import KeyConfig
from storage.keys import MissingObjectError
from storage.s3 import S3Settings
from tests.chain.game import terms
from trainer.config import TrainerConfig
from trainer.exits import EXIT_DONE
from trainer.model.sharding import Placement
from trainer.model.tiny_model import tiny_model_config
from trainer.reports.records import read_records
from trainer.train import Trainer, TrainerServices

OWNER = KeyPair.from_key(b"\x07" * 32)
NODE = KeyPair.from_key(b"\x08" * 32).address
STRANGER = KeyPair.from_key(b"\x09" * 32).address
POOLS = "0x" + "00" * 19 + "99"
CONFIG = PoolConfig(
    name="test",
    model=tiny_model_config(),
    environments=(DEMO_ENVIRONMENT,),
    work=WorkConfig(problems_per_file=2, samples_per_problem=2, max_new_tokens=8, max_prompt_tokens=128),
    train=TrainConfig(steps=3, files_per_step=2),
    weights=WeightsConfig(snapshot_every=2, delta_min_bytes=0),
)
TERMS = terms()
FILES = 8


class Killed(BaseException):
    """A kill -9: nothing catches it."""


class TrainersWorld:
    """Everything outside the trainer; it outlives its kills. `fuse` counts actions down to a kill, `outages` failures
    of the bucket; `members`: each node's first step."""

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
        self.members = {NODE: 0}
        self.beats: list[HeartbeatRequest] = []

    def act(self) -> None:
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                raise Killed

    def state(self) -> State:
        state = State(head=self.head)
        made = [Step(number, digest, bytes(32), 5, 5, 0, "") for number, digest in enumerate(self.steps)]
        numbers = FileNumbers(file.sequence for file in self.files)
        state.pools[1] = Pool(1, OWNER.address, CONFIG.digest, TERMS, 0, 0, steps=made, sequences=numbers)
        state.submissions = {(1, one.sequence): one for one in self.files}
        for node, joined in self.members.items():
            state.accounts[1, node] = Account(1, node, OWNER.address, member=True, joined_step=joined)
        return state

    def ensure_step(self, pool: int, step: int, manifest: bytes, root: bytes) -> int:
        self.act()
        assert step == len(self.steps)
        self.steps.append(manifest)
        self.sent.append(step)
        self.act()
        return 7

    # Bucket
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

    # Service
    def report_step(self, report: StepRequest) -> None:
        self.act()
        self.reports[report.step] = report

    def heartbeat(self, beat: HeartbeatRequest) -> HeartbeatResponse:
        self.beats.append(beat)
        return HeartbeatResponse(next=1.0, step=None, lease_expires=None, version=VERSION)

    def make_file(self, number: int, node: str = NODE) -> Submission:
        book, tokenizer = PoolEnvironments.of(CONFIG, self.base), load_tokenizer(self.base)
        rows = []
        for slot in range(2):
            seed = 10 * number + slot
            for sample, answer in enumerate((book.problem(seed).answer, "x")):
                output = (*tokenizer.encode(f"</think>{answer}"), book.eos_ids[0])
                score = book.score(seed, 0, output)
                logs = tuple(float32(-1.5) for _ in output)
                scores = (score.task_reward, score.length_penalty, score.reward)
                what = (slot, sample, seed, 0, book.prompt(seed, 0), output, 0, logs)
                rows.append(Rollout(*what, *scores, (b"p" * 258,)))
        work = Work(WorkId(PoolId(31337, POOLS, 1), node, 0, number), bytes(32), bytes(32))
        data = write(RolloutHeader(work, "test", "float32", "cpu"), rows)
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
    """Measures without a model, nothing before `least_step`."""

    least_step = 0

    def __call__(self, pool: PoolConfig, folder: Path, step: int) -> list[SetResult]:
        assert (folder / "config.json").is_file()
        average = 0.25 if step >= self.least_step else 0.0
        return [SetResult(name="held-out", problems=4, samples=1, average=average, error=0.0, length=3.0, seconds=0.0)]

    def stop(self) -> None:
        pass


class MortalTrainer(Trainer):
    """May be killed before and after a checkpoint."""

    def __init__(self, world: TrainersWorld, *arguments: Any) -> None:
        super().__init__(*arguments)
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
    if "run" in changes:
        config = PolicyCoordinatorConfig.model_validate(config.model_dump() | {"run": changes["run"]})
    fakes: Any = {"client": PoolInMemory(world), "bucket": world, "orchestrator": world, "evaluator": QuarterSolver()}
    services = TrainerServices(**fakes, account=OWNER, decoy=None)
    if not isinstance(config, PolicyCoordinatorConfig):
        return MortalTrainer(world, config, services, placement)
    from diloco.policy import DilocoSteps, start_policy

    group = start_policy(config, services, world.base, placement or Placement())
    return MortalTrainer(
        world, config, services, placement, group, lambda trainer: DilocoSteps(group, trainer, trainer.check)
    )


def killed(world: TrainersWorld, fuse: int) -> bool:
    """Run a trainer that is killed after `fuse` actions; return whether it ended first."""
    world.fuse = fuse
    try:
        start(world).run()
    except Killed:
        return False
    finally:
        world.fuse = None
    return True


def trained(trainer: Trainer) -> list[int]:
    """Sequences of the files that were trained on, in order."""
    return [one["sequence"] for one in read_records(trainer.records.trained_path)]


def steady_steps(base: Path, home: Path) -> list[bytes]:
    """What a trainer publishes that nothing happens to."""
    world = TrainersWorld(base, home)
    assert start(world).run() == EXIT_DONE
    return world.steps


def check_kills(base: Path, home: Path, fuses: range) -> None:
    """Whichever of these actions a trainer is killed after, the next one ends with the same steps and files."""
    steady = steady_steps(base, home / "steady")
    for fuse in fuses:
        world = TrainersWorld(base, home / f"fuse-{fuse}")
        done = killed(world, fuse)
        again = start(world)
        assert again.run() == EXIT_DONE
        assert world.steps == steady, f"after action {fuse}"
        assert world.sent == [0, 1, 2, 3]
        assert trained(again) == [0, 1, 2, 3, 4, 5]
        assert world.reports[3].consumed == [4, 5]
        if done:
            break
