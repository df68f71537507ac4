"""Files that are assigned to workers: each is trained on by the worker of the partition, and a worker that names others
is refused; files that cannot be used are waited for, not for ever, then split among the others, or skipped."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from diloco import coordinator as coordinator_module
from diloco import messages
from diloco.codec import MalformedContribution
from diloco.config import Timeouts
from diloco.log import Log, read_step
from diloco.outer import Admitted
from diloco.store import OwnContribution
from diloco.worker import Worker
from protocol.errors import IntegrityError
from tests.diloco.world import NAMES, FilesWorld, commits, events, file_at, files_run

BAD = NAMES[2]


@pytest.fixture
def world(tmp_path: Path) -> FilesWorld:
    return FilesWorld(files_run(3), tmp_path)


def begin(world: FilesWorld, *numbers: int, patience: float = 0.0) -> None:
    """Start workers that wait so long for files."""
    for number in numbers:
        worker = world.start(number)
        worker.timeouts = replace(worker.timeouts, window=patience)


def files_of(world: FilesWorld, step: int) -> dict[str, str]:
    """The worker of each file of an outer step; empty for nobody's."""
    transport, newest = world.coordinator.transport, Log.newest(world.coordinator.transport)
    assert newest is not None
    made = read_step(transport, newest, world.coordinator.state, step)
    return {file_at(step, number): made.worker_of(file_at(step, number)) for number in range(6)}


def told(world: FilesWorld, kind: type[Any]) -> list[Any]:
    return [one for one in events(world.coordinator.transport) if isinstance(one, kind)]


def lose_files(worker: Worker, *steps: int) -> None:
    worker.task.gone = {file_at(step, number) for step in steps for number in range(6)}  # type: ignore[attr-defined]


def test_a_file_that_one_worker_cannot_have_is_split_among_the_others(world: FilesWorld) -> None:
    begin(world, 0, 1, 2)
    lose_files(world.workers[2], 0)
    world.until(1)
    named = told(world, messages.FilesUnusable)
    assert [one.worker for one in named] == [BAD]
    assert len(named[0].items) == 2
    assert sorted(files_of(world, 0).values()) == sorted(NAMES[:2] * 3)
    world.until(3)
    assert sorted(files_of(world, 2).values()) == sorted(NAMES[:3] * 2), "it is back"
    assert world.replayed()[-1].digest == world.coordinator.state.digest


@pytest.mark.parametrize("minimum", [1, 2])
def test_a_file_that_nobody_can_have_is_left_out_of_its_step(minimum: int, tmp_path: Path) -> None:
    gone = {file_at(1, 3)}
    world = FilesWorld(files_run(3, minimum), tmp_path, gone=gone)
    begin(world, 0, 1, 2)
    world.until(2)
    files = files_of(world, 1)
    assert [file for file, worker in files.items() if not worker] == sorted(gone)
    assert len([worker for worker in files.values() if worker in NAMES]) == 5
    named = told(world, messages.FilesUnusable)
    assert len(named) == 4 - minimum, "as many as there are, less those that a step needs, and one more"
    assert len({one.worker for one in named}) == len(named)
    world.until(4)
    assert all(files_of(world, 3).values())
    world.check()
    assert minimum == 1 or world.schedule.strikes == {}, "it is held against nobody"


@pytest.mark.parametrize(("lost", "minimum"), [(6, 1), (5, 2)])
def test_a_step_with_fewer_files_than_it_needs_workers_changes_nothing(lost: int, minimum: int, tmp_path: Path) -> None:
    gone = {file_at(1, number) for number in range(lost)}
    world = FilesWorld(files_run(3, minimum), tmp_path, gone=gone, needed=2)
    begin(world, 0, 1)
    world.until(1)
    before = world.coordinator.state
    world.until(2)
    after = world.coordinator.state
    assert after.step == 2
    assert all((after.weights[name] == one).all() for name, one in before.weights.items())
    assert set(files_of(world, 1).values()) == {""}
    world.until(3)
    assert world.coordinator.state.weights["table"].tolist() != after.weights["table"].tolist()
    assert world.start(2).state.digest == world.coordinator.state.digest == world.replayed()[-1].digest


def test_a_worker_that_names_others_files_is_ignored(world: FilesWorld) -> None:
    begin(world, 0, 1, 2)
    while not world.schedule.items:
        world.turn()
    now = world.schedule
    assert now.partition is not None
    other = now.partition.of(NAMES[0])[-1]
    world.workers[2]._sender.post("unusable", now, None, [other])
    world.until(1)
    assert not told(world, messages.FilesUnusable)
    with pytest.raises(IntegrityError, match="names files that are not assigned to it"):
        now.after(messages.FilesUnusable(worker=BAD, message=99, items=["ab" * 32]))


def test_a_file_is_waited_for_and_not_for_ever(tmp_path: Path) -> None:
    clock = [0.0]
    world = FilesWorld(files_run(3), tmp_path, clock=lambda: clock[0])
    begin(world, 0, 1, 2, patience=50.0)
    bad = world.workers[2]
    lose_files(bad, 0)
    for _ in range(40):
        world.turn()
    why = bad.turn()
    assert why.startswith("file 00")
    assert why.endswith("(at most 50 s, then it is reported)")
    clock[0] = 49.0
    assert bad.turn() == why
    assert not told(world, messages.FilesUnusable)
    clock[0] = 51.0
    assert "to continue without this worker" in bad.turn()
    world.until(1)


def test_a_file_that_another_worker_has_named_or_that_is_malformed_is_not_waited_for(world: FilesWorld) -> None:
    world.gone |= {file_at(0, 0)}
    begin(world, 0, 1, 2, patience=1e9)
    while not world.schedule.items:
        world.turn()
    first = next(name for name in NAMES if file_at(0, 0) in world.schedule.share_of(name))
    world.workers[NAMES.index(first)].timeouts = Timeouts.of(world.run)
    world.workers[NAMES.index(first)].task.for_good = True  # type: ignore[attr-defined]
    world.until(1)
    assert files_of(world, 0)[file_at(0, 0)] == ""


def test_a_killed_worker_hands_in_nothing_of_files_that_are_skipped_since(world: FilesWorld) -> None:
    """Its contribution is on its disk, made among the same members, of more files."""
    world.needed = 2
    begin(world, 0, 1)
    while world.workers[0]._own_contribution is None:
        world.turn(slice(None) if world.schedule.awaits_files else slice(1))
    mine = world.workers[0].log.schedule.share_of(NAMES[0])
    assert world.workers[0]._own_contribution.share == mine
    again = world.start(0)
    again.turn()
    assert again._own_contribution is not None
    assert again._own_contribution.share == mine
    again.log.schedule = replace(again.log.schedule, skipped=frozenset([mine[-1]]))
    again._offer_again(again._own_contribution, again.log.schedule)
    assert again._own_contribution is None


# Workers that sign for other files than theirs.

Chosen = Callable[[Sequence[str], Sequence[str]], Sequence[str]]
ATTACKS: dict[str, tuple[Chosen | None, str]] = {
    "another's": (lambda mine, others: others[: len(mine)], "against the partition"),
    "one more": (lambda mine, others: sorted((*mine, others[0])), "against the partition"),
    "an older step's": (None, "it is for outer step 0, this is 1"),
}  # test_messages.py has all others


def sign_other_files(monkeypatch: pytest.MonkeyPatch, chosen: Chosen | None) -> None:
    """From outer step 1 on the bad worker signs that it trained on files of its choice, or (None) hands in what it made
    of step 0 again."""
    contribute, first = Worker._contribute, list[bytes]()

    def hostile(self: Worker, now: Any, share: Any) -> OwnContribution:
        own = contribute(self, now, share)
        if self.address != BAD:
            return own
        if self.state.step == 0:
            first.append(own.document)
            return own
        if chosen is None:
            return replace(own, document=first[0])
        made = messages.Signed[messages.Contribution].model_validate_json(own.document).body
        others = sorted(item for name in NAMES[:2] for item in self.log.schedule.share_of(name) if item not in NAMES)
        named = made.model_copy(update={"items": list(chosen(made.items, others))})
        return replace(own, document=messages.seal(named, self.run, self._account))

    monkeypatch.setattr(Worker, "_contribute", hostile)


def attacked(world: FilesWorld) -> messages.CommitRecord:
    """The commit record after outer step 1."""
    begin(world, 0, 1, 2)
    world.until(1)
    assert set(files_of(world, 0).values()) == set(NAMES[:3])
    world.until(2)
    return commits(world.coordinator.transport)[2]


@pytest.mark.parametrize("name", ATTACKS)
def test_a_worker_that_names_other_files_is_refused_with_words(
    name: str, world: FilesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, word = ATTACKS[name]
    sign_other_files(monkeypatch, chosen)
    commit = attacked(world)
    refused = told(world, messages.ContributionRefused)[0]
    assert refused.worker == BAD
    assert word in refused.why
    assert sorted(commit.made_of) == commit.counted == NAMES[:2]
    assert sorted(files_of(world, 1).values()) == sorted(NAMES[:2] * 3), "all files, each once, without it"
    assert word in world.coordinator.excluded[BAD]
    assert world.check()[-1].digest == world.coordinator.state.digest
    now = world.schedule
    assert now.members >= set(NAMES[:2])
    assert BAD in now.members | now.waiting, "it may come back"


def test_a_coordinator_that_lets_other_files_count_is_found_out(
    world: FilesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign_other_files(monkeypatch, ATTACKS["another's"][0])
    checks, turn = messages.Expected.check, world.coordinator.turn

    def blind() -> bool:
        monkeypatch.setattr(messages.Expected, "check", lambda self, made: None)
        try:
            return turn()
        finally:
            monkeypatch.setattr(messages.Expected, "check", checks)

    monkeypatch.setattr(world.coordinator, "turn", blind)
    with pytest.raises(MalformedContribution, match="against the partition"):
        attacked(world)


def test_a_contribution_of_an_attempt_that_is_over_is_refused(
    world: FilesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers of three are left, so one has more files than before; it hands in the old contribution again."""

    def stubborn(worker: Any, own: OwnContribution, now: Any) -> None:
        worker._own_contribution = replace(own, attempt=now.attempt)

    monkeypatch.setattr(Worker, "_offer_again", stubborn)
    begin(world, 0, 1, 2)
    while NAMES[0] not in world.schedule.documents:
        world.turn(slice(None) if world.schedule.awaits_files else slice(1))
    world.workers.pop(2)._sender.post("leave", world.schedule)
    for _ in range(20):
        world.turn()
    refused = told(world, messages.ContributionRefused)[0]
    assert refused.worker == NAMES[0]
    assert "against the partition" in refused.why


def test_what_was_judged_in_one_attempt_is_judged_anew_in_the_next(world: FilesWorld) -> None:
    """Also where a worker signs for the next one before that has begun."""
    begin(world, 0, 1, 2)
    while BAD not in world.schedule.documents:
        world.turn(slice(0 if world.schedule.awaits_files else 2, None))
    now, own = world.schedule, world.workers[2]._own_contribution
    assert own is not None
    world.workers[0]._sender.post("leave", now)
    world.workers[2]._sender.post("sign", replace(now, attempt=now.attempt + 1), own.digest)
    world.coordinator.turn()
    assert [one.worker for one in told(world, messages.ContributionRefused)] == [BAD]


# Exclusion.


def test_a_worker_that_is_refused_in_every_step_is_excluded_from_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = FilesWorld(files_run(3, 2), tmp_path)
    sign_other_files(monkeypatch, ATTACKS["one more"][0])
    begin(world, 0, 1, 2)
    world.until(6)
    world.start_coordinator()  # it forgets nothing
    assert set(world.schedule.strikes) == {BAD}
    worker = world.start(1)
    assert worker.log.schedule.strikes == world.schedule.strikes
    world.until(12)
    assert len(told(world, messages.ContributionRefused)) == 4, "of steps 1, 2, 4 and 8"
    now = world.schedule
    assert now.strikes == {BAD: messages.Strikes(count=4, until=16)}
    assert (now.members, now.waiting) == (frozenset(NAMES[:2]), frozenset({BAD}))
    assert world.coordinator.status()["backing_off"] == {BAD: 16}
    why = next(filter(None, (world.workers[2].turn() for _ in range(20))))
    assert "outer step 16 to begin" in why
    world.check()
    right = commits(world.coordinator.transport)[3]
    assert right.strikes == {BAD: messages.Strikes(count=2, until=4, made=0)}


def test_a_step_of_which_too_little_counts_is_not_begun_again_for_an_excluded_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That would go on without an end; a newcomer may be the one that was missing."""
    world = FilesWorld(files_run(3, 2), tmp_path)
    begin(world, 0, 1, 2)
    world.hold_before_commit()
    coordinator, draft = world.coordinator, world.coordinator._draft
    monkeypatch.setattr(coordinator_module, "settle", lambda _: (None, Admitted({}, {})))
    for out, fails in (("excluded", False), ("new", True)):
        strikes = {"excluded": messages.Strikes(count=7, until=64)}
        draft.schedule = replace(draft.schedule, waiting=frozenset({out}), strikes=strikes)
        before = draft.schedule.attempt
        coordinator._settle()
        assert (draft.schedule.attempt > before) == fails


def test_the_reason_of_a_refusal_is_no_terminal_command(world: FilesWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(data: bytes, expected: messages.Expected) -> messages.Contribution:
        raise MalformedContribution("bad\x1b[2J\nanother line")

    begin(world, 0, 1, 2)
    monkeypatch.setattr("diloco.messages.open_contribution", refuse)
    while not told(world, messages.ContributionRefused):
        world.turn()
    assert told(world, messages.ContributionRefused)[0].why == "bad?[2J?another line"
    assert messages.MAX_REASON == 200
