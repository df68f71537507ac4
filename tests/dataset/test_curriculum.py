"""Problems that are too easy or too hard leave a pool's work and come back, by a table that follows from chain and
bucket alone; real contracts, real S3, the trainer's own code and the validators' own checks."""

from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from chain.indexer.state import State
from protocol.api.endpoints import OBJECTS
from protocol.config import PoolConfig
from protocol.curriculum import MASK_FILE, CurriculumMask
from protocol.errors import ConfigError, IntegrityError, MusterError
from protocol.rollout_file.file import read
from protocol.rollout_file.rows import Limits
from protocol.seeds import AUDIT_EVERYTHING
from protocol.verdict import Code, Finding
from runtime.curriculum import StepNotSeenError, counted
from storage.keys import MissingObjectError, object_key
from tests.cli.muster import CompletedCommand, Muster
from tests.dataset.curriculum_world import CONFIG, LearningPool, environment
from tests.dataset.world import contracts_and_bucket
from tests.storage.mirror import mirror, send
from validator.judging.checks import FILE_CHECKS, CheckContext, SubmissionFacts

ALL = {number: 2 if number % 3 == 0 else 1 for number in range(1, 13) if number % 3 != 2}
"""What is masked once every problem was tried."""
FILES = 10
"""Of twelve draws from twelve problems: one of the eight is in none of them once in 4,000 times (of five, in 23)."""


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LearningPool]:
    """Seven steps. Files of step 0 are final before step 1; nobody works after that until step 5."""
    folder = tmp_path_factory.mktemp("learning")
    with contracts_and_bucket(folder, CONFIG) as (game, bucket):
        pool = LearningPool(game, bucket, folder)
        (_, pool.node), (_, cheat) = pool.game.node(), pool.game.node()
        pool.publish()
        for _ in range(FILES):
            pool.submit(pool.node, 0, Code.ACCEPT)
        pool.submit(cheat, 0, Code.REJECT_SAMPLING)
        game.deployed.chain.later(61)
        pool.publish()
        pool.publish()
        pool.submit(pool.node, 2, Code.ACCEPT)
        for _ in range(3):
            pool.publish()
        yield pool


def test_what_is_easy_or_hard_rests_and_comes_back(pool: LearningPool) -> None:
    assert [pool.masked(step) for step in (0, 1)] == [{}, {}], "nothing was final when step 0 was published"
    assert pool.masked(2) == ALL
    assert pool.masked(3) == ALL
    assert pool.masked(4) == {}, "what was final before step 1 is forgotten two steps later"


def test_work_of_a_step_is_drawn_by_its_own_table(pool: LearningPool) -> None:
    for step, drawn in ((2, {number for number in range(1, 13) if number % 3 == 2}), (4, set(range(1, 13)))):
        data, _ = pool.file(pool.work(pool.node, step), pool.table(step))
        _, rows = read(data, Limits.of(CONFIG.work))
        assert {CONFIG.environments[0].number(row.problem_seed) for row in rows} <= drawn


def judged(pool: LearningPool, step: int, table: CurriculumMask) -> Finding:
    """What a validator's checks, up to that of the assignment, say of a file of `step` that was drawn by `table`."""
    work = pool.work(pool.node, step)
    data, commitment = pool.file(work, table)
    header, rows = read(data, Limits.of(CONFIG.work))
    facts = SubmissionFacts(work, commitment, 50, b"\x09" * 32, AUDIT_EVERYTHING)
    context = CheckContext(facts, CONFIG, environment(pool.step_folder(step)), data, header, tuple(rows))
    for check in FILE_CHECKS:
        finding = check(context)
        if finding.check == "assignment" or not finding.code.is_accept:
            return finding
    raise AssertionError("no check looked at the assignment")


def test_validators_take_files_drawn_by_the_steps_mask_and_refuse_others(pool: LearningPool) -> None:
    assert judged(pool, 2, pool.table(2)).code is Code.ACCEPT
    assert judged(pool, 4, pool.table(4)).code is Code.ACCEPT
    for step, other in ((2, 4), (4, 2)):
        finding = judged(pool, step, pool.table(other))
        assert finding.code is Code.REJECT_ASSIGNMENT, "with masked problems, or without some that are not"


def test_anybody_finds_every_table_from_chain_and_bucket(pool: LearningPool, tmp_path: Path) -> None:
    for step in range(6):
        found = pool.check(step)
        assert found.findings.messages == []
        assert found.files == (FILES if step in (2, 3) else 0)
    assert pool.check(2).rows() == [("reasoning_gym/chain_sum", 12, 4, 4)]
    again = pool.tables()
    for step in range(6):
        (tmp_path / str(step)).mkdir()
        again.write(step, tmp_path / str(step))
        assert (tmp_path / str(step) / MASK_FILE).read_bytes() == (pool.step_folder(step) / MASK_FILE).read_bytes()


def test_files_that_were_refused_or_disputed_or_are_not_final_do_not_count(pool: LearningPool) -> None:
    state: State = pool.game.state
    sequences = [sub.sequence for sub in counted(state, pool.game.pool, 2, 2)]
    statuses = {sub.sequence: str(sub.status) for sub in state.submissions_of(pool.game.pool)}
    assert [statuses[sequence] for sequence in sequences] == ["accepted"] * FILES
    assert sorted(statuses.values()) == ["accepted"] * (FILES + 1) + ["rejected"]
    place = (pool.game.pool, sequences[0])
    state.disputes[place] = None  # type: ignore[assignment]
    try:
        assert [sub.sequence for sub in counted(state, pool.game.pool, 2, 2)] == sequences[1:]
    finally:
        del state.disputes[place]


def test_a_step_whose_predecessor_is_unknown_waits(pool: LearningPool, tmp_path: Path) -> None:
    with pytest.raises(StepNotSeenError, match="policy step 98"):
        pool.tables().write(99, tmp_path)
    with pytest.raises(StepNotSeenError, match="not confirmed"):
        pool.tables(confirmations=1000).write(2, tmp_path)


def test_a_file_that_nobody_serves_is_left_out_and_the_table_says_so(pool: LearningPool, tmp_path: Path) -> None:
    lost = counted(pool.game.state, pool.game.pool, 2, 2)[0]

    def blind(key: str, limit: int) -> bytes:
        if key == object_key("rollouts", lost.sha256):
            raise MissingObjectError(f"no object {key}")
        return pool.bucket.get(key, limit)

    pool.tables(blind).write(2, tmp_path)
    table = CurriculumMask.load(CONFIG, tmp_path)
    assert table is not None
    assert table.left_out == (lost.sequence,)
    (tmp_path / "new").mkdir()
    with pytest.raises(MusterError, match=f"final file {lost.sequence} waits"):
        pool.tables(blind, patience=60.0).write(2, tmp_path / "new")


@pytest.fixture(scope="module")
def objects(pool: LearningPool) -> Iterator[str]:
    """A source of the pool's files, as its service is: what the bucket has."""

    def serve(handler: BaseHTTPRequestHandler) -> None:
        try:
            send(handler, 200, pool.bucket.get(handler.path.removeprefix(f"{OBJECTS}/"), 1 << 24))
        except MissingObjectError:
            send(handler, 404)

    with mirror(serve) as url:
        yield url


def asked(pool: LearningPool, objects: str, home: Path, step: int, *more: str) -> CompletedCommand:
    """`muster verify curriculum STEP`."""
    deployed = pool.game.deployed
    muster = Muster(home, deployed.folder, deployed.chain.url)
    return muster.run("verify", "curriculum", step, "--pool", f"{pool.game.pool}@{objects}", *more)


def test_the_command_makes_the_table_anew_and_sees_a_forged_one(
    pool: LearningPool, objects: str, tmp_path: Path
) -> None:
    said = asked(pool, objects, tmp_path, 2)
    assert said.code == 0, said.err
    assert f"counted from {FILES} files" in said.out
    assert "the mask is the one that follows from chain and bucket" in said.out
    codes = bytearray(pool.table(5).codes[0])
    codes[2] = 2
    pool.game.deployed.chain.later(61)
    step = pool.publish(forged=replace(pool.table(5), codes={0: bytes(codes)}))
    told = asked(pool, objects, tmp_path, step, "--json")
    assert (told.code, told.json["sound"], told.json["wrong"]) == (1, False, len(told.json["findings"]))
    lie = "problem 2 of reasoning_gym/chain_sum is masked as too easy; by chain and bucket it is drawn"
    assert told.json["findings"] == [lie]
    masked = list(pool.masked(step).values())
    counts = {"problems": 12, "hard": masked.count(1), "easy": masked.count(2)}
    assert counts["hard"] != counts["easy"]
    assert told.json["environments"] == {"reasoning_gym/chain_sum": counts}
    assert {"step": step, "files": 0, "left_out": []}.items() <= told.json.items()
    said = asked(pool, objects, tmp_path, step)
    assert said.code == 1
    assert f"WRONG  {lie}" in said.out
    assert "the mask is the one" not in said.out


def test_a_file_that_is_left_out_without_need_is_seen(pool: LearningPool) -> None:
    honest = pool.table(5)
    sequence = max(sub.sequence for sub in pool.game.state.accepted(pool.game.pool))
    step = pool.publish(forged=replace(honest, left_out=(sequence, 999)))
    assert pool.check(step).findings.messages == [
        f"file {sequence} is left out as unavailable, and can be had",
        "file 999 is listed as left out, but does not count for this step",
    ]


def test_pools_and_steps_without_a_table_are_named(pool: LearningPool, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="has no policy step 77"):
        pool.check(77)
    with pytest.raises(IntegrityError, match=f"has no {MASK_FILE}"):
        environment(pool.folder)
    monkeypatch.setattr(PoolConfig, "curricula", property(lambda self: {}))
    with pytest.raises(ConfigError, match="has no curriculum"):
        pool.check(2)
