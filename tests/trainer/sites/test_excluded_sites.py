"""A site that is refused in every step, over a bucket: left out by keeper and sites alike, also by those that come
later or come back."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import trainer.sites.site as site_module
from protocol.errors import IntegrityError
from protocol.sites.log import Boundary, ContributionRefused, LogEvent, MarksOfSite, Noted, Unusable
from tests.trainer.sites.files_world import BAD, NAMES, FilesWorld, file_at, run_of
from tests.trainer.sites.replaying import book_before, held_at_the_end
from tests.trainer.sites.test_bound_files import ATTACKS, OtherFiles
from tests.trainer.sites.world import MemoryBucket
from trainer.sites.exclusion import SiteMarks
from trainer.sites.handed_in import StepOutcome
from trainer.sites.site import Site


@pytest.fixture
def world(tmp_path: Path) -> FilesWorld:
    return FilesWorld(MemoryBucket(), run_of(3, 2), tmp_path)


def refusals(world: FilesWorld) -> int:
    return sum(isinstance(one, ContributionRefused) for one in world.events())


def test_a_site_that_is_refused_in_every_step_is_left_out_of_most(
    world: FilesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_module, "make_own", OtherFiles(ATTACKS["one more"][0]))
    world.begin(0, 1, 2)
    world.until(6)
    world.start_keeper()  # it forgets nothing
    assert set(world.keeper.book.schedule.marks) == {BAD}
    site = world.start(1)
    assert site.book.schedule.marks == world.keeper.book.schedule.marks
    world.until(12)
    assert refusals(world) == 4, "of steps 1, 2, 4 and 8"
    book = world.keeper.book
    assert book.schedule.marks == {BAD: SiteMarks(4, 16)}
    assert book.schedule.members == set(NAMES[:2])
    assert book.schedule.waiting == {BAD}
    assert world.keeper.status()["left_out"] == {BAD: 16}
    why = next(filter(None, (world.sites[2].turn() for _ in range(20))))
    assert "outer step 16 to begin" in why
    assert sorted(world.files_of(11).values()) == sorted(NAMES[:2] * 3)
    assert {one.state.digest for one in world.sites.values()} == {world.replayed().digest}


def test_a_site_that_cannot_have_its_files_is_back_in_every_fourth_step(world: FilesWorld) -> None:
    world.begin(0, 1, 2)
    world.sites[2].inner.gone = {file_at(s, n) for s in range(20) for n in range(6)}  # type: ignore[attr-defined]
    world.until(12)
    assert sum(isinstance(one, Unusable) for one in world.events()) == 5, "of steps 0, 1, 3, 7 and 11"


def test_a_file_that_nobody_can_have_is_held_against_nobody(tmp_path: Path) -> None:
    gone = {file_at(step, 3) for step in range(1, 4)}
    world = FilesWorld(MemoryBucket(), run_of(3, 2), tmp_path, gone=gone)
    world.begin(0, 1, 2)
    world.until(5)
    assert world.keeper.book.schedule.marks == {}


def test_a_boundary_that_leaves_out_somebody_else_is_refused(
    world: FilesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_module, "make_own", OtherFiles(ATTACKS["one more"][0]))
    world.begin(0, 1, 2)
    world.until(3)
    right = next(one for one in world.events() if isinstance(one, Boundary) and one.step == 3)
    assert right.marks == {BAD: MarksOfSite(marks=2, until=4, made=0)}
    assert right.before is not None
    for marks in ({}, right.marks | {NAMES[0]: MarksOfSite(marks=7, until=66, made=0)}):
        book = book_before(world.keeper.exchange, right)
        assert book.next(right).marks == {BAD: SiteMarks(2, 4)}
        with pytest.raises(IntegrityError, match="leaves out others"):
            book.next(right.model_copy(update={"marks": marks}))


def go_on(site: Site) -> None:
    for _ in range(20):
        site.turn()


def one_turn_before(world: FilesWorld, *silent: int) -> None:
    """Files are given, and all sites but those of `silent` have signed; the sites have read so far."""
    world.begin(0, 1, 2)
    while world.keeper.book.items is None or len(world.keeper.book.schedule.documents) < 3 - len(silent):
        world.keeper_turn()
        for number, site in world.sites.items():
            if number not in silent or world.keeper.book.items is None:
                site.turn()
    for number, site in world.sites.items():
        while number not in silent and site.book.advance() is not None:
            pass


FORGED: dict[str, Callable[[int], LogEvent]] = {
    "leaves": lambda note: Noted(site=NAMES[0], note=note, what="leave"),
    "signs another": lambda note: Noted(site=NAMES[0], note=note, what="sign", digest="ab" * 32),
    "is refused what it did not sign": lambda note: ContributionRefused(
        site=BAD, note=note, document="ab" * 32, why="it is none"
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_keeper_that_makes_up_words_of_a_site_is_found_out(name: str, world: FilesWorld) -> None:
    """By all of them: the note that it names says something else."""
    one_turn_before(world, 2)
    joins = world.sites[2 if "refused" in name else 0]._mouth
    joins.say("join", world.keeper.book.schedule, "cd" * 32)
    world.keeper._tell(FORGED[name](joins._next - 1))
    for number in (0, 1):
        before = world.sites[number].book.number
        with pytest.raises(IntegrityError, match=f"did not say in note {joins._next - 1}"):
            world.sites[number].turn()
        assert world.sites[number].book.number == before, "it is not taken, nor after a restart"


def test_a_keeper_that_makes_up_unusable_files_is_found_out(world: FilesWorld) -> None:
    one_turn_before(world, 2)
    mine = world.keeper.book.dealing
    assert mine is not None
    world.keeper._tell(Unusable(site=BAD, note=0, items=list(mine.of(BAD)[:1])))
    with pytest.raises(IntegrityError, match="did not say in note 0"):
        world.sites[0].turn()


def test_words_of_an_attempt_that_is_over_are_not_held_against_a_site(world: FilesWorld) -> None:
    """A keeper takes what a site signed for the attempt before, of other files, and has it refused."""
    one_turn_before(world, 1, 2)
    first = world.keeper.book.schedule
    old, note = first.documents[NAMES[0]], world.keeper.book.signed[NAMES[0]]
    world.sites.pop(1)._mouth.say("leave", first, None)
    world.keeper_turn()
    assert world.keeper.book.schedule.attempt == first.attempt + 1
    world.keeper._tell(ContributionRefused(site=NAMES[0], note=note, document=old, why="of other files"))
    world.sites[0].turn()
    assert world.sites[0].book.schedule.attempt == first.attempt + 1
    with pytest.raises(IntegrityError, match="did not say in note"):
        world.sites[0].turn()


def test_a_word_that_the_log_has_had_is_not_held_against_a_site_again(world: FilesWorld) -> None:
    one_turn_before(world, 2)
    world.sites[1]._mouth.say("leave", world.keeper.book.schedule, None)
    world.keeper_turn()
    world.sites[1].turn()
    left = world.sites[1]._mouth._next - 1
    world.until(2)
    world.keeper._tell(Noted(site=NAMES[1], note=left, what="leave"))
    for site in (world.sites[0], world.sites[1]):
        with pytest.raises(IntegrityError, match=f"did not say in note {left}"):
            go_on(site)


def test_of_words_that_are_gone_the_keepers_stand_but_not_to_their_site(world: FilesWorld) -> None:
    one_turn_before(world, 2)
    world.keeper._tell(Noted(site=NAMES[0], note=77, what="leave"))
    world.sites[1].turn()
    assert NAMES[0] not in world.sites[1].book.schedule.members
    with pytest.raises(IntegrityError, match="did not say in note 77"):
        world.sites[0].turn()


def test_a_site_that_signs_two_contributions_is_left_out_by_its_own_words(world: FilesWorld) -> None:
    one_turn_before(world, 2)
    now = world.keeper.book.schedule
    world.sites[1]._mouth.say("sign", now, "ab" * 32)
    world.keeper.exchange.publish(b"no contribution")
    world.keeper._tell(Noted(site=NAMES[1], note=world.sites[1]._mouth._next - 1, what="sign", digest="ab" * 32))
    for number in (0, 1):
        world.sites[number].turn()
        assert NAMES[1] in world.sites[number].book.schedule.barred


def test_a_keeper_that_makes_up_a_sites_first_signature_is_found_out_by_its_second(world: FilesWorld) -> None:
    one_turn_before(world, 2)
    bad, mouth = world.sites[2], world.sites[2]._mouth
    for _ in range(20):
        if bad._own is None:
            bad.turn()
    own = bad._own
    assert own is not None
    bad.exchange.publish(own.document)
    mouth.say("join", world.keeper.book.schedule, "cd" * 32)
    world.keeper._tell(Noted(site=BAD, note=mouth._next - 1, what="sign", digest="ab" * 32))
    mouth.say("sign", world.keeper.book.schedule, own.digest)
    world.keeper_turn()
    assert BAD in world.keeper.book.schedule.barred
    with pytest.raises(IntegrityError, match=f"{BAD} \\(sign\\) that it did not say"):
        go_on(world.sites[0])


def test_a_step_of_which_too_little_counts_is_not_begun_again_for_who_is_left_out(
    world: FilesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That would go on without an end; a newcomer may be the one that was missing."""
    one_turn_before(world)
    held_at_the_end(world)
    keeper, book = world.keeper, world.keeper._next
    monkeypatch.setattr(keeper._handed, "outcome", lambda *_: StepOutcome(None, {}, {}))
    monkeypatch.setattr(keeper, "_waited", lambda: 0.0)
    for out, fails in (("left out", False), ("new", True)):
        marks = {"left out": SiteMarks(7, 64)}
        book.schedule = replace(book.schedule, waiting=frozenset({out}), marks=marks)
        before = book.schedule.attempt
        keeper._settle()
        assert (book.schedule.attempt > before) == fails
