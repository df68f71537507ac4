"""What is recorded on chain of an outer step: the state that it led to, and each contribution with its weight."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # commands that ask the chain need no arrays
    from protocol.sites.log import Boundary

ONE = 10**9
"""Of weights: shares are recorded in billionths, rounded down."""


@dataclass(frozen=True)
class RecordedContribution:
    """`document`: SHA-256 (hex) of the signed contribution; `weight`: its share in 1/`ONE`, 0 if it does not count."""

    site: str
    document: str
    weight: int


@dataclass(frozen=True)
class StepRecord:
    """Outer step `step`, which led to the state of digest `state` (hex). Contributions ascend by site."""

    step: int
    state: str
    contributions: tuple[RecordedContribution, ...]


def weight_of(share: Fraction) -> int:
    """Never 0 for one that counts: admission leaves none of less than 1/(64 · 100²)."""
    return share.numerator * ONE // share.denominator


def step_record(boundary: "Boundary", shares: Mapping[str, Fraction]) -> StepRecord:
    """What is to be recorded of the outer step that led to `boundary`, in which these `shares` counted."""
    order = sorted(boundary.made_of.items(), key=lambda one: int(one[0], 16))
    contributions = tuple(
        RecordedContribution(site, document, weight_of(shares.get(site, Fraction(0)))) for site, document in order
    )
    return StepRecord(boundary.step - 1, boundary.digest, contributions)


def differences(recorded: StepRecord, made: StepRecord) -> list[str]:
    """What is recorded otherwise than it was `made`, in words; empty if nothing is."""
    if recorded.step != made.step:
        return [f"it is outer step {recorded.step}, not {made.step}"]
    found = []
    if recorded.state != made.state:
        found.append(f"it led to state {made.state[:16]}…, recorded is {recorded.state[:16]}…")
    theirs = {one.site: one for one in recorded.contributions}
    ours = {one.site: one for one in made.contributions}
    found += [f"{site} contributed, and is not recorded" for site in sorted(ours.keys() - theirs.keys())]
    found += [f"{site} is recorded, and did not contribute" for site in sorted(theirs.keys() - ours.keys())]
    for site in sorted(ours.keys() & theirs.keys()):
        one, other = theirs[site], ours[site]
        if one.document != other.document:
            found.append(f"{site} contributed {other.document[:16]}…, recorded is {one.document[:16]}…")
        if one.weight != other.weight:
            found.append(f"{site} has the weight {other.weight / ONE:.9f}, recorded is {one.weight / ONE:.9f}")
    return found
