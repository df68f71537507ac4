"""Who holds up outer steps is left out of the next ones, longer each time; whoever does not never is."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.sites.events import (
    HashesSigned,
    OuterPhase,
    PayloadOpened,
    PhaseTimeUp,
    SiteJoined,
    SiteLeft,
    SitePutOut,
    StepSettled,
    WorkDealt,
)
from trainer.sites.exclusion import FORGIVEN_AFTER, MOST_DISPUTED, MOST_MARKS, SiteMarks
from trainer.sites.schedule import Schedule

HONEST, BAD, WORSE = ("a", "b", "c"), "x", "y"


class Act(Enum):
    GOOD = "good"
    REFUSED = "refused"
    TWICE = "signs twice"
    SILENT = "silent"
    UNOPENED = "signs and does not open"
    LEAVES = "leaves"
    CANNOT = "cannot use its files"


HOLDS_UP = [one for one in Act if one != Act.GOOD]


class ExclusionRun:
    """`lost`: attempts that were begun again, and time-outs that were waited for; `took_part`: sites of each step."""

    def __init__(self, whole: bool, *bad: str, quorum: int = 2) -> None:
        self.now = Schedule(b"0", whole=whole, quorum=quorum)
        self.sites, self.lost, self.took_part = (*HONEST, *bad), 0, list[frozenset[str]]()

    def step(self, acts: Mapping[str, Act]) -> None:
        """Until the next boundary; sites that `acts` does not name are honest."""
        step, seen = self.now.step, frozenset[str]()
        self._join()
        self.now = self.now.after(WorkDealt(step))
        first = self.now.attempt
        for _ in range(50):
            self._join()
            seen |= self.now.members
            self._attempt(acts)
            if self.now.step > step:
                self.took_part.append(seen)
                return
            assert self.now.attempt <= first + 8, "it begins again and again"
        raise AssertionError("the step does not end")

    def _join(self) -> None:
        """Whoever is out asks to come in again at once."""
        for site in self.sites:
            self.now = self.now.after(SiteJoined(site, self.now.digest))

    def _attempt(self, acts: Mapping[str, Act]) -> None:
        begun, step = self.now.attempt, self.now.step
        # Who holds the step up comes last: it costs the most then.
        for site in sorted(self.now.members - self.now.barred, key=lambda one: (one in acts, one)):
            self._collect(site, acts.get(site, Act.GOOD))
            if self.now.attempt > begun:
                self.lost += 1
                return
        for phase in (OuterPhase.COLLECT, OuterPhase.OPEN):
            if self.now.phase == OuterPhase.OPEN:
                for site, document in sorted(self.now.documents.items()):
                    if acts.get(site) != Act.UNOPENED:
                        self.now = self.now.after(PayloadOpened(site, step, document))
            if self.now.phase == phase:
                self.now, self.lost = self.now.after(PhaseTimeUp(step, begun, phase)), self.lost + 1
            if self.now.attempt > begun:
                return
        assert self.now.phase == OuterPhase.SETTLE
        self.now = self.now.after(StepSettled(step, begun, b"%d" % (step + 1)))

    def _collect(self, site: str, act: Act) -> None:
        now = self.now
        if act in (Act.GOOD, Act.TWICE, Act.UNOPENED):
            self.now = now.after(HashesSigned(site, now.step, now.digest, f"{site} {now.step} {now.attempt}"))
        if act == Act.TWICE:
            self.now = self.now.after(HashesSigned(site, now.step, now.digest, f"{site} {now.step} other"))
        if act in (Act.REFUSED, Act.CANNOT):
            self.now = now.after(SitePutOut(site, disputed=act == Act.CANNOT))
        if act == Act.LEAVES:
            self.now = now.after(SiteLeft(site, owing=now.whole))

    def gaps(self, site: str) -> list[int]:
        """How many steps it was left out of in turn, each time."""
        missed = "".join("." if site in one else "x" for one in self.took_part)
        return [len(one) for one in missed.split(".") if one]


def bound(steps: int, acts: Sequence[Act]) -> float:
    """Steps that one site can hold up: each is a mark, of which every eight steps of good work take one away; with the
    most marks it is out of 63 steps each time, or of three after a word that brings it no other mark."""
    gap = 1 << ((MOST_DISPUTED if Act.CANNOT in acts else MOST_MARKS) - 1)
    return MOST_MARKS + steps / FORGIVEN_AFTER + steps / gap + 1


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("act", HOLDS_UP)
def test_a_site_that_holds_up_every_step_holds_up_few(act: Act, whole: bool) -> None:
    run = ExclusionRun(whole, BAD)
    for _ in range(200):
        run.step({BAD: act})
    if act == Act.LEAVES and not whole:
        assert run.now.marks == {}, "the others go on without it"
        return
    assert run.lost <= (9 if act != Act.CANNOT else 2 + 200 / (1 << (MOST_DISPUTED - 1)))
    assert set(run.now.marks) == {BAD}
    expected = [1, 3, 7, 15, 31, 63] if act != Act.CANNOT else [1, 3, 3, 3, 3, 3]
    assert run.gaps(BAD)[:6] == expected
    assert all(set(HONEST) <= one for one in run.took_part)


ACTS = st.lists(st.sampled_from([*Act, Act.GOOD, Act.GOOD]), min_size=1, max_size=12)


@settings(max_examples=80, deadline=None)
@given(whole=st.booleans(), one=ACTS, other=ACTS, steps=st.integers(20, 150))
def test_whatever_two_sites_do_in_turn(whole: bool, one: Sequence[Act], other: Sequence[Act], steps: int) -> None:
    """They cost the others no more than the rule allows, no honest site is ever marked, and nobody is out for good."""
    run = ExclusionRun(whole, BAD, WORSE)
    for _, first, second in zip(range(steps), cycle(one), cycle(other), strict=False):
        run.step({BAD: first, WORSE: second})
        assert set(run.now.marks) <= {BAD, WORSE}
        assert set(HONEST) <= run.now.members
    assert run.lost <= bound(steps, one) + bound(steps, other)
    assert all(gap < 1 << (MOST_MARKS - 1) for site in (BAD, WORSE) for gap in run.gaps(site))


def test_a_single_kill_costs_a_site_nothing_more() -> None:
    run = ExclusionRun(True, BAD)
    run.step({BAD: Act.GOOD})
    run.step({BAD: Act.SILENT})
    assert run.now.marks == {BAD: SiteMarks(1, 2, 0)}
    for _ in range(FORGIVEN_AFTER):
        run.step({})
    assert run.now.marks == {}
    assert run.gaps(BAD) == []


def test_marks_do_not_follow_from_anything_but_holding_up() -> None:
    """Nothing is dealt to a site that leaves, or it has handed in its work; everybody falls silent at once."""
    run = ExclusionRun(True, BAD)
    run.step({})
    now = run.now.after(WorkDealt(1))
    idle = now.after(SiteLeft(BAD))
    assert (idle.attempt, idle.barred) == (now.attempt + 1, frozenset())
    silent = now.after(PhaseTimeUp(1, now.attempt, OuterPhase.COLLECT))
    assert (silent.members, silent.barred) == (frozenset(), frozenset())
    for site in run.sites:
        now = now.after(HashesSigned(site, 1, now.digest, site))
    now = now.after(PayloadOpened(BAD, 1, BAD)).after(SiteLeft(BAD, owing=True))
    for site in HONEST:
        now = now.after(PayloadOpened(site, 1, site))
    assert now.after(StepSettled(1, now.attempt, b"2")).marks == {}


def test_two_that_leave_and_come_back_in_turn_do_not_keep_the_others_from_a_step() -> None:
    run = ExclusionRun(True, BAD, WORSE)
    run.step({})
    for site in (BAD, WORSE) * 5:
        run.now = run.now.after(SiteLeft(site, owing=True)).after(SiteJoined(site, run.now.digest))
    assert run.now.attempt <= 2
    assert run.now.members == set(HONEST)
    assert run.now.waiting == {BAD, WORSE}


def test_where_too_few_others_are_left_who_is_left_out_comes_back() -> None:
    run = ExclusionRun(True, BAD, quorum=4)
    for _ in range(3):
        run.step({})
    run.now = replace(run.now, marks={BAD: SiteMarks(7, 99)}, waiting=frozenset({BAD}), members=frozenset("ab"))
    run.now = run.now.after(SiteJoined("c", run.now.digest)).after(WorkDealt(3))
    assert run.now.members == {*HONEST, BAD}
    run.step({})
    assert BAD in run.took_part[-1]
    wider = replace(run.now, quorum=3)
    settled = wider
    for site in (*HONEST, BAD):
        settled = settled.after(HashesSigned(site, 4, wider.digest, site))
    for site in (*HONEST, BAD):
        settled = settled.after(PayloadOpened(site, 4, site))
    settled = settled.after(StepSettled(4, wider.attempt, b"5"))
    assert settled.members == set(HONEST), "as soon as there are enough"
    assert settled.waiting == {BAD}


def test_who_only_waits_to_be_let_in_again_lets_no_attempt_fail() -> None:
    """Newcomers do: another attempt may have enough of them. Who is left out would make it fail without an end."""
    run = Schedule(b"0", 5, members=frozenset(HONEST), waiting=frozenset({BAD, WORSE}), marks={BAD: SiteMarks(7, 99)})
    assert run.entering == {WORSE}
    only = replace(run, waiting=frozenset({BAD}), whole=True)
    assert only.after(WorkDealt(5)) is only


@given(marks=st.integers(0, MOST_MARKS), step=st.integers(0, 10**6), disputed=st.booleans())
def test_a_mark_is_bounded_and_the_word_of_a_site_weighs_less(marks: int, step: int, disputed: bool) -> None:
    after = SiteMarks(marks).held_up(step, disputed)
    assert marks <= after.marks <= max(marks, MOST_DISPUTED if disputed else MOST_MARKS)
    assert 0 <= after.until - step - 1 < 1 << (MOST_MARKS - 1)
    assert after.marks > marks or marks >= (MOST_DISPUTED if disputed else MOST_MARKS)
