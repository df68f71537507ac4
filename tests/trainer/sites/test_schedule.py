"""Kills, joins, leaves, repeated and late events in any order: no outer step is lost, none is made twice, and every
survivor holds the same bits."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from protocol.errors import IntegrityError
from protocol.sites.config import AdmissionConfig, SitesConfig
from protocol.sites.layout import F32
from protocol.sites.outer import OuterState, advance
from trainer.sites.events import (
    Event,
    HashesSigned,
    OuterPhase,
    PayloadOpened,
    PhaseTimeUp,
    SiteJoined,
    SiteLeft,
    SitePutOut,
    StepSettled,
)
from trainer.sites.replica import OuterStep, follow, settle
from trainer.sites.schedule import Schedule

CONFIG = SitesConfig(shards=2, admission=AdmissionConfig(minimum=1, cosine=None))
START = OuterState.start({"w": np.linspace(-1, 1, 5, dtype=np.float32)})
SITES = st.sampled_from("abcdef")


def gradient(site: str, step: int) -> dict[str, F32]:
    """Of a site's inner steps: a function of both."""
    dice = np.random.default_rng([ord(site), step])
    return {"w": dice.standard_normal(5).astype(np.float32)}


class OuterSteps(RuleBasedStateMachine):
    """`log`: what the schedule was told, in order. `alive`: each running site's state, as it last stored it. `kept`:
    what dead sites left on their disks."""

    reducing = False

    def __init__(self) -> None:
        super().__init__()
        self.schedule = Schedule(START.digest, reducing=self.reducing)
        self.log: list[Event] = []
        self.alive: dict[str, OuterState] = {}
        self.kept: dict[str, OuterState] = {}
        self.steps: list[OuterStep] = []
        self.reference = START

    def tell(self, event: Event) -> bool:
        after = self.schedule.after(event)
        self.log.append(event)
        changed, self.schedule = after is not self.schedule, after
        return changed

    @rule(site=SITES)
    def join(self, site: str) -> None:
        """From an old disk, or from nothing, up to the newest state; then it asks."""
        state = self.alive.pop(site, None) or self.kept.pop(site, None) or START
        for one in self.steps:
            state = follow(state, one, CONFIG)
        self.alive[site] = state
        self.tell(SiteJoined(site, state.digest))

    @rule(site=SITES)
    def join_with_an_old_state(self, site: str) -> None:
        if self.steps and site not in self.schedule.members | self.schedule.waiting:
            assert not self.tell(SiteJoined(site, START.digest))

    @rule(site=SITES)
    def leave(self, site: str) -> None:
        if self.alive.pop(site, None) is not None:
            self.tell(SiteLeft(site))
            assert site not in self.schedule.members

    @rule(site=SITES)
    def kill(self, site: str) -> None:
        """Nobody is told."""
        state = self.alive.pop(site, None)
        if state is not None:
            self.kept[site] = state

    @rule(site=SITES)
    def sign(self, site: str) -> None:
        if site in self.alive:
            state = self.alive[site]
            self.tell(HashesSigned(site, state.step, state.digest, f"{site}{state.step}"))

    @rule(site=SITES)
    def sign_twice(self, site: str) -> None:
        if site in self.alive:
            state = self.alive[site]
            self.tell(HashesSigned(site, state.step, state.digest, f"{site}{state.step} other"))

    @rule(site=SITES)
    def put_out(self, site: str) -> None:
        """Of what it handed in, or cannot use."""
        self.tell(SitePutOut(site))

    @rule(site=SITES)
    def open(self, site: str) -> None:
        if site in self.alive:
            self.tell(PayloadOpened(site, self.alive[site].step, f"{site}{self.alive[site].step}"))

    @rule()
    def time_is_up(self) -> None:
        before = self.schedule
        self.tell(PhaseTimeUp(before.step, before.attempt, before.phase))
        assert (self.schedule.attempt, self.schedule.phase) != (before.attempt, before.phase), "nobody waits for ever"

    @rule(data=st.data())
    def repeat_something_old(self, data: st.DataObject) -> None:
        """A settlement, a signature or a time-out that was told before, in any order."""
        old = [one for one in self.log if not isinstance(one, SiteJoined | SiteLeft)]
        if old:
            before = self.schedule
            event = data.draw(st.sampled_from(old))
            self.tell(event)
            if isinstance(event, StepSettled):
                assert self.schedule is before

    @rule()
    def cannot_settle(self) -> None:
        self.tell(StepSettled(self.schedule.step, self.schedule.attempt, None))

    @rule()
    def settle(self) -> None:
        """By anyone who sees what was published; both tellings of two who do it at once arrive."""
        now = self.schedule
        if now.phase != OuterPhase.SETTLE:
            return
        given = {site: gradient(site, now.step) for site, document in now.contributors.items() if " " not in document}
        made = settle(self.reference, given, CONFIG)
        event = StepSettled(now.step, now.attempt, made.digest if made else None)
        assert self.tell(event)
        assert not self.tell(event), "the same settlement again changes nothing"
        if made is not None:
            self.steps.append(OuterStep(now.step, now.digest, given, made.digest))
            shares = {site: Fraction(1, len(given)) for site in given}
            self.reference = advance(self.reference, given, shares, CONFIG.outer)

    @rule(site=SITES)
    def catch_up(self, site: str) -> None:
        """Some steps come twice."""
        if site in self.alive:
            for one in [*self.steps, *self.steps[-2:]]:
                self.alive[site] = follow(self.alive[site], one, CONFIG)

    @invariant()
    def every_outer_step_once(self) -> None:
        assert [one.step for one in self.steps] == list(range(self.schedule.step))
        assert self.schedule.digest == self.reference.digest
        assert self.reference.step == self.schedule.step

    @invariant()
    def all_survivors_hold_the_same(self) -> None:
        for state in self.alive.values():
            for one in self.steps:
                state = follow(state, one, CONFIG)
            assert state.digest == self.reference.digest

    @invariant()
    def whoever_reads_the_log_agrees(self) -> None:
        again = Schedule(START.digest, reducing=self.reducing)
        for event in self.log:
            again = again.after(event)
        assert again == self.schedule
        assert self.schedule.opened <= self.schedule.documents.keys()


OuterSteps.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestOuterSteps = OuterSteps.TestCase


def told(schedule: Schedule, *events: Event) -> Schedule:
    for event in events:
        schedule = schedule.after(event)
    return schedule


def member_run(*sites: str) -> Schedule:
    """Members are those who join while nobody is one, and from the next boundary on the rest."""
    first, *rest = sites
    made = told(Schedule(b"0"), SiteJoined(first, b"0"), *(SiteJoined(site, b"0") for site in rest))
    made = told(made, HashesSigned(first, 0, b"0", "x"), PayloadOpened(first, 0, "x"))
    return told(made, StepSettled(0, made.attempt, b"1"))


def test_it_shrinks_to_one_and_grows_again() -> None:
    run = member_run("a", "b", "c", "d")
    assert (run.step, set(run.members)) == (1, {"a", "b", "c", "d"})
    run = told(run, HashesSigned("a", 1, b"1", "a1"), PhaseTimeUp(1, 0, OuterPhase.COLLECT))
    assert (set(run.members), run.phase) == ({"a"}, OuterPhase.OPEN)
    run = told(run, SiteJoined("b", b"1"), SiteJoined("c", b"0"), PayloadOpened("a", 1, "a1"))
    assert run.phase == OuterPhase.SETTLE
    run = told(run, StepSettled(1, 0, b"2"))
    assert (run.step, set(run.members)) == (2, {"a", "b"}), "c holds another state"


def test_two_contributions_of_one_site_are_none() -> None:
    run = told(member_run("a", "b"), HashesSigned("a", 1, b"1", "x"), HashesSigned("a", 1, b"1", "y"))
    assert (set(run.barred), dict(run.documents)) == ({"a"}, {})
    run = told(run, HashesSigned("a", 1, b"1", "x"), HashesSigned("b", 1, b"1", "z"))
    assert (dict(run.documents), run.phase) == ({"b": "z"}, OuterPhase.OPEN)
    run = told(run, PayloadOpened("b", 1, "z"), StepSettled(1, 0, b"2"))
    assert run.members == {"b"}


def test_who_leaves_after_its_payload_still_counts() -> None:
    run = told(member_run("a", "b"), HashesSigned("a", 1, b"1", "x"), HashesSigned("b", 1, b"1", "y"))
    run = told(run, PayloadOpened("a", 1, "x"), SiteLeft("a"), SiteLeft("b"))
    assert (run.phase, dict(run.contributors)) == (OuterPhase.SETTLE, {"a": "x"})


def test_a_replica_takes_no_other_step() -> None:
    given = {"a": gradient("a", 0)}
    made = settle(START, given, CONFIG)
    assert made is not None
    right = OuterStep(0, START.digest, given, made.digest)
    assert follow(START, right, CONFIG).digest == made.digest
    assert follow(made, right, CONFIG) is made
    for wrong, word in (
        (OuterStep(1, START.digest, given, made.digest), "fetch the steps between"),
        (OuterStep(0, made.digest, given, made.digest), "another state"),
        (OuterStep(0, START.digest, given, START.digest), "does not lead"),
        (OuterStep(0, START.digest, {"a": gradient("b", 0)}, made.digest), "does not lead"),
    ):
        with pytest.raises(IntegrityError, match=word):
            follow(START, wrong, CONFIG)
