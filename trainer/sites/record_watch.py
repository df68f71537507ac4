"""A site's look at the chain: whether what the keeper records is what this site followed, and whether it has stake."""

import logging
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from chain.contracts.site_runs import SiteRuns, StepRecordView
from protocol.sites.log import Boundary
from protocol.sites.recorded import StepRecord, differences, step_record
from trainer.sites.run_chain import ChainWork, RunChain, check_start

log = logging.getLogger("muster.sites")
_MOST = 4096
"""Outer steps that wait for their record; older ones are not compared any more."""
_AGAIN = 16
"""Newest compared steps that are looked at again: a reorganisation may put another record in the place of one."""
_MOST_SHOWN = 16


class RecordWatch(ChainWork):
    """Of the site `site`. `first`: the digest of its first state, once that is known. What differs stays on the status
    until the process ends, for the site's owner to dispute."""

    first: bytes | None = None

    def __init__(self, chain: RunChain, site: str) -> None:
        super().__init__(chain)
        self._site = site
        self._made: dict[int, StepRecord] = {}
        self._seen: dict[int, StepRecordView] = {}
        self.recorded, self.compared, self.staked = 0, 0, False
        self.differs: dict[int, list[str]] = {}

    def made(self, boundary: Boundary, shares: Mapping[str, Fraction]) -> None:
        """This site followed an outer step: compare its record once it is there."""
        self._made[boundary.step - 1] = step_record(boundary, shares)
        while len(self._made) > _MOST:
            self._made.pop(min(self._made))

    def look(self) -> None:
        """Compare what has been recorded since. Raises MusterError."""
        runs, run = self.chain.runs(), self.chain.config.run
        view = self.chain.view()
        if self.first is not None:
            check_start(view, self.first)
        self.staked = runs.site_of(run, self._site).active
        self.recorded = view.steps
        self._look_again(runs, run)
        for step in sorted(self._made.keys() - self._seen.keys()):
            if step >= view.steps:
                break
            where, found = runs.step_of(run, step), runs.recorded(run, step)
            if found is None:  # another endpoint, or a reorganisation: look again
                break
            self._seen[step] = where
            self.compared += 1
            words = differences(found.record, self._made[step])
            if words:
                self.differs[step] = words
                log.error("outer step %d is recorded otherwise than it was made: %s", step, "; ".join(words))
        for step in sorted(self._seen)[:-_AGAIN]:
            del self._seen[step]
            self._made.pop(step, None)

    def status(self) -> dict[str, Any]:
        shown = sorted(self.differs.items())[:_MOST_SHOWN]
        return {
            "run": self.chain.config.run, "recorded": self.recorded, "compared": self.compared, "staked": self.staked,
            "differs": {str(step): words for step, words in shown}, "problem": self.problem,
        }  # fmt: skip

    def _look_again(self, runs: SiteRuns, run: int) -> None:
        """Forget of the newest compared steps those whose record was taken away or is in another place since."""
        steps = sorted(self._seen)
        for step, where in zip(steps, runs.steps_of(run, steps), strict=True):
            if where != self._seen[step]:
                log.warning("the record of outer step %d was replaced: it is compared again", step)
                del self._seen[step]
                self.differs.pop(step, None)
                self.compared -= 1
