"""Kills, joins, leaves and lies in any order where members reduce shards."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from tests.trainer.sites.test_schedule import SITES, OuterSteps, member_run, told
from trainer.sites.events import HashesSigned, OuterPhase, PartsTold, PartWrong, PayloadOpened, SiteLeft


class ReducedOuterSteps(OuterSteps):
    """The same where members reduce shards."""

    reducing = True

    @rule(site=SITES)
    def tell_part(self, site: str) -> None:
        now = self.schedule
        due = now.reducers and site in now.untold
        changed = self.tell(PartsTold(now.step, now.attempt, now.phase, {site: f"{site} {now.phase.value}"}))
        assert changed == bool(due)

    @rule()
    def tell_all_parts(self) -> None:
        for site in sorted(self.schedule.untold):
            self.tell_part(site)

    @rule(site=SITES, lied=st.booleans())
    def show_to_be_wrong(self, site: str, lied: bool) -> None:
        before = self.schedule
        if self.tell(PartWrong(site, lied)):
            assert self.schedule.attempt == before.attempt + 1
            assert not lied or site in self.schedule.liars

    @invariant()
    def only_what_all_reducers_told_is_settled(self) -> None:
        now = self.schedule
        assert now.reducers <= now.opened
        assert now.products.keys() | now.means.keys() <= now.reducers
        if now.phase == OuterPhase.SETTLE and now.opened:
            assert now.products.keys() == now.means.keys() == now.reducers != set()

    @invariant()
    def nobody_is_waited_for_who_left(self) -> None:
        now = self.schedule
        if now.phase in (OuterPhase.PRODUCTS, OuterPhase.MEANS):
            assert now.reducers - now.means.keys() <= now.members


ReducedOuterSteps.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestReducedOuterSteps = ReducedOuterSteps.TestCase


def test_a_reducer_that_leaves_with_its_mean_untold_is_not_waited_for() -> None:
    run = replace(member_run("a", "b", "c"), reducing=True)
    run = told(
        run, *(HashesSigned(site, 1, b"1", site) for site in "abc"), *(PayloadOpened(site, 1, site) for site in "abc")
    )
    assert (run.phase, run.reducers) == (OuterPhase.PRODUCTS, frozenset("abc"))
    left = told(run, PartsTold(1, run.attempt, run.phase, {"a": "products"}), SiteLeft("a"))
    assert (left.attempt, left.members, left.barred) == (run.attempt + 1, frozenset("bc"), frozenset("a"))
