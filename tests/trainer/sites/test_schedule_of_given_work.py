"""Steps whose work the keeper gives: each member has a part of it, and a step is made of all of it."""

import pytest

from tests.trainer.sites.test_schedule import told
from trainer.sites.events import (
    HashesSigned,
    NothingLeft,
    OuterPhase,
    PayloadOpened,
    PhaseTimeUp,
    SiteJoined,
    SiteLeft,
    SitePutOut,
    StepSettled,
    WorkDealt,
)
from trainer.sites.schedule import Schedule


def whole_run(*sites: str) -> Schedule:
    """Of work that each member has a part of; all of them have joined before it was dealt."""
    return told(Schedule(b"0", whole=True), *(SiteJoined(site, b"0") for site in sites), WorkDealt(0))


def test_whoever_joined_before_the_work_was_dealt_takes_part() -> None:
    run = whole_run("a", "b")
    assert set(run.members) == {"a", "b"}
    assert run.after(WorkDealt(0)) is run
    signed = told(run, SiteJoined("c", b"0"), HashesSigned("a", 0, b"0", "x"))
    assert signed.after(WorkDealt(0)) is signed, "it is under way"


@pytest.mark.parametrize("silent", [True, False])
def test_a_step_of_dealt_work_is_made_of_all_of_it(silent: bool) -> None:
    """Who falls silent, or leaves, has a part of it: the others begin again."""
    run = whole_run("a", "b")
    run = told(run, HashesSigned("a", 0, b"0", "x"))
    gone = PhaseTimeUp(0, run.attempt, OuterPhase.COLLECT) if silent else SiteLeft("b")
    again = run.after(gone)
    assert (again.attempt, again.phase, set(again.members)) == (run.attempt + 1, OuterPhase.COLLECT, {"a"})
    assert not again.documents
    signed = told(run, HashesSigned("b", 0, b"0", "y"), PayloadOpened("a", 0, "x"))
    assert signed.phase == OuterPhase.OPEN
    again = signed.after(PhaseTimeUp(0, run.attempt, OuterPhase.OPEN) if silent else SiteLeft("b"))
    assert (again.attempt, again.phase, set(again.members)) == (run.attempt + 1, OuterPhase.COLLECT, {"a"})
    twice = told(run, HashesSigned("a", 0, b"0", "other"))
    assert (twice.attempt, set(twice.members)) == (run.attempt + 1, {"b"})


def test_who_is_put_out_has_no_part_in_the_step_and_is_back_in_the_next() -> None:
    run = told(whole_run("a", "b"), SitePutOut("b"))
    assert (run.attempt, set(run.members), set(run.barred)) == (3, {"a"}, {"b"})
    run = told(run, SiteJoined("b", b"0"))
    assert (set(run.members), set(run.waiting)) == ({"a"}, {"b"})
    again = run.after(PhaseTimeUp(0, run.attempt, OuterPhase.COLLECT))
    assert set(again.members) == {"b"}, "nobody else is left"
    run = told(run, HashesSigned("a", 0, b"0", "x"), PayloadOpened("a", 0, "x"), StepSettled(0, run.attempt, b"1"))
    assert (run.step, set(run.members), set(run.barred)) == (1, {"a", "b"}, set())


def test_those_who_are_put_out_in_turn_do_not_keep_the_others_from_a_step() -> None:
    run = told(Schedule(b"0", whole=True, quorum=2), *(SiteJoined(site, b"0") for site in "abcd"), WorkDealt(0))
    for site in "cd":
        run = told(run, SitePutOut(site), SiteJoined(site, b"0"))
    assert (set(run.members), set(run.waiting)) == ({"a", "b"}, {"c", "d"})
    again = run.after(StepSettled(0, run.attempt, None))
    assert again is run, "nothing is to be settled yet"
    run = told(run, *(HashesSigned(site, 0, b"0", site) for site in "ab"), *(PayloadOpened(s, 0, s) for s in "ab"))
    again = told(run, StepSettled(0, run.attempt, None))
    assert set(again.members) == {"a", "b"}, "in another attempt neither"


def test_where_too_few_are_left_all_come_back() -> None:
    run = told(Schedule(b"0", whole=True, quorum=2), *(SiteJoined(site, b"0") for site in "abc"), WorkDealt(0))
    run = told(run, SitePutOut("a"), SiteJoined("a", b"0"), SitePutOut("b"))
    assert (set(run.members), set(run.barred)) == ({"a", "c"}, set())
    assert run.after(SiteJoined("b", b"0")).waiting == {"b"}


def test_a_step_of_which_nothing_is_left_is_settled_of_nothing() -> None:
    run = told(whole_run("a", "b"), HashesSigned("a", 0, b"0", "x"), NothingLeft(0))
    assert (run.phase, dict(run.contributors)) == (OuterPhase.SETTLE, {})
    assert told(run, NothingLeft(0)) is run
    assert whole_run("a").after(NothingLeft(1)).phase == OuterPhase.COLLECT
    after = told(run, StepSettled(0, run.attempt, b"1"))
    assert (after.step, set(after.members)) == (1, {"a", "b"})
