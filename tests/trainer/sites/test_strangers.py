"""What strangers who may write to the bucket, or lose what lies there, cannot do: end a keeper or a site."""

from pathlib import Path

import pytest

from protocol.errors import IntegrityError
from protocol.sites.log import MAX_ENTRY_BYTES
from tests.trainer.sites.replaying import boundaries, held_at_the_end, replayed
from tests.trainer.sites.world import SITES, TRUSTED, MemoryBucket, SitesWorld, make_run

JUNK = (b"{}", b"x" * (MAX_ENTRY_BYTES + 1))


def run_of_two(home: Path) -> SitesWorld:
    run = make_run(2, "strangers", admission=TRUSTED, training_seconds=1000, inner_steps=1)
    world = SitesWorld(MemoryBucket(), run, home)
    for number in (0, 1):
        world.start(number)
    world.until(1)
    return world


def objects(world: SitesWorld) -> dict[str, bytes]:
    bucket = world.bucket
    assert isinstance(bucket, MemoryBucket)
    return bucket.objects


def test_junk_in_the_log_is_passed_over_by_all(tmp_path: Path) -> None:
    world = run_of_two(tmp_path)
    number = world.keeper.book.number
    for place, junk in ((number, JUNK[0]), (number + 1, JUNK[1]), (number + 3, JUNK[0]), (64, JUNK[0])):
        objects(world)[world.keeper.exchange._entry(place)] = junk
    world.until(3)
    world.start_keeper()
    world.start(0)
    world.until(world.keeper.state.step + 1)
    assert {site.state.digest for site in world.sites.values()} == {replayed(world.keeper.exchange)[-1].digest}


def test_a_second_keeper_is_no_stranger(tmp_path: Path) -> None:
    world = run_of_two(tmp_path)
    book = world.keeper.book
    world.until(book.boundary.step + 1)
    with pytest.raises(IntegrityError, match="run one keeper"):
        world.keeper.exchange.entry(book.number - 1, "ab" * 32)


def test_junk_among_a_sites_notes_is_passed_over(tmp_path: Path) -> None:
    world = run_of_two(tmp_path)
    site = str(SITES[0].address)
    for ahead, junk in enumerate(JUNK * 10):
        objects(world)[world.keeper.exchange._note(site, world.sites[0]._mouth._next + ahead)] = junk
    step = world.keeper.state.step
    world.until(step + 2)
    world.start(0)
    world.until(world.keeper.state.step + 1)
    assert all(len(one.made_of) == 2 for one in boundaries(world.keeper.exchange)[-3:])


def test_a_step_whose_payload_is_gone_is_taken_as_it_was_published(tmp_path: Path) -> None:
    world = run_of_two(tmp_path)
    late = world.sites.pop(1)
    while late.book.boundary.step == late.state.step:
        world.turn()
        late.turn()
    for place in [place for place in objects(world) if place.startswith("contributions/")]:
        del objects(world)[place]
    assert late.turn() == ""
    assert late.state.digest.hex() == late.book.boundary.digest


def test_a_payload_is_sent_again_in_another_attempt(tmp_path: Path) -> None:
    world = run_of_two(tmp_path)
    keeper = world.keeper
    held_at_the_end(world)
    gone = [place for place in objects(world) if place.startswith("contributions/")]
    for place in gone:
        del objects(world)[place]
    keeper._handed.begin(-1, -1)  # as after a restart
    step = keeper.state.step
    world.until(step + 1)
    assert any(one.attempt for one in boundaries(world.keeper.exchange)[-2:])
