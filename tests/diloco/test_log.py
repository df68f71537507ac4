"""The log: an entry is taken whole or not at all, one coordinator writes one log whatever becomes of its requests and
processes, and strangers who may write to the bucket, or lose what lies there, end nobody."""

import random
import time
from pathlib import Path
from typing import Any

import pytest

from diloco import messages
from diloco.log import Log, LogWriter, make_step
from diloco.transport import Transport
from protocol.encoding import sha256_hex
from protocol.errors import IntegrityError, UnreachableError
from tests.diloco.world import COORDINATOR, NAMES, TRUSTED, DilocoWorld, Killed, MemoryBucket, commits, make_run

JUNK = (b"{}", b"x" * (messages.MAX_ENTRY_BYTES + 1))


def world_of(home: Path, workers: int = 3, **settings: Any) -> DilocoWorld:
    given: dict[str, Any] = {"admission": TRUSTED, "training_seconds": 1000, "window_seconds": 1000} | settings
    world = DilocoWorld(make_run(workers, "log", **given), home).begin(*range(workers), step=1)
    while len(world.schedule.members) < workers:
        world.turn()
    world.until(world.coordinator.state.step)
    return world


def entry_of(log: Log, *events: messages.LogEvent) -> messages.LogEntry:
    """The next one, as a coordinator writes it that heeds no rule."""
    epoch = log.number if isinstance(events[-1], messages.CommitRecord) else log.epoch
    return messages.LogEntry(
        run=log.transport.run.digest, number=log.number, previous=log.tip, epoch=epoch, time=time.time(),
        events=list(events),
    )  # fmt: skip


def signed(worker: int, document: str = "ab") -> messages.ContributionSigned:
    return messages.ContributionSigned(worker=NAMES[worker], message=7 + worker, document=document * 32)


def all_follow(world: DilocoWorld) -> Log:
    for worker in world.workers.values():
        while worker.log.advance() is not None:
            pass
    return world.coordinator.log


BAD: dict[str, tuple[messages.LogEvent, str]] = {
    "of another attempt": (messages.PhaseFailed(attempt=9, phase="collect"), "changes nothing"),
    "the same once more": (signed(0), "changes nothing"),
    "of a stranger": (messages.Joined(worker=NAMES[5], message=0, digest="ab" * 32), "is no worker of"),
    "a commit record": (messages.CommitRecord(step=1, digest="ab" * 32), "changes nothing"),
}


@pytest.mark.parametrize("name", BAD)
def test_one_bad_event_among_good_ones_and_nothing_is_taken(name: str, tmp_path: Path) -> None:
    world = world_of(tmp_path)
    log, worker = all_follow(world), world.workers[0]
    bad, words = BAD[name]
    before = vars(worker.log.draft())
    entry = entry_of(log, signed(0), signed(1), bad)
    assert worker.transport.append(log.number, messages.seal(entry, world.run, COORDINATOR))
    for _ in range(2):
        with pytest.raises(IntegrityError, match=words):
            worker.turn()
        assert vars(worker.log) == before
    worker.log.take(entry_of(worker.log, signed(0), signed(1)), "ab" * 32)
    assert worker.log.schedule.documents == {NAMES[0]: "ab" * 32, NAMES[1]: "ab" * 32}
    assert (worker.log.number, worker.log.tip) == (before["number"] + 1, "ab" * 32)


def test_a_commit_record_of_other_members_is_refused(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.until(3)
    right = commits(world.coordinator.transport)[3]
    assert right.previous is not None
    changes: tuple[dict[str, Any], ...] = (
        {"members": [], "waiting": right.members}, {"made_of": {}}, {"previous": 0}, {"step": 4},
    )  # fmt: skip
    for change in changes:
        log = Log.at(world.coordinator.transport, right.previous)
        while (found := log.transport.next_entry(log.number, log.tip)) is not None and found[0].commit is None:
            log.take(*found)
        assert found is not None
        for event in found[0].events[:-1]:
            log.apply(event)
        with pytest.raises(IntegrityError, match=r"does not follow|other members"):
            log.apply(right.model_copy(update=change))
        log.apply(right)


def test_a_step_takes_few_entries(tmp_path: Path) -> None:
    """Whatever the coordinator finds in one turn is one entry."""
    world = world_of(tmp_path)
    for _ in range(3):
        before, step = world.coordinator.log.number, world.coordinator.state.step
        while world.coordinator.state.step == step:
            world.turn()
        assert world.coordinator.log.number - before <= 4
    world.until(world.coordinator.state.step)
    world.check()


def test_more_than_an_entry_holds_takes_more_entries(tmp_path: Path) -> None:
    world = DilocoWorld(make_run(6, "full", admission=TRUSTED, training_seconds=1000), tmp_path)
    writer, log = LogWriter(world.coordinator.log, COORDINATOR), world.coordinator.log
    first, told = log.number, 0
    while log.number == first:
        event: messages.LogEvent = messages.Left(worker=NAMES[0], message=told)
        if told % 2 == 0:
            event = messages.Joined(worker=NAMES[0], message=told, digest=log.schedule.digest)
        writer.add(event)
        told += 1
    assert told == messages.MAX_EVENTS + 1
    writer.write()
    reader = Log.at(world.coordinator.transport, 0)
    assert [len(entry.events) for entry in iter(reader.advance, None)] == [messages.MAX_EVENTS, 1]
    assert reader.schedule == log.schedule


class LossyBucket(MemoryBucket):
    """Of entries of the log every few are lost before or after they arrive, with an error or with the process; a
    stranger takes some of their places."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random, self.calm = random.Random(seed), True

    def _put(self, key: str, data: bytes, sha256: bytes) -> bool:
        fate = self._random.random() if "/log/" in key and not self.calm else 1.0
        if fate < 0.1 and not key.endswith("0000000000"):
            self.objects.setdefault(key, b"a stranger's")
        if 0.1 <= fate < 0.25:
            super()._put(key, data, sha256)
        if 0.05 <= fate < 0.35:
            raise UnreachableError("the answer did not come") if fate < 0.2 else Killed
        return super()._put(key, data, sha256)


@pytest.mark.parametrize("seed", range(6))
def test_lost_answers_kills_and_taken_places_leave_one_log(seed: int, tmp_path: Path) -> None:
    bucket = LossyBucket(seed)
    world = DilocoWorld(make_run(3), tmp_path, bucket).begin(0, 1, 2)
    bucket.calm, kills, losses = False, 0, 0
    while world.coordinator.state.step < 12:
        try:
            world.coordinator.turn()
        except UnreachableError:
            losses += 1
        except Killed:
            kills += 1
            world.start_coordinator()
        for worker in world.workers.values():
            worker.turn()
    assert kills
    assert losses
    world.until(12)
    states = world.check()
    assert [one.step for one in states] == list(range(len(states)))
    assert world.coordinator.state.digest == states[-1].digest


def test_an_entry_whose_answer_was_lost_is_written_again_byte_for_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(tmp_path)
    world.hold_before_commit()
    coordinator, lost = world.coordinator, list[bytes]()

    def losing(number: int, entry: bytes) -> bool:
        lost.append(entry)
        raise UnreachableError("the answer did not come")

    step = coordinator.state.step
    with monkeypatch.context() as patch:
        patch.setattr(coordinator.transport, "append", losing)
        for _ in range(3):
            with pytest.raises(UnreachableError):
                coordinator.turn()
    assert len(set(lost)) == 1
    assert coordinator.state.step == step
    assert coordinator.turn()
    assert coordinator.state.step == step + 1
    assert coordinator.log.tip == sha256_hex(lost[0])


def test_junk_in_the_log_and_among_messages_is_skipped_and_a_second_coordinator_is_no_stranger(tmp_path: Path) -> None:
    world = world_of(tmp_path, 2, inner_steps=1)
    log, transport = world.coordinator.log, world.coordinator.transport
    with pytest.raises(IntegrityError, match="run one coordinator"):
        transport.entry(log.number - 1, "ab" * 32)
    for place, junk in ((log.number, JUNK[0]), (log.number + 1, JUNK[1]), (log.number + 3, JUNK[0]), (64, JUNK[0])):
        world.objects[transport._entry_place(place)] = junk
    for ahead, junk in enumerate(JUNK * 10):
        world.objects[transport._message_place(NAMES[0], world.workers[0]._sender.next + ahead)] = junk
    world.until(world.coordinator.state.step + 2)
    world.start_coordinator()
    world.begin(0, step=world.coordinator.state.step + 1).check()
    assert all(len(one.made_of) == 2 for one in commits(transport)[-3:])


def lose_contributions(world: DilocoWorld) -> None:
    for place in [place for place in world.objects if place.startswith("contributions/")]:
        del world.objects[place]


def test_a_step_whose_payload_is_gone_is_taken_as_it_was_published(tmp_path: Path) -> None:
    world = world_of(tmp_path, 2, inner_steps=1)
    late = world.workers.pop(1)
    while late.log.commit.step == late.state.step:
        world.turn()
        late.turn()
    lose_contributions(world)
    late._gathered.clear()
    assert late.turn() == ""
    assert late.state.digest.hex() == late.log.commit.digest


def test_a_payload_is_sent_again_in_another_attempt(tmp_path: Path) -> None:
    world = world_of(tmp_path, 2, inner_steps=1)
    coordinator = world.coordinator
    world.hold_before_commit()
    lose_contributions(world)
    coordinator._gathered._attempt = (-1, -1)  # as after a restart
    world.until(coordinator.state.step + 1)
    assert any(one.attempt for one in commits(coordinator.transport)[-2:])


# Who is no worker of the run's document has no part in it, whatever the coordinator signs.


@pytest.mark.parametrize("where", ["members", "waiting"])
def test_nobody_begins_at_a_commit_record_that_names_an_outsider(where: str) -> None:
    run = make_run(2, "log", admission=TRUSTED)
    transport = Transport(MemoryBucket(), run)
    commit = messages.CommitRecord.model_validate({"step": 0, "digest": "ab" * 32, where: [NAMES[3]]})
    entry = messages.LogEntry(run=run.digest, number=0, previous=messages.NO_ENTRY, epoch=0, time=0, events=[commit])
    assert transport.append(0, messages.seal(entry, run, COORDINATOR))
    with pytest.raises(IntegrityError, match="is no worker of log"):
        Log.newest(transport)


def test_a_step_that_an_outsider_contributed_to_does_not_follow(tmp_path: Path) -> None:
    world = world_of(tmp_path, 2)
    world.until(3)
    transport = world.coordinator.transport
    states, made = world.replayed(), commits(transport)
    step = next(one.step for one in made if len(one.made_of) == 2)
    alone = transport.run.model_copy(update={"workers": transport.run.workers[:1]})
    with pytest.raises(IntegrityError, match="is no worker of log"):
        make_step(Transport(world.bucket, alone), states[step - 1], made[step])
