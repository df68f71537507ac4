"""Kills, joins, leaves and lies in any order where members reduce shards."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from tests.trainer.sites.test_schedule import SITES, OuterSteps
from trainer.sites.events import OuterPhase, PartsTold, PartWrong


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


ReducedOuterSteps.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestReducedOuterSteps = ReducedOuterSteps.TestCase
