"""A site's look at the chain: whether what the keeper records is what this site followed, and whether it has stake."""

import logging
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from protocol.sites.log import Boundary
from protocol.sites.recorded import StepRecord, differences, step_record
from trainer.sites.run_chain import ChainWork, RunChain

log = logging.getLogger("muster.sites")
_MOST = 4096
"""Outer steps that wait for their record; older ones are not compared any more."""


class RecordWatch(ChainWork):
    """Of the site `site`. What differs stays on the status until the process ends, for the site's owner to dispute."""

    def __init__(self, chain: RunChain, site: str) -> None:
        super().__init__(chain)
        self._site = site
        self._made: dict[int, StepRecord] = {}
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
        self.staked = runs.site_of(run, self._site).active
        self.recorded = view.steps
        for step in sorted(self._made):
            if step >= view.steps:
                break
            found = runs.recorded(run, step)
            if found is None:  # another endpoint, or a reorganisation: look again
                break
            words = differences(found.record, self._made.pop(step))
            self.compared += 1
            if words:
                self.differs[step] = words
                log.error("outer step %d is recorded otherwise than it was made: %s", step, "; ".join(words))

    def status(self) -> dict[str, Any]:
        return {
            "run": self.chain.config.run, "recorded": self.recorded, "compared": self.compared, "staked": self.staked,
            "differs": {str(step): words for step, words in sorted(self.differs.items())}, "problem": self.problem,
        }  # fmt: skip
