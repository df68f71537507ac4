"""Nobody asks the bucket for what cannot be there yet, or for what it has had: counted by request."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from protocol.encoding import sha256_hex
from protocol.sites.notes import NoteWhat
from protocol.sites.run import SitesRun
from storage.keys import MissingObjectError
from tests.trainer.sites.test_seldom import SetClock
from tests.trainer.sites.world import SITES, TRUSTED, MemoryBucket, SitesWorld, make_run
from trainer.sites.events import OuterPhase
from trainer.sites.exchange import SiteExchange
from trainer.sites.known_documents import KnownDocuments
from trainer.sites.note_reader import NoteReader
from trainer.sites.rhythm import Rhythm
from trainer.sites.schedule import Schedule


@pytest.fixture(autouse=True)
def looks_as_processes_do(looked_at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.sites.rhythm.SHARE", 0.75)
    monkeypatch.setattr("trainer.sites.note_reader.OTHERS_TIMES", 50.0)


class LookedAtBucket(MemoryBucket):
    """`looks`: by place, how often somebody looked; `gets`: by key."""

    def __init__(self) -> None:
        super().__init__()
        self.looks, self.gets = Counter[str](), Counter[str]()

    def look(self, place: str, limit: int) -> bytes | None:
        self.looks[place] += 1
        return super().look(place, limit)

    def get(self, key: str, limit: int) -> bytes:
        self.gets[key] += 1
        return super().get(key, limit)


def looked_at(rhythm: Rhythm, clock: SetClock, schedule: Schedule, seconds: float) -> list[float]:
    """Seconds after the phase began at which somebody who asks ten times a second looks, until it ends."""
    began, found = clock.now, []
    while clock.now < began + seconds - 0.01:
        if rhythm.due(schedule):
            found.append(round(clock.now - began, 1))
        clock.now += 0.1
    return found


def test_a_phase_is_looked_at_once_it_may_have_ended() -> None:
    clock, collect = SetClock(), Schedule(b"\1" * 32)
    rhythm, opening = Rhythm(clock), replace(collect, phase=OuterPhase.OPEN)
    assert len(looked_at(rhythm, clock, collect, 40.0)) == 400, "it is not known yet how long it takes"
    assert len(looked_at(rhythm, clock, opening, 29.0)) == 290
    found = looked_at(rhythm, clock, replace(collect, step=1), 40.0)
    assert 95 <= len([one for one in found if one >= 30.0]) <= 100, "three quarters of 40 s"
    assert len([one for one in found if one < 29.9]) <= 15, "every two seconds"
    assert len(looked_at(rhythm, clock, replace(opening, step=1), 29.0)) == 290, "a short one whenever it is asked"
    found = looked_at(rhythm, clock, replace(collect, step=2), 32.0)
    assert len(looked_at(rhythm, clock, replace(collect, step=3), 32.0)) > len(found), "of the shortest of three"


def test_a_long_phase_is_looked_at_every_two_seconds() -> None:
    clock, collect = SetClock(), Schedule(b"\1" * 32)
    rhythm = Rhythm(clock)
    looked_at(rhythm, clock, collect, 100.0)
    found = looked_at(rhythm, clock, replace(collect, attempt=1), 70.0)
    assert found[0] == pytest.approx(2.0, abs=0.11)
    assert len(found) == pytest.approx(35, abs=2)


def test_the_keeper_looks_for_one_after_the_other(tmp_path: Path) -> None:
    bucket = LookedAtBucket()
    run = make_run(4, "looking", admission=TRUSTED, training_seconds=1000, window_seconds=1000)
    world = SitesWorld(bucket, run, tmp_path)
    for number in range(4):
        world.start(number)
    world.until(1)
    while len(world.keeper.book.schedule.members) < 4:
        world.turn()
    world.until(world.keeper.state.step)
    keeper, book = world.keeper, world.keeper.book.draft()
    reader = NoteReader(keeper.exchange)
    assert list(reader.new(book)) == []
    bucket.looks.clear()
    reader._others._next = float("inf")
    for _ in range(10):
        assert list(reader.new(book)) == []
    assert sorted(bucket.looks.values()) == [10], "of four who have not signed"
    for number in (3, 2, 1):
        while not world.sites[number]._mouth.said_any("sign", book.schedule):
            world.sites[number].turn()
    assert list(reader.new(book)) == []
    while not world.sites[0]._mouth.said_any("sign", book.schedule):
        world.sites[0].turn()
    bucket.looks.clear()
    assert sorted(note.site for note in reader.new(book)) == sorted(str(one.address) for one in SITES[:4])
    assert sorted(bucket.looks.values()) == [1, 1, 1, 1]
    bucket.looks.clear()


def three_members(run: SitesRun, folder: Path) -> SitesWorld:
    """At the beginning of an outer step of which all three are."""
    world = SitesWorld(MemoryBucket(), run, folder)
    for number in range(3):
        world.start(number)
    world.until(1)
    while len(world.keeper.book.schedule.members) < 3:
        world.turn()
    world.until(world.keeper.state.step)
    return world


def test_who_is_silent_keeps_no_other_from_being_heard(tmp_path: Path) -> None:
    run = make_run(3, "silent", admission=TRUSTED, training_seconds=1000, window_seconds=1000)
    world = three_members(run, tmp_path)
    silent = world.sites.pop(0)
    for _ in range(2000):
        world.turn()
        if len(world.keeper.book.schedule.documents) == 2:
            break
    assert set(world.keeper.book.schedule.documents) == {str(one.address) for one in SITES[1:3]}
    assert silent.address not in world.keeper.book.schedule.documents


@pytest.mark.parametrize("phase", [OuterPhase.COLLECT, OuterPhase.PRODUCTS])
def test_who_has_spoken_just_before_time_is_up_is_not_silent(phase: OuterPhase, tmp_path: Path) -> None:
    run = make_run(
        3, "late", admission=TRUSTED, training_seconds=1000, window_seconds=1000, exchange="shards", shards=3
    )
    world = three_members(run, tmp_path)
    while world.keeper.book.schedule.phase != phase:
        for site in world.sites.values():
            site.turn()
        world.keeper.turn()
    keeper, silent = world.keeper, str(SITES[0].address)
    keeper._notes._others._next = float("inf")  # it has just looked
    what: NoteWhat = "sign" if phase == OuterPhase.COLLECT else "products"
    for number in (1, 2):
        while not world.sites[number]._mouth.said_any(what, keeper.book.schedule):
            world.sites[number].turn()
    keeper.turn(patience=60.0)
    assert keeper._next.schedule.phase == phase
    keeper._next.since = keeper._started = 0.0
    keeper.turn()
    assert keeper.book.schedule.barred == {silent}


@pytest.mark.parametrize("way", ["all", "shards"])
def test_each_document_is_fetched_once_by_a_process(way: str, tmp_path: Path) -> None:
    bucket = LookedAtBucket()
    run = make_run(3, "once", admission=TRUSTED, training_seconds=1000, window_seconds=1000, exchange=way, shards=3)
    world = SitesWorld(bucket, run, tmp_path)
    for number in range(3):
        world.start(number)
    world.until(4)
    made = {digest for one in world.keeper.book.chapters_back() for digest in one[1].made_of.values()}
    counts = [bucket.gets[f"contributions/{digest}"] for digest in made]
    assert counts
    assert max(counts) <= 4, "keeper and three sites"


def test_known_documents_are_few_and_no_longer_than_asked() -> None:
    known = KnownDocuments()
    known.keep("a", b"1234")
    assert known.get("a", 4) == b"1234"
    assert known.get("a", 3) is None
    assert known.get("b", 4) is None
    known.keep("long", bytes((1 << 18) + 1))
    assert known.get("long", 1 << 30) is None
    for number in range(70):
        known.keep(str(number), bytes(1 << 18))
    assert known.get("a", 4) is None, "used last longest ago"
    assert sum(known.get(str(number), 1 << 20) is not None for number in range(70)) == 64


def test_a_shard_is_fetched_from_the_bucket_each_time() -> None:
    """Payloads are held where they are needed, and no longer."""
    exchange = SiteExchange(bucket := LookedAtBucket(), make_run(3))
    exchange.publish(b"a document")
    digest = sha256_hex(b"a document")
    assert exchange.document(digest, 99) == exchange.document(digest, 99) == b"a document"
    assert bucket.gets[f"contributions/{digest}"] == 1
    bucket.objects.clear()
    assert exchange.document(digest, 99) == b"a document"
    with pytest.raises(MissingObjectError):
        exchange._fetch(digest, 99)
