"""The reduction of an attempt, as every process computes it: what a reducer's shards add to admission, the shares that
follow from all, the means, the outer step, and whether what a reducer published is what anybody gets."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isnan, nan

import numpy as np

from protocol.errors import IntegrityError
from protocol.sites.admission import Admitted, admit_by_products
from protocol.sites.contribution import Contribution, ContributionLimits
from protocol.sites.forms import MalformedContribution
from protocol.sites.layout import F32, Piece, Tensors, cut
from protocol.sites.outer import OuterState, OuterStepError, advance_by, outer_factors, weighted_sum
from protocol.sites.payload import decode_shard, encode_dense, encode_visible
from protocol.sites.reduction import (
    PartMeans,
    PartProducts,
    ReductionPlace,
    added_up,
    open_means,
    open_products,
    reducers_of,
    same,
)
from protocol.sites.reductions import Products, gram
from protocol.sites.run import SitesRun
from trainer.sites.exchange import ReadShard, SiteExchange


def place_of(
    run: SitesRun, state: OuterState, attempt: int, made_of: Mapping[str, str], reducers: Collection[str]
) -> ReductionPlace:
    """Of an attempt at the outer step from `state`, whose contributions `made_of` are reduced by `reducers`."""
    dealt = reducers_of(bytes.fromhex(run.seed), state.step, attempt, run.settings.shards, reducers)
    return ReductionPlace(run.digest, state.step, attempt, state.digest.hex(), made_of, dealt)


@dataclass(frozen=True)
class Payloads:
    """What is reduced: the contributions of an attempt by site, and how their files are `read`."""

    limits: ContributionLimits
    state: OuterState
    contributions: Mapping[str, Contribution]
    read: ReadShard

    def decoded(self, site: str, shard: int) -> list[F32] | None:
        """The pieces of a contribution's shard; None where it does not decode. Raises IntegrityError where other bytes
        lie under its hash; MissingObjectError, UnreachableError."""
        pieces, settings = self.pieces(shard), self.limits.config
        data = self.read(self.contributions[site].shards[shard])
        try:
            base = cut(self.state.weights, pieces)
            return decode_shard(data, self.limits.place(site), shard, pieces, settings.mode, base)
        except MalformedContribution:
            return None

    def seen(self, site: str, shard: int) -> list[F32] | None:
        """The same, None also where other bytes lie under its hash. Raises MissingObjectError, UnreachableError."""
        try:
            return self.decoded(site, shard)
        except IntegrityError:
            return None

    def pieces(self, shard: int) -> tuple[Piece, ...]:
        return self.state.layout.shards(self.limits.config.shards)[shard]

    def products(self, shard: int) -> Products:
        """Of all contributions in that shard as a reducer sees them: not a number in the row of one that does not
        decode, or that is other bytes than were signed. Raises as `seen`."""
        return _products({site: self.seen(site, shard) for site in sorted(self.contributions)})

    def products_again(self, shard: int) -> Products:
        """The same as others check it. Raises as `decoded`: whoever told them may have had the right bytes."""
        return _products({site: self.decoded(site, shard) for site in sorted(self.contributions)})

    def mean(self, shard: int, shares: Mapping[str, Fraction]) -> list[F32]:
        """The weighted sum in float32. Raises MalformedContribution where one that counts does not decode;
        OuterStepError where it is not finite."""
        parts: list[list[F32]] = []
        for site in sorted(shares):
            found = self.decoded(site, shard)
            if found is None:
                raise MalformedContribution(f"shard {shard} of {site} does not decode, and counts")
            parts.append(found)
        with np.errstate(over="ignore", invalid="ignore"):
            made = [weighted_sum(values, outer_factors(shares)) for values in zip(*parts, strict=True)]
        if not all(np.isfinite(one).all() for one in made):
            raise OuterStepError(f"the mean of shard {shard} would not be finite")
        return made

    def write_mean(self, reducer: str, shard: int, mean: Sequence[F32]) -> bytes:
        """As a contribution's shard is written, in the run's mode: in `sparse` what leads from the outer weights to
        those with the mean taken off."""
        settings, base = self.limits.config, cut(self.state.weights, self.pieces(shard))
        place = self.limits.place(reducer)
        if settings.mode == "sparse":
            after = [value - one for value, one in zip(base, mean, strict=True)]
            return encode_visible(place, shard, base, after)
        return encode_dense(place, shard, mean, settings.codebook if settings.mode == "int8" else None)

    def read_mean(self, reducer: str, shard: int, data: bytes) -> list[F32]:
        """What everybody takes for the mean of a shard. Raises MalformedContribution."""
        pieces = self.pieces(shard)
        base = cut(self.state.weights, pieces)
        return decode_shard(data, self.limits.place(reducer), shard, pieces, self.limits.config.mode, base)


@dataclass(frozen=True)
class Parts:
    """All that reducers published of one attempt, opened: `products` and `means` by reducer."""

    place: ReductionPlace
    products: Mapping[str, PartProducts]
    means: Mapping[str, PartMeans]

    @classmethod
    def opened(
        cls,
        exchange: SiteExchange,
        place: ReductionPlace,
        limits: ContributionLimits,
        products: Mapping[str, str],
        means: Mapping[str, str],
    ) -> "Parts":
        """From their documents' hashes. Raises MalformedPart, IntegrityError, MissingObjectError, UnreachableError."""
        opened = {
            site: open_products(exchange.document(one, place.file_bytes), place, site) for site, one in products.items()
        }
        told = {
            site: open_means(exchange.document(one, place.file_bytes), place, site, products, limits.longest)
            for site, one in means.items()
        }
        return cls(place, opened, told)

    def judged(self, run: SitesRun) -> Admitted:
        """Which contributions count, by all products."""
        return admit_by_products(self.place.sites, added_up(list(self.products.values())), run.settings.admission)

    def step(self, payloads: Payloads) -> OuterState:
        """The state that the means lead to. Raises OuterStepError, MalformedContribution, and as `Payloads.read`."""
        found = {
            one.shard: payloads.read_mean(site, one.shard, payloads.read(one))
            for site, means in self.means.items()
            for one in means.shards
        }
        state, settings = payloads.state, payloads.limits.config
        cuts = state.layout.shards(settings.shards)
        mean: Tensors = state.layout.joined(cuts, [found[number] for number in range(settings.shards)])
        return advance_by(state, mean, settings.outer)

    def undecodable_mean(self, payloads: Payloads) -> tuple[str, int] | None:
        """A reducer and a shard whose mean does not decode, though its bytes have their hash. Raises as
        `Payloads.read`."""
        for site, means in self.means.items():
            for one in means.shards:
                data = payloads.read(one)
                try:
                    payloads.read_mean(site, one.shard, data)
                except MalformedContribution:
                    return site, one.shard
        return None

    def wrong_products(self, payloads: Payloads, reducer: str) -> int | None:
        """The first shard whose products are not what anybody gets. Raises MissingObjectError, UnreachableError, and
        IntegrityError where other bytes lie under a hash: then that cannot be said."""
        told = self.products[reducer].by_shard
        return next((one for one in sorted(told) if not same(told[one], payloads.products_again(one))), None)

    def unseen(self, reducer: str, shard: int) -> bool:
        """Whether it says that a contribution does not decode in that shard of its own."""
        told = self.products[reducer].by_shard.get(shard, [])
        return any(isnan(row[at]) for at, row in enumerate(told))

    def wrong_mean(self, payloads: Payloads, reducer: str, shares: Mapping[str, Fraction]) -> int | None:
        """The first shard whose mean is not what anybody gets; the products of that part are right. Raises
        MissingObjectError, UnreachableError, and IntegrityError where other bytes lie under its hash."""
        for one in self.means[reducer].shards:
            data = payloads.read(one)
            right = payloads.write_mean(reducer, one.shard, payloads.mean(one.shard, shares))
            try:
                told = payloads.read_mean(reducer, one.shard, data)
            except MalformedContribution:
                return one.shard
            expected = payloads.read_mean(reducer, one.shard, right)
            if any(mine.tobytes() != other.tobytes() for mine, other in zip(expected, told, strict=True)):
                return one.shard
        return None


def _products(found: Mapping[str, list[F32] | None]) -> Products:
    """Of all with one another, in their order."""
    good = {site: one for site, one in found.items() if one is not None}
    place, made = {site: at for at, site in enumerate(good)}, gram(list(good.values()))
    return [
        [made[place[one]][place[other]] if {one, other} <= place.keys() else nan for other in found] for one in found
    ]


def reduced_step(
    exchange: SiteExchange,
    state: OuterState,
    limits: ContributionLimits,
    place: ReductionPlace,
    documents: tuple[Mapping[str, str], Mapping[str, str]],
) -> tuple[OuterState, Admitted]:
    """The state after an outer step that was made of means, and which contributions counted; `documents`: products and
    means of its reducers. Raises IntegrityError, MissingObjectError, UnreachableError."""
    parts = Parts.opened(exchange, place, limits, *documents)
    return parts.step(Payloads(limits, state, {}, exchange.shard)), parts.judged(exchange.run)
