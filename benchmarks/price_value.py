"""What a cheat is worth: its saving against what it loses when it is found, exactly.

Everything is relative to honest work on the same files. A file earns `pay`, and honest work costs its maker at most
that, or it would not be done; so a cheat that spares a share of the work saves at most that share of the pay, found or
not. Found, the file's pay is lost and so is the slash. Money is base units, probabilities and shares are Fractions;
nothing is assumed of honest income that an ejected node forgoes, nor of pay under way that a slash burns, which make it
dearer.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

Outcome = Literal["slashed", "fined", "nothing"]
"""Of a file that is found: its node's stake is slashed; it is not paid and costs the malformed penalty; or neither."""
BPS = 10_000


@dataclass(frozen=True)
class AtStake:
    """What a pool's terms and its network's parameters put at stake, in base units. `pay`: of the largest file;
    `stake`: what a node must have; `slash_bps`: its share that a rejected file costs, in 1/10000."""

    pay: int
    stake: int
    slash_bps: int
    malformed: int

    def penalty(self, outcome: Outcome) -> int:
        """What a node loses of its stake."""
        return {"slashed": self.stake * self.slash_bps // BPS, "fined": self.malformed, "nothing": 0}[outcome]


@dataclass(frozen=True)
class Gain:
    """At most what a cheat of all rows gains, in shares of a file's pay: `saved` of work, whether it is found or not,
    and `extra` pay for what was not done, if it is not."""

    saved: Fraction = Fraction(0)
    extra: Fraction = Fraction(0)


def expected(gain: Gain, share: Fraction, found: Fraction, outcome: Outcome, stakes: AtStake) -> Fraction:
    """Base units that cheating on a `share` of a file's rows is worth, a file being found with probability `found`."""
    kept = share * (gain.saved + (1 - found) * gain.extra) * stakes.pay
    return kept - found * (stakes.pay + stakes.penalty(outcome))


def over_life(gain: Gain, share: Fraction, files: int, outcome: Outcome, stakes: AtStake) -> Fraction:
    """The same for a node that goes on until it is found with its `files`-th file: what that life is worth."""
    kept = share * (files * gain.saved + (files - 1) * gain.extra) * stakes.pay
    return kept - stakes.pay - stakes.penalty(outcome)


def over_lives(gain: Gain, share: Fraction, found: Fraction, files: int, most: int, stakes: AtStake) -> Fraction:
    """The same for nodes of which a share `found` loses its stake with its `files`-th file, and the others none though
    they go on to the `most`-th."""
    free = share * most * (gain.saved + gain.extra) * stakes.pay
    return found * over_life(gain, share, files, "slashed", stakes) + (1 - found) * free


def least_stake(gain: Gain, share: Fraction, found: Fraction, stakes: AtStake) -> int | None:
    """The least stake of whole base units with which a slashed cheat is a loss; None where no stake suffices."""
    kept = share * (gain.saved + (1 - found) * gain.extra) * stakes.pay - found * stakes.pay
    if kept < 0:
        return 0
    if found == 0:
        return None
    needed = kept / found * BPS / stakes.slash_bps
    return math.floor(needed) + 1


def break_even(gain: Gain, share: Fraction, outcome: Outcome, stakes: AtStake) -> Fraction:
    """The probability of being found at which a cheat is worth nothing; above it, it is a loss."""
    most = share * (gain.saved + gain.extra) * stakes.pay
    return most / (stakes.pay + stakes.penalty(outcome) + share * gain.extra * stakes.pay)


def files_until(found: Fraction, confidence: Fraction) -> int | None:
    """After how many files a node that cheats in each is found with at least that probability; None for never."""
    if found == 0:
        return None
    if found == 1:
        return 1
    missed, files, escape = 1 - found, 1, 1 - found
    low = max(1, math.floor(math.log(1 - confidence) / math.log1p(-float(found))) - 2)
    files, escape = low, missed**low
    while escape > 1 - confidence:
        files, escape = files + 1, escape * missed
    return files


def captured(seats: int, dishonest: int, body: int) -> Fraction:
    """The probability that more than half of `body` seats, drawn without replacement, are among the dishonest ones."""
    ways = math.comb(seats, body)
    most = sum(
        math.comb(dishonest, bad) * math.comb(seats - dishonest, body - bad) for bad in range(body // 2 + 1, body + 1)
    )
    return Fraction(most, ways)
