"""What reducers tell, as the keeper takes it: it gathers their parts for the log, makes the step of the means, computes
some parts again itself, and looks at every part that a site says is wrong."""

import logging
import random

from protocol.errors import MusterError, UnreachableError
from protocol.sites.contribution import ContributionLimits, ShardEntry
from protocol.sites.log import PartRefused, PartsSaid
from protocol.sites.notes import SiteNote
from protocol.sites.outer import OuterState, OuterStepError
from protocol.sites.reduction import MalformedPart, ReductionPlace, open_means, open_products, undecodable
from trainer.sites.events import OuterPhase
from trainer.sites.exchange import SiteExchange
from trainer.sites.fetching import ShardFetcher
from trainer.sites.handed_in import HandedIn, StepOutcome
from trainer.sites.logbook import Logbook
from trainer.sites.reduction import Parts, Payloads, place_of

log = logging.getLogger("muster.sites")
PARTS = ("products", "means", "checked", "accuse")
_PHASES = {"products": OuterPhase.PRODUCTS, "means": OuterPhase.MEANS, "checked": OuterPhase.CHECK}
_PRODUCTS_WRONG = "its products are not those of the contributions"
_SEEN = "what it says does not decode does"
_MEAN_WRONG = "its mean is not that of the contributions"


class PartsKeeping:
    """Of one attempt at a time. `outcome`: what the step leads to, once that is known. `stuck`: what was told leads to
    none; a lie may be why, so that all of it is computed again."""

    def __init__(self, exchange: SiteExchange, handed: HandedIn, dice: random.Random) -> None:
        self._exchange, self._handed, self._dice = exchange, handed, dice
        self._fetcher = ShardFetcher(exchange)
        self._attempt = (-1, -1)
        self._forget()

    def begin(self, step: int, attempt: int) -> None:
        if (step, attempt) != self._attempt:
            self._attempt = step, attempt
            self._fetcher.forget()
            self._forget()

    def _forget(self) -> None:
        self.outcome: StepOutcome | None = None
        self.stuck = False
        self._parts: Parts | None = None
        self._drawn: list[str] | None = None
        self._right: set[str] = set()
        self._accused: dict[str, str] = {}
        self._told: dict[str, tuple[str, int]] = {}

    def heed(self, note: SiteNote, book: Logbook, limits: ContributionLimits, state: OuterState) -> None:
        """Take a note with a part of the attempt under way, if it is one: else its reducer is silent. Raises
        UnreachableError."""
        now, digest = book.schedule, note.digest
        assert digest is not None, "such a note names one"
        if note.what == "accuse":
            if note.site in now.opened and digest in {*now.products.values(), *now.means.values()}:
                self._accused[note.site] = digest
            return
        if _PHASES[note.what] != now.phase or note.site not in now.untold:
            return
        try:
            self._open(note, digest, self._place(book, state), limits, book)
        except UnreachableError:
            raise
        except MusterError as error:
            log.warning("the %s of %s: %s", note.what, note.site, error)
            return
        self._told[note.site] = digest, note.number

    def gathered(self, book: Logbook) -> PartsSaid | None:
        """What was told since, for the log."""
        told, self._told = self._told, {}
        words = {one: what for what, one in _PHASES.items()}
        new = {site: one for site, one in sorted(told.items()) if site in book.schedule.untold}
        if not new or book.schedule.phase not in words:
            return None
        documents, notes = {site: one[0] for site, one in new.items()}, {site: one[1] for site, one in new.items()}
        return PartsSaid.model_validate({"what": words[book.schedule.phase], "documents": documents, "notes": notes})

    def look(self, book: Logbook, limits: ContributionLimits, state: OuterState) -> PartRefused | None:
        """What is shown to be wrong now; `outcome` may be known after it. Raises UnreachableError; MusterError where
        something that was told is gone."""
        now = book.schedule
        if now.phase == OuterPhase.PRODUCTS or (self.outcome is not None and not self._accused):
            return None
        parts, made = self._opened(book, limits, state), {}
        for site, document in now.contributors.items():
            made[site] = self._handed.document(site, document, limits)
        payloads = Payloads(limits, state, made, self._fetcher.read)
        if (wrong := self._undecodable(parts, payloads, book)) is not None:
            return wrong
        judged = parts.judged(self._exchange.run)
        self.stuck = self.stuck or not judged.complete
        if now.phase == OuterPhase.MEANS and judged.complete:
            return None
        if self._drawn is None:
            self._drawn = self._dice.sample(sorted(now.reducers), min(self._exchange.run.audited, len(now.reducers)))
        doubted = [site for site in sorted(now.reducers) if self._doubted(site, book)]
        files: list[ShardEntry] = [one for means in parts.means.values() for one in means.shards]
        files += [one.shards[k] for site in doubted for k in parts.place.part(site) for one in made.values()]
        if not self._fetcher.has((one,) for one in files):
            return None
        for site in doubted:
            if (shard := parts.wrong_products(payloads, site)) is not None:
                return PartRefused(site=site, document=now.products[site], shard=shard, why=_PRODUCTS_WRONG)
            if judged.complete and (shard := parts.wrong_mean(payloads, site, judged.shares)) is not None:
                return PartRefused(site=site, document=now.means[site], shard=shard, why=_MEAN_WRONG)
            self._right.add(site)
        if (broken := parts.undecodable_mean(payloads)) is not None:
            site, shard = broken
            return PartRefused(site=site, document=now.means[site], shard=shard, why="its mean does not decode")
        for site, document in self._accused.items():
            log.warning("%s says that %s is wrong, which is right", site, document[:16])
        self._accused = {}
        if self.outcome is None:
            self.outcome = self._outcome(parts, payloads)
        return None

    def _outcome(self, parts: Parts, payloads: Payloads) -> StepOutcome | None:
        """None where no step follows from what was told, and not all of that was computed again yet."""
        judged = parts.judged(self._exchange.run)
        for site, why in judged.excluded.items():
            log.warning("the contribution of %s to outer step %d does not count: %s", site, payloads.state.step, why)
        if not judged.complete:
            return StepOutcome(None, {}, dict(judged.excluded))
        try:
            after = parts.step(payloads)
        except OuterStepError as error:
            log.error("outer step %d cannot be made: %s", payloads.state.step, error)
            self.stuck = True
            return StepOutcome(None, {}, dict(judged.excluded)) if parts.products.keys() <= self._right else None
        return StepOutcome(after, dict(judged.shares), dict(judged.excluded))

    def _doubted(self, reducer: str, book: Logbook) -> bool:
        """Whether its part is to be computed again, and was not yet."""
        now, accused = book.schedule, set(self._accused.values())
        named = bool(accused & {now.products[reducer], now.means.get(reducer, "")})
        return reducer not in self._right and (self.stuck or named or reducer in (self._drawn or ()))

    def _undecodable(self, parts: Parts, payloads: Payloads, book: Logbook) -> PartRefused | None:
        """Of a contribution that does not decode as a reducer says; of the reducer, if it does."""
        place, now = parts.place, book.schedule
        for at, shard in undecodable(list(parts.products.values())).items():
            site, reducer = place.sites[at], place.reducers[shard]
            if payloads.seen(site, shard) is None:
                why = "its payload does not decode"
                return PartRefused(site=site, document=now.documents[site], shard=shard, why=why)
            return PartRefused(site=reducer, document=now.products[reducer], shard=shard, why=_SEEN, unseen=True)
        return None

    def _place(self, book: Logbook, state: OuterState) -> ReductionPlace:
        now = book.schedule
        return place_of(self._exchange.run, state, now.attempt, now.contributors, now.reducers)

    def _open(
        self, note: SiteNote, digest: str, place: ReductionPlace, limits: ContributionLimits, book: Logbook
    ) -> None:
        """Raises MusterError for what is no part of that reducer's, or not there."""
        if note.what == "checked":
            return
        data = self._exchange.document(digest, place.file_bytes)
        if note.what == "products":
            open_products(data, place, note.site)
            return
        told = open_means(data, place, note.site, book.schedule.products, limits.longest)
        if not all(map(self._exchange.has_shard, told.shards)):
            raise MalformedPart("not all of its means are there")

    def _opened(self, book: Logbook, limits: ContributionLimits, state: OuterState) -> Parts:
        now, known = book.schedule, self._parts
        if known is None or known.means.keys() != now.means.keys():
            place = self._place(book, state)
            known = self._parts = Parts.opened(self._exchange, place, limits, now.products, now.means)
        return known
