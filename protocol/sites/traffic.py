"""Bytes that a site sends and receives, by formula: what a way to synchronise costs, and what it saves.

`size`: elements of the model. `sites`: how many take part. All figures are of one site, for one synchronisation.
"""

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Traffic:
    """Bytes that one site sends and receives."""

    sent: Fraction
    received: Fraction

    @property
    def total(self) -> Fraction:
        return self.sent + self.received


def all_reduce(size: int, sites: int, bytes_each: Fraction) -> Traffic:
    """A ring: reduce-scatter and all-gather, each (sites − 1)/sites of the elements in both directions. With four bytes
    each it is data parallelism in float32, once per inner step."""
    one_way = 2 * Fraction(sites - 1, sites) * size * bytes_each
    return Traffic(one_way, one_way)


def all_fetch(size: int, sites: int, bytes_each: Fraction) -> Traffic:
    """Every site publishes its contribution once and fetches all others': each can check everything itself."""
    return Traffic(size * bytes_each, (sites - 1) * size * bytes_each)


def reduced_fetch(size: int, sites: int, bytes_each: Fraction, checks: Fraction = Fraction(0)) -> Traffic:
    """Every site publishes its contribution, fetches its own 1/sites of the others' and publishes the mean of that
    part, from which all take theirs; with probability `checks` it fetches another's part too, to compute it again.
    The mean of all sites."""
    part = Fraction(sites - 1, sites) * size * bytes_each
    return Traffic(size * bytes_each + Fraction(size, sites) * bytes_each, (2 + checks) * part)


def saving(size: int, sites: int, inner_steps: int, outer: Traffic) -> Fraction:
    """How many times fewer bytes than data parallelism in float32 moves for the same tokens."""
    return inner_steps * all_reduce(size, sites, Fraction(4)).total / outer.total
