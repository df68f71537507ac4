"""An entry of several events is taken whole or not at all, and a run makes its steps in few entries."""

import time
from pathlib import Path

import pytest

from protocol.encoding import sha256_hex
from protocol.errors import IntegrityError, UnreachableError
from protocol.sites.log import MAX_ENTRY_BYTES, MAX_EVENTS, Boundary, LogEntry, LogEvent, Noted, TimeUp, seal_entry
from tests.trainer.sites.replaying import held_at_the_end, replayed
from tests.trainer.sites.test_log_writer import KeeperKilled
from tests.trainer.sites.world import KEEPER, SITES, TRUSTED, MemoryBucket, SitesWorld, make_run
from trainer.sites.drafted_log import DraftedLog
from trainer.sites.exchange import SiteExchange
from trainer.sites.log_writer import LogWriter
from trainer.sites.logbook import Logbook

NAMES = [str(one.address) for one in SITES]


def world_of(home: Path, sites: int = 3, bucket: MemoryBucket | None = None, exchange: str = "all") -> SitesWorld:
    run = make_run(
        sites, "entries", admission=TRUSTED, training_seconds=1000, window_seconds=1000, shards=sites, exchange=exchange
    )
    world = SitesWorld(bucket or MemoryBucket(), run, home)
    for number in range(sites):
        world.start(number)
    world.until(1)
    while len(world.keeper.book.schedule.members) < sites:
        world.turn()
    world.until(world.keeper.state.step)
    return world


def entry_of(book: Logbook, *events: LogEvent) -> LogEntry:
    """The next one, as a keeper writes it that heeds no rule."""
    return LogEntry(
        run=book.exchange.run.digest, number=book.number, previous=book.tip, chapter=book.chapter, time=time.time(),
        events=list(events),
    )  # fmt: skip


def signed(site: int, digest: str = "ab") -> Noted:
    return Noted(site=NAMES[site], note=7 + site, what="sign", digest=digest * 32)


def all_follow(world: SitesWorld) -> Logbook:
    """The keeper's book, once all sites have read as far."""
    for site in world.sites.values():
        while site.book.advance() is not None:
            pass
    return world.keeper.book


BAD: dict[str, tuple[LogEvent, str]] = {
    "of another attempt": (TimeUp(attempt=9, phase="collect"), "changes nothing"),
    "the same once more": (signed(0), "changes nothing"),
    "of a stranger": (Noted(site=NAMES[5], note=0, what="join", digest="ab" * 32), "is no site of"),
    "what a site did not say": (Noted(site=NAMES[0], note=77, what="leave"), "a word of"),
    "a boundary": (Boundary(step=1, digest="ab" * 32), "changes nothing"),
}


@pytest.mark.parametrize("name", BAD)
def test_one_bad_event_among_good_ones_and_nothing_is_taken(name: str, tmp_path: Path) -> None:
    world = world_of(tmp_path)
    book, site = all_follow(world), world.sites[0]
    bad, words = BAD[name]
    before = vars(site.book.draft())
    entry = entry_of(book, signed(0), signed(1), bad)
    if isinstance(bad, Boundary):
        entry = entry.model_copy(update={"chapter": entry.number})
    assert site.exchange.append(book.number, seal_entry(entry, world.run, KEEPER))
    for _ in range(2):
        with pytest.raises(IntegrityError, match=words):
            site.turn()
        assert vars(site.book) == before
    good = entry_of(site.book, signed(0), signed(1))
    site.book.take(good, "ab" * 32)
    assert site.book.schedule.documents == {NAMES[0]: "ab" * 32, NAMES[1]: "ab" * 32}
    assert (site.book.number, site.book.tip) == (before["number"] + 1, "ab" * 32)


def test_each_event_is_checked_as_it_stands_after_those_before_it(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    book, seen = all_follow(world), list[tuple[int, int]]()

    def look(before: Logbook, event: LogEvent) -> None:
        seen.append((len(before.schedule.documents), before.number))

    book.take(entry_of(book, signed(0), signed(1)), "ab" * 32, look)
    assert seen == [(0, book.number - 1), (1, book.number - 1)]


@pytest.mark.parametrize(("exchange", "most"), [("all", 2), ("shards", 5)])
def test_a_step_takes_few_entries(exchange: str, most: int, tmp_path: Path) -> None:
    """Whatever the keeper finds in one look is one entry."""
    world = world_of(tmp_path, exchange=exchange)
    for _ in range(3):
        before, step = world.keeper.book.number, world.keeper.state.step
        while world.keeper.state.step == step:
            world.keeper.turn(patience=60.0)
            for site in world.sites.values():
                site.turn()
        assert world.keeper.book.number - before <= most
    world.until(world.keeper.state.step)
    assert {site.state.digest for site in world.sites.values()} == {replayed(world.keeper.exchange)[-1].digest}


def test_what_nobody_acts_on_waits_no_longer_than_it_may(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    keeper, site, book = world.keeper, world.sites[0], all_follow(world)
    while not site._mouth.said_any("sign", book.schedule):
        site.turn()
    assert not keeper.turn(patience=60.0)
    assert NAMES[0] not in book.schedule.documents
    keeper._written._since -= 61.0
    assert keeper.turn(patience=60.0)
    assert NAMES[0] in book.schedule.documents


def test_more_than_an_entry_holds_takes_more_entries(tmp_path: Path) -> None:
    run = make_run(6, "full", admission=TRUSTED, training_seconds=1000)
    exchange = SiteExchange(MemoryBucket(), run)
    world = SitesWorld(exchange._bucket, run, tmp_path)
    writer, book = LogWriter(exchange, KEEPER, tmp_path / "keeper"), world.keeper.book
    draft = DraftedLog(writer, book)
    first, told = book.number, 0
    while book.number == first:
        what = "leave" if told % 2 else "join"
        digest = None if told % 2 else book.schedule.digest.hex()
        draft.add(Noted.model_validate({"site": NAMES[0], "note": told, "what": what, "digest": digest}))
        told += 1
    assert told == MAX_EVENTS + 1
    data = exchange.stored_entry(first)
    assert data is not None
    assert len(data) < MAX_ENTRY_BYTES
    draft.write()
    reader = Logbook.at(exchange, 0)
    assert [len(entry.events) for entry in iter(reader.advance, None)] == [MAX_EVENTS, 1]
    assert reader.schedule == book.schedule


class DyingBucket(MemoryBucket):
    """Which is there `until` so many more entries of the log were written; the next one arrives, or not, and kills."""

    def __init__(self) -> None:
        super().__init__()
        self.until, self.arrives = -1, False

    def put_first(self, place: str, data: bytes) -> bool:
        if "/log/" in place:
            self.until -= 1
            if self.until == -1:
                if self.arrives:
                    super().put_first(place, data)
                raise KeeperKilled
        return super().put_first(place, data)


@pytest.mark.parametrize("arrives", [False, True])
@pytest.mark.parametrize("exchange", ["all", "shards"])
def test_a_keeper_that_is_killed_between_two_entries_goes_on(exchange: str, arrives: bool, tmp_path: Path) -> None:
    """Also where it has gathered events that it has not told of."""
    bucket = DyingBucket()
    world = world_of(tmp_path, bucket=bucket, exchange=exchange)
    bucket.arrives = arrives
    for number in range(5):
        bucket.until, step, killed = number, world.keeper.state.step, False
        while world.keeper.state.step < step + 3:
            try:
                world.keeper.turn(patience=0.01)
            except KeeperKilled:
                killed = True
                world.start_keeper()
            for site in world.sites.values():
                site.turn()
        assert killed
        bucket.until = -1
    world.until(world.keeper.state.step)
    assert {site.state.digest for site in world.sites.values()} == {replayed(world.keeper.exchange)[-1].digest}
    numbers = [boundary.step for _, boundary in world.keeper.book.chapters_back()]
    assert numbers == list(range(len(numbers)))[::-1]


def test_an_entry_whose_answer_was_lost_is_written_again_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(tmp_path)
    held_at_the_end(world)
    keeper, lost = world.keeper, list[bytes]()

    def losing(number: int, entry: bytes) -> bool:
        lost.append(entry)
        raise UnreachableError("the answer did not come")

    step = keeper.state.step
    with monkeypatch.context() as patch:
        patch.setattr(keeper.exchange, "append", losing)
        for _ in range(3):
            with pytest.raises(UnreachableError):
                keeper.turn()
    assert len(set(lost)) == 1
    assert keeper.state.step == step
    assert keeper.turn()
    assert keeper.state.step == step + 1
    assert keeper.book.tip == sha256_hex(lost[0])
