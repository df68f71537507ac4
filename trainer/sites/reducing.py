"""A site's part in the reduction of an attempt: its shards of all contributions are fetched while these are still being
sent; it tells what they add to admission, then their means, fetches the others', and now and then computes another's
part again before it says that it has them all."""

import logging
import random
from dataclasses import dataclass, field

from protocol.encoding import sha256_hex
from protocol.errors import IntegrityError
from protocol.sites.admission import Admitted
from protocol.sites.contribution import Contribution, ShardEntry
from protocol.sites.log import Boundary
from protocol.sites.outer import OuterState
from protocol.sites.reduction import ReductionPlace, make_means, make_products, undecodable
from trainer.sites.catching_up import limits_at
from trainer.sites.events import OuterPhase
from trainer.sites.exchange import SiteExchange
from trainer.sites.fetching import ShardFetcher, as_sent
from trainer.sites.logbook import Logbook
from trainer.sites.mouth import SiteMouth
from trainer.sites.reduction import Parts, Payloads, place_of
from trainer.sites.schedule import Schedule
from trainer.sites.share_of_step import OwnContribution

log = logging.getLogger("muster.sites")


@dataclass
class _Attempt:
    """`judged`: once all products are there; `after`: the state by all means; `drawn`: the reducers whose parts are
    computed again, once that is drawn; `wrong`: a document of another's that is shown to be wrong."""

    name: tuple[int, int]
    contributions: dict[str, Contribution] = field(default_factory=dict)
    parts: Parts | None = None
    judged: Admitted | None = None
    after: OuterState | None = None
    drawn: tuple[str, ...] | None = None
    wrong: str = ""


class SiteReducing:
    """Of one site. `dice`: which nobody else can foresee; they are thrown after all means are told."""

    def __init__(self, exchange: SiteExchange, site: str, mouth: SiteMouth, dice: random.Random) -> None:
        self._exchange, self._site, self._mouth, self._dice = exchange, site, mouth, dice
        self.fetcher = ShardFetcher(exchange)
        self._of = _Attempt((-1, -1))

    def turn(self, book: Logbook, state: OuterState, own: OwnContribution) -> str:
        """Do what the phase asks of this site; what is waited for, empty if something was done. Raises IntegrityError
        where the log takes in what no honest reducer or keeper publishes; MissingObjectError, UnreachableError."""
        now = book.schedule
        if self._of.name != (now.step, now.attempt):
            self._of = _Attempt((now.step, now.attempt))
            self.fetcher.forget()
            for data in own.payload:
                self.fetcher.keep(data, sha256_hex(data))
        payloads = self._payloads(book, state)
        if now.phase == OuterPhase.OPEN:
            reducers = (now.documents.keys() & now.members) - now.liars
            place = place_of(self._exchange.run, state, now.attempt, now.documents, reducers)
            self._has_part(place, self._site)
            return f"the payloads of outer step {now.step}"
        place = place_of(self._exchange.run, state, now.attempt, now.contributors, now.reducers)
        if now.phase == OuterPhase.PRODUCTS:
            return self._tell_products(place, payloads, now)
        if now.phase == OuterPhase.MEANS:
            return self._tell_means(place, payloads, now)
        if now.phase == OuterPhase.CHECK:
            return self._check(place, payloads, now)
        return f"outer step {now.step} to be settled"

    def made(self, boundary: Boundary) -> tuple[OuterState, Admitted] | None:
        """What this site has come to by the means of which the log made the step, if it has. Raises IntegrityError
        where one of them is shown to be wrong."""
        of, parts = self._of, self._of.parts
        if of.wrong and of.wrong in {*boundary.products.values(), *boundary.means.values()}:
            raise IntegrityError(
                f"outer step {boundary.step - 1} was made of {of.wrong[:16]}…, which is shown to be wrong",
                "stop: the run's keeper is wrong, or this machine is",
            )
        same = of.name == (boundary.step - 1, boundary.attempt) and parts is not None
        if not same or of.after is None or of.judged is None or parts is None:
            return None
        return of.after, of.judged

    def _payloads(self, book: Logbook, state: OuterState) -> Payloads:
        """Of whom signed; their documents are fetched once."""
        limits, made = limits_at(self._exchange, state, book.dealing), self._of.contributions
        for site, document in book.schedule.documents.items():
            if site not in made:
                made[site] = self._exchange.contribution(document, site, limits)
        left = {site: made[site] for site in book.schedule.documents}
        return Payloads(limits, state, left, self.fetcher.read)

    def _has_part(self, place: ReductionPlace, reducer: str) -> bool:
        """Whether that part of all payloads is here; what is missing is fetched."""
        made, part, count = self._of.contributions, place.part(reducer), self._exchange.run.settings.shards
        return self.fetcher.has(
            [made[site].shards[number] for number in as_sent(document, range(count)) if number in part]
            for site, document in place.made_of.items()
        )

    def _tell_products(self, place: ReductionPlace, payloads: Payloads, now: Schedule) -> str:
        if self._site not in now.untold or self._mouth.said_any("products", now):
            return f"products of {', '.join(sorted(now.untold))}"
        if not self._has_part(place, self._site):
            return f"this site's shards of the contributions to outer step {now.step}"
        made = {number: payloads.products(number) for number in place.part(self._site)}
        data = make_products(place, self._site, made).encode()
        self._exchange.publish(data)
        self._mouth.say("products", now, sha256_hex(data))
        return ""

    def _opened(self, place: ReductionPlace, payloads: Payloads, now: Schedule) -> Parts:
        """What has been told so far."""
        known = self._of.parts
        if known is None or known.means.keys() != now.means.keys():
            known = Parts.opened(self._exchange, place, payloads.limits, now.products, now.means)
            self._of.parts = known
        return known

    def _tell_means(self, place: ReductionPlace, payloads: Payloads, now: Schedule) -> str:
        parts = self._opened(place, payloads, now)
        judged = self._of.judged = self._of.judged or parts.judged(self._exchange.run)
        self._has_means(parts)
        if not judged.complete or undecodable(list(parts.products.values())):
            return f"outer step {now.step} to begin again"
        if self._site not in now.untold or self._mouth.said_any("means", now):
            return f"means of {', '.join(sorted(now.untold))}"
        files: dict[int, ShardEntry] = {}
        for number in place.part(self._site):
            data = payloads.write_mean(self._site, number, payloads.mean(number, judged.shares))
            self._exchange.publish(data)
            files[number] = ShardEntry(sha256=sha256_hex(data), size=len(data))
            self.fetcher.keep(data, files[number].sha256)
        told = make_means(place, self._site, now.products, files).encode()
        self._exchange.publish(told)
        self._mouth.say("means", now, sha256_hex(told))
        return ""

    def _has_means(self, parts: Parts) -> bool:
        return self.fetcher.has((one,) for means in parts.means.values() for one in means.shards)

    def _check(self, place: ReductionPlace, payloads: Payloads, now: Schedule) -> str:
        """Compute the step, and another's part again where the dice say so."""
        of, parts = self._of, self._opened(place, payloads, now)
        judged = of.judged = of.judged or parts.judged(self._exchange.run)
        if of.drawn is None:
            others = sorted(now.reducers - {self._site})
            drawn = others and self._dice.random() < self._exchange.run.checks
            of.drawn = (self._dice.choice(others),) if drawn else ()
        wanted = [self._has_part(place, reducer) for reducer in of.drawn]
        if not self._has_means(parts) or not all(wanted):
            return f"the means of outer step {now.step}"
        if any(self.fetcher.is_broken(one) for means in parts.means.values() for one in means.shards):
            return f"outer step {now.step} to begin again: other bytes lie in the place of a mean"
        if of.after is None and not of.wrong:
            broken = parts.undecodable_mean(payloads)
            if broken is not None:
                of.wrong = now.means[broken[0]]
            else:
                found = (self._wrong(parts, payloads, judged, one, now) for one in of.drawn)
                of.wrong = next(filter(None, found), "")
                of.drawn = ()
            if not of.wrong:
                of.after = parts.step(payloads)
            if of.wrong:
                log.warning("document %s of a reducer is wrong", of.wrong)
        if of.wrong:
            self._mouth.say("accuse", now, of.wrong)
        elif of.after is not None and self._site in now.untold:
            self._mouth.say("checked", now, of.after.digest.hex())
        return f"outer step {now.step} to be settled"

    def _wrong(self, parts: Parts, payloads: Payloads, judged: Admitted, reducer: str, now: Schedule) -> str:
        """A document of that reducer which is not what anybody gets; none where that cannot be said."""
        try:
            if parts.wrong_products(payloads, reducer) is not None:
                return now.products[reducer]
            return now.means[reducer] if parts.wrong_mean(payloads, reducer, judged.shares) is not None else ""
        except IntegrityError as error:
            log.warning("the part of %s cannot be computed again: %s", reducer, error)
            return ""
