"""What the log and the bucket say of an outer step that was made: by whom, of which items, and with what figures."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from protocol.errors import IntegrityError
from protocol.sites.contribution import Contribution, ContributionLimits
from protocol.sites.layout import TensorLayout
from protocol.sites.log import Boundary
from trainer.sites.exchange import SiteExchange
from trainer.sites.logbook import Logbook, dealing_before


@dataclass(frozen=True)
class SettledStep:
    """Outer step `step`, made in attempt `attempt`. `counted`: the contributions that count, by site; `dealt`: the
    items (hex) of every site that contributed."""

    step: int
    attempt: int
    counted: Mapping[str, Contribution]
    dealt: Mapping[str, Sequence[str]]

    def site_of(self, item: str) -> str:
        """Whose training on an item counts, empty for nobody's: of a site that does not count, or skipped."""
        return next((site for site, items in self.dealt.items() if item in items and site in self.counted), "")

    def total(self, name: str) -> float:
        """A figure added up over the sites."""
        return sum(one.figures.get(name, 0.0) for one in self.counted.values())

    def largest(self, name: str) -> float:
        """The largest of a figure; not a number where a site that trained has none that is finite."""
        found = [one.figures.get(name, math.nan) for one in self._trained]
        return math.nan if any(map(math.isnan, found)) else max(found, default=0.0)

    def mean(self, name: str) -> float:
        """A figure over all tokens; not a number where a site that trained has none that is finite."""
        weights = [one.figures["tokens"] for one in self._trained]
        values = [one.figures.get(name, math.nan) for one in self._trained]
        return sum(w * v for w, v in zip(weights, values, strict=True)) / max(1.0, sum(weights))

    @property
    def _trained(self) -> list[Contribution]:
        """Those of sites whose items had any signal."""
        return [one for one in self.counted.values() if one.figures.get("tokens")]


def settled_step(exchange: SiteExchange, book: Logbook, step: int, layout: TensorLayout) -> SettledStep:
    """Outer step `step` of a log. Raises IntegrityError where it was not made, MissingObjectError, UnreachableError."""
    after, before = _around(book, step)
    run, dealing = exchange.run, dealing_before(exchange, after)
    limits = ContributionLimits.of(run.pool_id, run.settings, step, bytes.fromhex(before.digest), layout, dealing)
    counted = {
        site: exchange.contribution(document, site, limits)
        for site, document in sorted(after.made_of.items())
        if site in after.counted
    }
    return SettledStep(step, after.attempt, counted, {site: limits.items(site) for site in sorted(after.made_of)})


def _around(book: Logbook, step: int) -> tuple[Boundary, Boundary]:
    """The boundaries after and before outer step `step`."""
    after: Boundary | None = None
    for _, boundary in book.chapters_back():
        if boundary.step == step and after is not None:
            return after, boundary
        after = boundary
    raise IntegrityError(f"outer step {step} is not in the log")
