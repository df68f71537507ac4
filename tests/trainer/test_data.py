"""Which files a step consumes: deep enough, fresh enough, each at most once, also across restarts and rollbacks."""

from dataclasses import fields, replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from chain.indexer.records import FileNumbers, Pool, Submission, Terms
from chain.indexer.state import State
from protocol.config import OnlineFilter, OverlongConfig, PoolConfig, TrainConfig, WorkConfig
from protocol.errors import ScoringUnavailable
from protocol.rollout_file.rows import Rollout
from protocol.verdict import Code
from storage.keys import MissingObjectError
from tests.trainer.world import CONFIG
from trainer.data.batch import Group, Source, TrainRollout
from trainer.data.files import FileCollector, Loader, overturned, select_files
from trainer.data.waiting import AwaitedFiles
from trainer.reports.records import Records, file_id, file_record

TERMS = Terms.of(
    {field.name.rstrip("_"): 1 for field in fields(Terms)} | {"inviteOnly": False, "configHash": bytes(32)}
)
NODE, DECOY = "0x" + "11" * 20, "0x" + "22" * 20


def file(name: str, sequence: int, step: int, decided: int = 10, code: int = int(Code.ACCEPT)) -> Submission:
    digest = sha256(name.encode()).digest()
    what = (1, sequence, NODE, step, 0, 5, 2, digest, digest, decided, 0, "")
    return Submission(*what, code=code, decided_block=decided)


def chain(files: list[Submission], head: int = 100) -> State:
    state = State(head=head)
    state.pools[1] = Pool(1, NODE, bytes(32), TERMS, 0, 0, sequences=FileNumbers(file.sequence for file in files))
    state.submissions = {(1, one.sequence): one for one in files}
    return state


def test_an_answer_that_nearly_finds_no_end_loses_reward_and_no_task_reward(base: Path) -> None:
    train = CONFIG.train.model_copy(update={"overlong": OverlongConfig(buffer=8, penalty=0.5)})
    plain, rewards = CONFIG.model_copy(update={"work": WorkConfig(max_new_tokens=32)}), []
    for config in (plain, plain.model_copy(update={"train": train})):
        loader = Loader(config, lambda *_: None, base)  # type: ignore[arg-type]
        for length in (1, config.work.max_new_tokens - 4):
            rollout = Rollout(0, 0, 5, 0, (1,), (7,) * length, 0, (-1.0,) * length, 1.0, 0.0, 1.0, ())
            made = loader._train_rollout(rollout, Source(NODE, "v", 0))
            rewards.append((made.reward, made.task_reward))
    assert rewards == [(0.0, 0.0), (0.0, 0.0), (0.0, 0.0), (-0.25, 0.0)]


def names(files: list[Submission]) -> list[int]:
    return [one.sequence for one in files]


def test_files_that_are_deep_enough_and_undisputed_by_their_policy_step_and_stale_ones_told() -> None:
    state = chain([file("a", 0, 5), file("b", 1, 3), file("c", 2, 4), file("d", 3, 2), file("e", 4, 3)])
    inbox = select_files(state, 1, 5, 2, 2, set())
    assert (names(inbox.files), names(inbox.stale)) == ([1, 4, 2, 0], [3])
    files = [file("a", 0, 5, decided=98), file("b", 1, 5, decided=99), file("c", 2, 5, code=0)]
    files += [file("d", 3, 5, code=int(Code.REJECT_WEIGHTS)), replace(file("e", 4, 5), disputed=True)]
    files += [replace(file("f", 5, 5), node=DECOY), file("g", 6, 5, code=int(Code.UNSURE))]
    inbox = select_files(chain(files), 1, 5, 2, 2, set(), {DECOY})
    assert (names(inbox.files), inbox.confirming, inbox.judging) == ([0, 6], 2, 1)


def test_the_same_bytes_twice_count_once_and_a_reused_sequence_is_another_file() -> None:
    consumed = {file_id(file("a", 0, 5))}
    # A reorganisation: file a came back under sequence 1, sequence 0 now holds b.
    state = chain([file("b", 0, 5), file("a", 1, 5), file("b", 2, 5)])
    assert names(select_files(state, 1, 5, 2, 2, consumed).files) == [0]


def test_acceptances_overturned_after_training_are_reported() -> None:
    rejected, malformed = int(Code.REJECT_SAMPLING), int(Code.MALFORMED)
    files = [file("a", 0, 5), file("b", 1, 5, code=rejected), file("c", 2, 5, code=malformed)]
    gone = overturned(chain(files), 1, {file_id(files[0]), file_id(files[1])})
    assert [one.sequence for one in gone] == [1]


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("accept"), st.integers(0, 12)),
        st.tuples(st.just("rollback"), st.integers(1, 6)),
        st.tuples(st.just("train"), st.just(0)),
        st.tuples(st.just("kill"), st.booleans()),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(MOVES)
def test_no_file_is_trained_twice_or_lost(moves: list[tuple[str, int]]) -> None:
    """A model of the daemon: checkpoints hold weights and consumed set together; a kill before the checkpoint undoes
    a step wholly, one after it not at all; rollbacks reorder the chain and give files new sequences."""
    accepted: list[str] = []
    consumed: set[str] = set()
    trained: list[str] = []

    def turn() -> list[str]:
        files = [file(name, place, 5) for place, name in enumerate(accepted)]
        by_id = {file_id(one): name for one, name in zip(files, accepted, strict=True)}
        return [by_id[file_id(one)] for one in select_files(chain(files), 1, 5, 2, 2, consumed).files[:2]]

    for move, value in moves:
        if move == "accept" and f"file {value}" not in accepted:
            accepted.append(f"file {value}")
        elif move == "rollback":
            accepted = accepted[: -int(value)] + accepted[-int(value) :][::-1]
        elif move == "train" or (move == "kill" and value):
            batch = turn()
            trained += batch
            consumed |= {file_id(file(name, 0, 5)) for name in batch}
        elif move == "kill":
            turn()
    while batch := turn():
        trained += batch
        consumed |= {file_id(file(name, 0, 5)) for name in batch}
    assert sorted(trained) == sorted(accepted)


SIGNAL: Group = (TrainRollout((1,), (2,), 1.0), TrainRollout((1,), (2,), 0.0))
NONE: Group = (TrainRollout((1,), (2,), 1.0), TrainRollout((1,), (2,), 1.0))


class StoredFiles:
    """Chain and bucket: file n has `signals[n]` groups with signal of two; None: the bucket lacks it."""

    def __init__(self, *signals: int | None) -> None:
        self.signals = list(signals)
        self.state = State(head=100)
        self.unscored = set[int]()

    def refresh(self) -> State:
        self.state = chain([self.file(number) for number in range(len(self.signals))])
        return self.state

    def file(self, number: int) -> Submission:
        return file(str(number), number, 0, decided=9)

    def groups(self, submission: Submission) -> list[Group]:
        signals = self.signals[submission.sequence]
        if signals is None:
            raise MissingObjectError("not there")
        if submission.sequence in self.unscored:
            raise ScoringUnavailable("no sandbox here")
        return [SIGNAL] * signals + [NONE] * (2 - signals)


def collector(stored: StoredFiles, home: Path, chosen: OnlineFilter | None, missing: float = 60.0) -> FileCollector:
    train = TrainConfig(files_per_step=2, filter=chosen)
    config: Any = SimpleNamespace(
        pool=1, confirmations=2, missing_seconds=missing, exclude=(), stall_seconds=20.0, silence_seconds=900.0
    )
    outside: Any = stored
    return FileCollector(config, train, outside, Records(home), outside, "")


def taken(made: FileCollector, consumed: set[str] | None = None) -> list[int] | None:
    batch = made.batch(1, consumed or set())
    return None if batch is None else [sub.sequence for sub in batch.files]


WANTED = OnlineFilter(groups=4, max_files=5)


@pytest.mark.parametrize(
    ("signals", "wanted", "files"),
    [
        ((2, 2, 2), WANTED, [0, 1]),
        ((2, 1, 0, 1, 2), WANTED, [0, 1, 2, 3]),
        ((0, 0, 0, 0, 0, 2, 2), WANTED, [0, 1, 2, 3, 4]),
        ((2, 1, 0), WANTED, None),
        ((), WANTED, None),
        ((0, 0, 2, 2), None, [0, 1]),
    ],
)
def test_files_are_taken_until_the_batch_is_full_or_its_bound_is_reached(
    tmp_path: Path, signals: tuple[int, ...], wanted: OnlineFilter | None, files: list[int] | None
) -> None:
    assert taken(collector(StoredFiles(*signals), tmp_path, wanted)) == files


def test_a_file_that_the_bucket_lacks_is_waited_for_and_then_passed_over(tmp_path: Path) -> None:
    stored = StoredFiles(2, None, 2)
    patient = collector(stored, tmp_path, WANTED)
    assert taken(patient) is None
    assert patient.awaited == AwaitedFiles(wanted=3, ready=2, fetching=1, confirming=0, judging=0)
    assert patient.awaited.cause == "fetching"
    stored.signals[1] = 2
    assert taken(patient) == [0, 1]
    hasty = collector(StoredFiles(2, None, 2), tmp_path, WANTED, missing=0.0)
    assert taken(hasty) is None
    assert taken(hasty) == [0, 2]


def test_a_file_without_a_score_is_passed_over_only_while_others_have_theirs(tmp_path: Path) -> None:
    stored = StoredFiles(2, 2, 2)
    stored.unscored = {0, 1, 2}
    made = collector(stored, tmp_path, WANTED, missing=0.0)
    assert [taken(made) for _ in range(3)] == [None] * 3
    assert made.refused == set(), "the machine is at fault"
    stored.unscored = {1}
    assert [taken(made), taken(made)] == [None, [0, 2]]
    assert made.refused == {file_id(stored.file(1))}


def test_the_next_step_takes_what_was_left_and_groups_without_signal_come_along(tmp_path: Path) -> None:
    stored = StoredFiles(2, 2, 2, 0, 2)
    made = collector(stored, tmp_path, WANTED)
    assert taken(made) == [0, 1]
    batch = made.batch(1, {file_id(stored.file(number)) for number in (0, 1)})
    assert batch is not None
    assert [sub.sequence for sub in batch.files] == [2, 3, 4]
    assert [group == SIGNAL for group in batch.groups] == [True, True, False, False, True, True]


@pytest.mark.parametrize(("recorded", "files"), [((0, 1, 2), [0, 1, 2]), ((0, 7), [0])])
def test_a_step_trained_before_a_kill_takes_those_files_of_its_record_that_the_chain_still_has(
    tmp_path: Path, recorded: tuple[int, ...], files: list[int]
) -> None:
    stored = StoredFiles(2, 2, 2, 2)
    Records(tmp_path).write({"step": 1}, [file_record(1, stored.file(number)) for number in recorded])
    assert taken(collector(stored, tmp_path, WANTED)) == files


@pytest.mark.parametrize("recorded", [False, True])
def test_a_file_of_a_decided_step_that_has_vanished_does_not_block_the_step(tmp_path: Path, recorded: bool) -> None:
    """Other machines may have it, or it was trained on before a kill: others would be trained on twice."""
    stored = StoredFiles(2, None, 2)
    entries = [file_record(1, stored.file(number)) for number in (0, 1)]
    if recorded:
        Records(tmp_path).write({"step": 1}, entries)
    bound = () if recorded else [entry["sha256"] for entry in entries]
    assert collector(stored, tmp_path, WANTED).batch(1, set(), bound) is None, "it may still come"
    batch = collector(stored, tmp_path, WANTED, missing=0.0).batch(1, set(), bound)
    assert batch is not None
    assert [sub.sequence for sub in batch.files] == [0, 1]
    assert batch.groups_of == [[SIGNAL] * 2, []]


def test_a_poll_reads_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = collector(StoredFiles(2), tmp_path, WANTED)
    monkeypatch.setattr("trainer.reports.records.read_records", None)
    assert taken(made) is None


def test_filters_that_make_no_sense_are_refused_when_the_pool_is_made() -> None:
    with pytest.raises(ValidationError, match="max_files must be at least files_per_step, 4"):
        TrainConfig(files_per_step=4, filter=OnlineFilter(groups=4, max_files=3))
    never_full = TrainConfig(files_per_step=2, filter=OnlineFilter(groups=9, max_files=2))
    fields = {"model": CONFIG.model, "environments": CONFIG.environments, "work": WorkConfig(problems_per_file=4)}
    with pytest.raises(ValidationError, match="groups is 9, but max_files hold 8 groups at most"):
        PoolConfig.model_validate({"name": "x", "train": never_full, **fields})
