"""What the sites of one attempt at an outer step handed in, by site and hash of the document: each is fetched, decoded
and judged once, however often the keeper looks."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from fractions import Fraction

from protocol.errors import MusterError, UnreachableError
from protocol.sites.contribution import Contribution, ContributionLimits
from protocol.sites.layout import Tensors
from protocol.sites.outer import OuterState, OuterStepError
from storage.keys import MissingObjectError
from trainer.sites.exchange import SiteExchange
from trainer.sites.fetching import ShardFetcher, as_sent
from trainer.sites.replica import judge, settled_by
from trainer.sites.rhythm import Rhythm
from trainer.sites.schedule import Schedule
from trainer.sites.seldom import Seldom

log = logging.getLogger("muster.sites")
_Named = tuple[str, str]


@dataclass(frozen=True)
class StepOutcome:
    """Of what was handed in: the state `after` the outer step, None where it cannot be made; the `shares` of the sites
    that count, and why the others were `excluded`."""

    after: OuterState | None
    shares: Mapping[str, Fraction]
    excluded: Mapping[str, str]

    @property
    def counted(self) -> tuple[str, ...]:
        return tuple(sorted(self.shares))


class HandedIn:
    """As the keeper knows it. One thread."""

    def __init__(self, exchange: SiteExchange) -> None:
        self._exchange, self._fetcher = exchange, ShardFetcher(exchange)
        self._there: set[str] = set()
        self._attempt = (-1, -1)
        self._made: dict[_Named, Contribution] = {}
        self._gradients: dict[_Named, Tensors] = {}
        self._refused: set[_Named] = set()
        self._judged: tuple[object, StepOutcome] | None = None
        self._rhythm, self._every = Rhythm(), Seldom()

    def begin(self, step: int, attempt: int) -> None:
        """Forget what was fetched for an attempt that is over; pseudo-gradients are as large as the model."""
        if (step, attempt) != self._attempt:
            self._attempt, self._judged = (step, attempt), None
            for kept in (self._made, self._gradients, self._refused):
                kept.clear()
            self._fetcher.forget()
            self._there.clear()

    def document(self, site: str, digest: str, limits: ContributionLimits) -> Contribution:
        """Raises MalformedContribution, IntegrityError, MissingObjectError, UnreachableError."""
        named = site, digest  # whoever names another's document has none
        if named not in self._made:
            self._made[named] = self._exchange.contribution(digest, site, limits)
        return self._made[named]

    def is_open(self, site: str, digest: str, limits: ContributionLimits, state: OuterState) -> bool:
        """Whether its payload is published whole, and decodes; one that does not is not looked at again."""
        named = site, digest
        if named in self._refused or named in self._gradients:
            return named in self._gradients
        try:
            made = self.document(site, digest, limits)
            if not self._fetcher.has([as_sent(digest, made.shards)]):
                return False
            self._gradients[named] = self._exchange.gradient(made, limits, state, self._fetcher.read)
            self._fetcher.drop(made.shards)
        except (UnreachableError, MissingObjectError) as error:
            log.info("the payload of %s: %s", site, error)
            return False
        except MusterError as error:
            log.warning("the payload of %s is refused: %s", site, error)
            self._refused.add(named)
            return False
        return True

    def published(self, now: Schedule, limits: ContributionLimits, late: bool) -> Iterator[str]:
        """Sites whose payloads are there, in the sizes that were signed: those who reduce them decode them. It looks
        for one once that may be there, and for the next once it is; for all of them seldom, or where it is `late`."""
        if not (late or self._rhythm.due(now)):
            return
        every = late or self._every.due()
        with self._every if every else nullcontext():
            for site, digest in sorted(now.documents.items()):
                if site in now.opened:
                    continue
                if self._is_there(site, digest, limits):
                    yield site
                elif not every:
                    return

    def _is_there(self, site: str, digest: str, limits: ContributionLimits) -> bool:
        try:
            files = as_sent(digest, self.document(site, digest, limits).shards)
            while files and files[-1].sha256 in self._there:
                files.pop()
            while files and self._exchange.has_shard(files[-1]):  # what is sent last is looked for first
                self._there.add(files.pop().sha256)
        except (UnreachableError, MissingObjectError) as error:
            log.info("the payload of %s: %s", site, error)
            return False
        return not files

    def outcome(self, contributors: Mapping[str, str], limits: ContributionLimits, state: OuterState) -> StepOutcome:
        """What the documents of `contributors` lead to from `state`. Raises UnreachableError; MusterError where a
        payload that was opened is gone since."""
        named = sorted(contributors.items())
        question = state.digest, tuple(named)
        if self._judged is None or self._judged[0] != question:
            for site, digest in named:
                if (site, digest) not in self._gradients:  # it was opened before a restart
                    made = self.document(site, digest, limits)
                    self._gradients[site, digest] = self._exchange.gradient(made, limits, state)
            gradients = {site: self._gradients[site, digest] for site, digest in named}
            self._judged = question, self._outcome(gradients, state)
        return self._judged[1]

    def _outcome(self, gradients: Mapping[str, Tensors], state: OuterState) -> StepOutcome:
        settings = self._exchange.run.settings
        judged = judge(state, gradients, settings)
        for site, why in judged.excluded.items():
            log.warning("the contribution of %s to outer step %d does not count: %s", site, state.step, why)
        try:
            after = settled_by(state, gradients, judged, settings)
        except OuterStepError as error:
            log.error("outer step %d cannot be made: %s", state.step, error)
            after = None
        return StepOutcome(after, dict(judged.shares), dict(judged.excluded))
