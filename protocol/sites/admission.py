"""Which contributions count in an outer step, from what is published alone: anyone gets the same answer to the bit.

A contribution counts if its length is within a factor of the median length, and the median of its cosines with the
others' is not below a bound. Both need no more than the products of all contributions with one another, and a median
is not moved beyond the honest ones' by a minority. What counts is cut to the median length, so that a site moves the
weights no further than half of all others do.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from protocol.sites.config import AdmissionConfig
from protocol.sites.layout import F32
from protocol.sites.reductions import Products, added, gram


@dataclass(frozen=True)
class Admitted:
    """`shares`: of the sites that count, by what each contribution is multiplied before all are added; empty if the
    outer step cannot be made of what there is. `excluded`: why another's does not count."""

    shares: Mapping[str, Fraction]
    excluded: Mapping[str, str]

    @property
    def complete(self) -> bool:
        return bool(self.shares)


def admit(contributions: Mapping[str, Sequence[Sequence[F32]]], config: AdmissionConfig) -> Admitted:
    """`contributions`: each site's shards, each as pieces; cut alike for all sites."""
    order = sorted(contributions)
    shards = zip(*(contributions[site] for site in order), strict=True)
    return admit_by_products(order, added([gram(shard) for shard in shards]), config)


def admit_by_products(sites: Sequence[str], products: Products, config: AdmissionConfig) -> Admitted:
    """The same from the products of all with one another, in the order of `sites`."""
    if not sites:
        return Admitted({}, {})
    excluded: dict[str, str] = {}
    lengths = {site: math.sqrt(products[at][at]) for at, site in enumerate(sites)}
    for site, length in lengths.items():
        if not math.isfinite(length):
            excluded[site] = "infinity or NaN in it"
        elif length == 0 and config.cosine is not None:
            excluded[site] = "it is zero"
    if config.cosine is None:
        return _equal_shares([site for site in sites if site not in excluded], excluded, config)
    left = [site for site in sites if site not in excluded]
    middle = _lower_median([lengths[site] for site in left])
    for site in left:
        if not middle / config.norm_factor <= lengths[site] <= middle * config.norm_factor:
            excluded[site] = f"its length is {lengths[site] / middle:.3g} times the median"
    left = [site for site in left if site not in excluded]
    place = {site: at for at, site in enumerate(sites)}
    for site in left:
        others = [other for other in left if other != site]
        found = _upper_median([_cosine(products, place[site], place[other]) for other in others])
        if found < config.cosine:
            excluded[site] = f"its median cosine with the others is {found:.3f}"
    left = [site for site in left if site not in excluded]
    return _cut_to_median(left, lengths, excluded, config)


def _cosine(products: Products, one: int, other: int) -> float:
    return products[one][other] / (math.sqrt(products[one][one]) * math.sqrt(products[other][other]))


def _cut_to_median(
    sites: Sequence[str], lengths: Mapping[str, float], excluded: Mapping[str, str], config: AdmissionConfig
) -> Admitted:
    if len(sites) < config.minimum:
        return _too_few(sites, excluded, config)
    middle = _lower_median([lengths[site] for site in sites])
    shares = {
        site: Fraction(1, len(sites)) * min(Fraction(1), Fraction(middle) / Fraction(lengths[site])) for site in sites
    }
    return Admitted(shares, excluded)


def _equal_shares(sites: Sequence[str], excluded: Mapping[str, str], config: AdmissionConfig) -> Admitted:
    if len(sites) < config.minimum:
        return _too_few(sites, excluded, config)
    return Admitted({site: Fraction(1, len(sites)) for site in sites}, excluded)


def _too_few(sites: Sequence[str], excluded: Mapping[str, str], config: AdmissionConfig) -> Admitted:
    why = f"only {len(sites)} count, {config.minimum} are needed"
    return Admitted({}, {**excluded, **dict.fromkeys(sites, why)})


def _lower_median(values: Sequence[float]) -> float:
    """The lower of two middle ones: never longer than an honest length while fewer than half are hostile."""
    return sorted(values)[(len(values) - 1) // 2] if values else 0.0


def _upper_median(values: Sequence[float]) -> float:
    """The higher of two middle ones: of two others an honest site needs one that is honest. −1 of none."""
    return sorted(values)[len(values) // 2] if values else -1.0
