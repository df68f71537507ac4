"""Files given to sites that cannot be used: waited for by name, not for ever, then dealt to others, or skipped."""

from pathlib import Path

import pytest

from protocol.errors import IntegrityError
from protocol.sites.log import Unusable
from tests.trainer.sites.files_world import BAD, NAMES, FilesWorld, file_at, run_of
from tests.trainer.sites.world import MemoryBucket
from trainer.sites.timeouts import Patience


@pytest.fixture
def world(tmp_path: Path) -> FilesWorld:
    return FilesWorld(MemoryBucket(), run_of(3), tmp_path)


def test_a_file_that_one_site_cannot_have_is_dealt_to_the_others(world: FilesWorld) -> None:
    world.begin(0, 1, 2)
    world.sites[2].inner.gone = {file_at(0, number) for number in range(6)}  # type: ignore[attr-defined]
    world.until(1)
    named = [one for one in world.events() if isinstance(one, Unusable)]
    assert [one.site for one in named] == [BAD]
    assert len(named[0].items) == 2
    assert sorted(world.files_of(0).values()) == sorted(NAMES[:2] * 3)
    world.until(3)
    assert sorted(world.files_of(2).values()) == sorted(NAMES[:3] * 2), "it is back"
    assert world.replayed().digest == world.keeper.state.digest


@pytest.mark.parametrize("minimum", [1, 2])
def test_a_file_that_nobody_can_have_is_left_out_of_its_step(minimum: int, tmp_path: Path) -> None:
    gone = {file_at(1, 3)}
    world = FilesWorld(MemoryBucket(), run_of(3, minimum), tmp_path, gone=gone)
    world.begin(0, 1, 2)
    world.until(2)
    files = world.files_of(1)
    assert [file for file, site in files.items() if not site] == sorted(gone)
    assert len([site for site in files.values() if site in NAMES]) == 5
    named = [one for one in world.events() if isinstance(one, Unusable)]
    assert len(named) == 4 - minimum, "as many as there are, less those that a step needs, and one more"
    assert len({one.site for one in named}) == len(named)
    world.until(4)
    assert all(world.files_of(3).values())
    assert {site.state.digest for site in world.sites.values()} == {world.replayed().digest}


def test_a_step_of_which_no_file_can_be_had_changes_nothing(tmp_path: Path) -> None:
    gone = {file_at(1, number) for number in range(6)}
    world = FilesWorld(MemoryBucket(), run_of(3), tmp_path, gone=gone)
    world.begin(0, 1)
    world.given = 2
    world.until(1)
    before = world.keeper.state
    world.until(2)
    after = world.keeper.state
    assert after.step == 2
    assert all((after.weights[name] == one).all() for name, one in before.weights.items())
    assert set(world.files_of(1).values()) == {""}
    world.until(3)
    assert world.keeper.state.weights["table"].tolist() != after.weights["table"].tolist()
    assert world.start(2).state.digest == world.keeper.state.digest == world.replayed().digest


def test_a_step_with_fewer_files_than_it_needs_sites_changes_nothing(tmp_path: Path) -> None:
    gone = {file_at(1, number) for number in range(5)}
    world = FilesWorld(MemoryBucket(), run_of(2, 2), tmp_path, gone=gone, given=2)
    world.begin(0, 1)
    world.until(3)
    assert set(world.files_of(1).values()) == {""}
    assert set(world.files_of(2).values()) == set(NAMES[:2])
    assert world.keeper.state.digest == world.replayed().digest


def test_who_names_others_files_is_not_heeded(world: FilesWorld) -> None:
    world.begin(0, 1, 2)
    while not world.keeper.book.items:
        world.turn()
    now, book = world.keeper.book.schedule, world.keeper.book
    other = book.dealt_as(NAMES[0])[-1]
    assert book.dealing is not None
    assert other in book.dealing.of(NAMES[0])
    world.sites[2]._mouth.say("unusable", now, None, [other])
    world.until(1)
    assert not any(isinstance(one, Unusable) for one in world.events())
    with pytest.raises(IntegrityError, match="names files that are not dealt to it"):
        book.next(Unusable(site=BAD, note=99, items=["ab" * 32]))


def test_a_file_is_waited_for_by_name_and_not_for_ever(world: FilesWorld, caplog: pytest.LogCaptureFixture) -> None:
    world.begin(0, 1, 2)
    bad, clock = world.sites[2], [0.0]
    bad._patience = Patience(50.0, lambda: clock[0])
    bad.inner.gone = {file_at(0, number) for number in range(6)}  # type: ignore[attr-defined]
    for _ in range(40):
        world.turn()
    why = bad.turn()
    assert why.startswith("file 00")
    assert why.endswith("(at most 50 s, then it is named in the log)")
    clock[0] = 49.0
    assert bad.turn() == why
    assert not any(isinstance(one, Unusable) for one in world.events())
    clock[0] = 51.0
    assert "to go on without this site" in bad.turn()
    world.until(1)


def test_a_file_that_another_site_has_named_is_waited_for_no_longer(world: FilesWorld) -> None:
    world.gone |= {file_at(0, 0)}
    world.begin(0, 1, 2)
    for site in world.sites.values():
        site._patience.seconds = 1e9
    while not world.keeper.book.items:
        world.turn()
    first = next(name for name in NAMES if file_at(0, 0) in world.keeper.book.dealt_as(name))
    world.sites[NAMES.index(first)]._patience.seconds = 0.0
    world.until(1)
    assert world.files_of(0)[file_at(0, 0)] == ""


def test_a_file_that_is_malformed_is_named_at_once(world: FilesWorld) -> None:
    world.gone |= {file_at(0, 0)}
    world.begin(0, 1, 2)
    for site in world.sites.values():
        site._patience.seconds = 1e9
        site.inner.for_good = True  # type: ignore[attr-defined]
    world.until(1)
    assert world.files_of(0)[file_at(0, 0)] == ""


def test_a_site_that_was_killed_hands_in_nothing_of_files_that_are_left_out_since(world: FilesWorld) -> None:
    """Its contribution is on its disk, made among the same members, of more files."""
    world.given = 2
    world.begin(0, 1)
    while world.sites[0]._own is None:
        world.keeper_turn()
        for site in list(world.sites.values())[: None if world.keeper.book.items is None else 1]:
            site.turn()
    mine = world.sites[0].book.dealt_as(NAMES[0])
    assert world.sites[0]._own.dealt == mine
    again = world.start(0)
    again.turn()
    assert again._own is not None
    assert again._own.dealt == mine
    again.book.skipped = frozenset([mine[-1]])
    again._offer_again(again._own)
    assert again._own is None
