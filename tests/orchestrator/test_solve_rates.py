"""Solve rates from accepted, final files: kept in either database, right after restarts and reorganisations."""

from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chain.indexer.records import Pool, Step, Submission
from chain.indexer.state import State
from orchestrator.dashboard.solve_rates import SolveRates, solved_bin
from orchestrator.db import Database
from protocol.api.views import Difficulties
from protocol.curriculum import MASK_FILE, CurriculumMask, SolveRate, build_mask
from protocol.errors import IntegrityError
from protocol.identity import PoolId, WorkId
from protocol.rollout_file.file import write
from protocol.rollout_file.rows import RolloutHeader
from protocol.seeds import Work
from protocol.verdict import Code
from storage.weights.manifest import ManifestScope
from storage.weights.publish import publish
from tests.chain.game import terms
from tests.dataset.curriculum_world import CONFIG, rows_of
from tests.orchestrator.chain import OWNER, POOLS
from tests.orchestrator.conftest import Shelf
from tests.orchestrator.databases import KINDS, empty_database

NODE = "0x" + "11" * 20
POOL = PoolId(31337, POOLS, 1)
EMPTY = CurriculumMask({0: bytes(14)})


class CountingShelf(Shelf):
    """`wrong`: keys whose bytes somebody altered; a client of the bucket refuses them."""

    reads = 0

    def __init__(self) -> None:
        super().__init__()
        self.wrong = set[str]()

    def get(self, key: str, limit: int) -> bytes:
        self.reads += key.startswith("rollouts/")
        if key in self.wrong:
            raise IntegrityError(f"{key} has other bytes", "fetch it again")
        return super().get(key, limit)

    def put(self, key: str, data: bytes) -> bool:
        self.objects[key] = data
        return True


@dataclass
class RatedRun:
    """A pool whose steps were published at `times`; files, final at given times."""

    bucket: CountingShelf = field(default_factory=CountingShelf)
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


def rates_of(run: RatedRun, db: Database) -> SolveRates:
    watch: Any = run
    return SolveRates(db, watch, CONFIG, POOL, run.bucket.get)


def settled(rates: SolveRates) -> Difficulties:
    """After everything that can be read was read."""
    rates.refresh()
    while rates.read_one():
        rates.refresh()
    return rates.view()


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return empty_database(request.param, tmp_path)


def test_final_files_count_once_and_survive_a_restart(url: str) -> None:
    run, db = RatedRun(), Database(url)
    for counter, code in enumerate((Code.ACCEPT, Code.ACCEPT, Code.REJECT_SAMPLING)):
        run.file(counter, 50, code)
    run.file(3, 150)
    assert settled(rates_of(run, db)).step is None
    run.step(100)
    found = settled(rates_of(run, db))
    (entry,) = found.environments
    assert (found.step, found.files, found.unread, entry.problems) == (0, 2, 0, 12)
    kinds = [entry.solved[place] for place in (0, 6, 11)]
    assert all(kinds), "hard, fitting and easy ones"
    assert sum(kinds) == sum(entry.solved) == entry.tried <= 12
    db.close()
    again, reads = Database(url), run.bucket.reads
    assert settled(rates_of(run, again)) == found
    assert run.bucket.reads == reads, "nothing is read twice"
    run.step(200)
    later = settled(rates_of(run, again))
    assert (later.step, later.files) == (1, 3)
    again.close()


def test_what_a_reorganisation_or_a_dispute_takes_is_taken_back(url: str) -> None:
    run, db = RatedRun(), Database(url)
    subs = [run.file(counter, 50) for counter in range(3)]
    run.step(100)
    rates = rates_of(run, db)
    whole = settled(rates)
    assert whole.files == 3
    subs[0].code = int(Code.REJECT_SAMPLING)
    run.state.disputes[1, 1] = SimpleNamespace()  # type: ignore[assignment]
    assert settled(rates).files == 1
    subs[0].code = int(Code.ACCEPT)
    run.state.disputes.clear()
    assert settled(rates) == whole
    db.close()


def test_lost_wrong_and_malformed_files_hold_nothing_up(tmp_path: Path) -> None:
    run, db = RatedRun(), Database(empty_database("sqlite", tmp_path))
    lost = run.file(0, 50)
    del run.bucket.objects[f"rollouts/{lost.sha256.hex()}.parquet"]
    swapped = run.file(1, 50)
    run.bucket.wrong.add(f"rollouts/{swapped.sha256.hex()}.parquet")
    run.file(2, 50, data=b"no parquet")
    run.file(3, 50)
    run.step(100)
    found = settled(rates_of(run, db))
    assert (found.files, found.unread) == (2, 2)
    assert found.environments[0].tried > 0
    db.close()


def test_the_newest_table_is_told(tmp_path: Path) -> None:
    run, db = RatedRun(), Database(empty_database("sqlite", tmp_path))
    folder = tmp_path / "step"
    folder.mkdir()
    table = build_mask(CONFIG, 0, {0: {1: SolveRate(4, 0), 3: SolveRate(4, 4), 4: SolveRate(4, 0)}})
    (folder / MASK_FILE).write_bytes(table.encoded(CONFIG))
    made = publish(folder, run.bucket, ManifestScope(POOL, OWNER.address), 0, None, OWNER)
    run.step(100, made.digest)
    (entry,) = settled(rates_of(run, db)).environments
    assert (entry.hard, entry.easy) == (2, 1)
    db.close()


def test_shares_fall_into_tenths_with_none_and_all_apart() -> None:
    found = [solved_bin(SolveRate(20, solved)) for solved in (0, 1, 2, 10, 19, 20)]
    assert found == [0, 1, 2, 6, 10, 11]


def test_files_are_read_only_by_the_leader(tmp_path: Path) -> None:
    run, db = RatedRun(), Database(empty_database("sqlite", tmp_path))
    run.file(0, 50)
    run.step(100)
    rates = rates_of(run, db)
    assert rates.work(lambda: False) >= 1.0
    assert run.bucket.reads == 0
    assert rates.work(lambda: True) < 1.0
    assert run.bucket.reads == 1
    db.close()
