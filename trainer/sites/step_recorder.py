"""The keeper's hand on chain: it records every outer step, once and in order, and knows which sites have stake.

What is recorded is read from the chain each time, and what is missing follows from the log and the bucket. So a keeper
that is killed between a step and its record makes the record after its restart, and none is made twice.
"""

import json
import logging
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from chain.contracts.site_runs import RunView
from protocol.encoding import canonical_json
from protocol.errors import IntegrityError, MusterError
from protocol.files import write_atomic
from protocol.sites.log import Boundary
from protocol.sites.outer import OuterState
from protocol.sites.recorded import StepRecord, step_record
from trainer.sites.exchange import SiteExchange
from trainer.sites.recomputed import boundaries_after, boundary_at, make_again
from trainer.sites.run_chain import SEND_SECONDS, ChainWork, RunChain, check_start

log = logging.getLogger("muster.sites")
STAKED = "staked.json"
_MOST = 4096
"""Outer steps whose record is kept while the chain is away; later ones are made again from the log."""


class StepRecorder(ChainWork):
    """`first`: the run's first state. `home`: where it keeps which sites had stake when the chain was last reached."""

    def __init__(self, chain: RunChain, exchange: SiteExchange, first: OuterState, home: Path) -> None:
        super().__init__(chain)
        self._exchange, self._first, self._path = exchange, first, home / STAKED
        self._made: dict[int, StepRecord] = {}
        self._staked = self._kept()
        self.recorded, self.newest, self.over = 0, 0, False
        self._looked = False

    def may_take_part(self, site: str) -> bool:
        """Whether a site has stake, as far as is known."""
        return site in self._staked

    def settled(self, boundary: Boundary, shares: Mapping[str, Fraction]) -> None:
        """An outer step was made and is in the log: record it soon."""
        self._made[boundary.step - 1] = step_record(boundary, shares)
        while len(self._made) > _MOST:
            self._made.pop(max(self._made))
        self.noticed(boundary.step)

    def noticed(self, step: int) -> None:
        """So many outer steps are in the log: record what is missing soon, as it follows from there."""
        self.newest = max(self.newest, step)
        self._soon.set()

    def look(self) -> None:
        """Read who has stake, and record what is missing. Raises MusterError."""
        runs, run = self.chain.runs(), self.chain.config.run
        view = self.chain.view()
        check_start(view, self._first.digest)
        self._take_stakes()
        self.recorded, self.over = view.steps, view.release_at > 0
        if self.over:
            raise MusterError("the run is over on chain: no outer step is recorded any more", "open another run")
        # a copy, because the keeper's thread adds steps meanwhile
        for step in [one for one in list(self._made) if one < view.steps]:
            self._made.pop(step, None)
        if self._looked and self.newest <= view.steps:
            return
        missing = self._missing(view)
        self.newest = max([self.newest, *(step + 1 for step in missing)])
        for step in sorted(missing):
            if step != self.recorded:
                break
            entry, boundary = boundary_at(self._exchange, missing[step])
            made = self._made.get(step) or make_again(self._exchange, self._first, boundary).record
            runs.client.send(runs.record(run, made, entry), timeout=SEND_SECONDS)
            self.recorded = step + 1
            log.info("outer step %d is recorded on chain", step)

    def finish(self, seconds: float) -> None:
        """The keeper ends: record what is left, for so long at most; the rest is recorded after its next start."""
        self.stop(seconds)
        if not self._thread.is_alive():
            self.attempt()
        if self.recorded < self.newest:
            log.warning("outer steps %d to %d are not recorded yet", self.recorded, self.newest - 1)

    def status(self) -> dict[str, Any]:
        return {
            "run": self.chain.config.run, "recorded": self.recorded, "made": self.newest,
            "without_stake": sorted(set(self.chain.run.sites) - self._staked), "problem": self.problem,
        }  # fmt: skip

    def _missing(self, view: RunView) -> dict[int, int]:
        """Of the outer steps that are not recorded, the place of the boundary after each. Raises IntegrityError, when
        it first looks, where the newest recorded step is not this log's: another keeper with this key recorded it, or
        its log is lost, and whatever followed would be held against the keeper."""
        if self._looked or not view.steps:
            found, self._looked = boundaries_after(self._exchange, view.steps), True
            return found
        newest = view.steps - 1
        found = boundaries_after(self._exchange, newest)
        recorded, place = self.chain.runs().recorded(self.chain.config.run, newest), found.pop(newest, None)
        if recorded is None or place != recorded.number or not recorded.says(boundary_at(self._exchange, place)[0]):
            raise IntegrityError(
                f"outer step {newest} is recorded on chain, and this log has no such step",
                "give the keeper the bucket that its log is in, or open another run",
            )
        self._looked = True
        return found

    def _take_stakes(self) -> None:
        sites = self.chain.run.sites
        views = self.chain.runs().sites_of(self.chain.config.run, sites)
        staked = frozenset(site for site, view in zip(sites, views, strict=True) if view.active)
        if staked != self._staked:
            log.info("sites with stake: %s", ", ".join(sorted(staked)) or "none")
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._path, canonical_json(sorted(staked)))
            self._staked = staked

    def _kept(self) -> frozenset[str]:
        """A file that is gone or damaged is nothing: the chain is asked again."""
        try:
            return frozenset(json.loads(self._path.read_bytes())) & frozenset(self.chain.run.sites)
        except (OSError, ValueError, TypeError):
            return frozenset()
