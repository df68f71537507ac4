"""A pool with a curriculum whose files are final at given times."""

from dataclasses import dataclass, field
from hashlib import sha256

from chain.indexer.records import Pool, Step, Submission
from chain.indexer.state import State
from protocol.curriculum import CurriculumMask
from protocol.identity import PoolId, WorkId
from protocol.rollout_file.file import write
from protocol.rollout_file.rows import RolloutHeader
from protocol.seeds import Work
from protocol.verdict import Code
from tests.chain.game import terms
from tests.dataset.curriculum_world import CONFIG, rows_of
from tests.orchestrator.chain import OWNER, POOLS
from tests.orchestrator.conftest import FakeBucket

NODE = "0x" + "11" * 20
POOL = PoolId(31337, POOLS, 1)
EMPTY = CurriculumMask({0: bytes(14)})


class CountingBucket(FakeBucket):
    """Counts the rollout files that are read."""

    reads = 0

    def get(self, key: str, limit: int) -> bytes:
        self.reads += key.startswith("rollouts/")
        return super().get(key, limit)

    def put(self, key: str, data: bytes) -> bool:
        self.objects[key] = data
        return True


@dataclass
class RatedRun:
    """A pool whose steps were published at `times`; files, final at given times."""

    bucket: CountingBucket = field(default_factory=CountingBucket)
    state: State = field(default_factory=State)
    pool_id: int = 1

    def __post_init__(self) -> None:
        self.state.pools[1] = Pool(1, OWNER.address, CONFIG.digest, terms(), 0, 0)

    def pool(self, state: State) -> Pool:
        return state.pools[1]

    def step(self, time: int, manifest: bytes = bytes(32)) -> None:
        steps = self.state.pools[1].steps
        steps.append(Step(len(steps), manifest, bytes(32), 5, 5, time, ""))

    def file(self, counter: int, final_time: int, code: Code = Code.ACCEPT, data: bytes = b"") -> Submission:
        work = Work(WorkId(POOL, NODE, 0, counter), b"\x01" * 32, bytes(32))
        data = data or write(RolloutHeader(work, "hf 1", "float32", "cpu"), rows_of(work, EMPTY))
        digest = sha256(data).digest()
        self.bucket.objects[f"rollouts/{digest.hex()}.parquet"] = data
        sub = Submission(1, counter, NODE, 0, counter, 20, 48, digest, digest, 5, 0, "", code=int(code))
        sub.final_time = final_time
        self.state.submissions[1, counter] = sub
        self.state.pools[1].sequences.append(counter)
        return sub
