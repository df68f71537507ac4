"""Learning a null model: rates at which no bet of protocol/evidence pays honest work on average.

A bet's tilt and most come from pilot files, which show how far a figure's problems spread. Its rate c is itself found
by betting, on the other files, against the hypothesis that it is too low. If E[Z] ≥ 1 for Z = exp(λ·min(S − c·N, b)),
the wealth

    K(c) = mean over η of Π (1 + η·(1 − Z_i)),     0 < η ≤ 1/(exp(λb) − 1),

has mean at most 1 over the measured problems, and reaches 1/α with probability at most α. K grows with c, so the least
c with K(c) ≥ 1/α in every stratum is too low with probability at most α (Waudby-Smith and Ramdas, "Estimating means of
bounded random variables by betting", 2024). Nothing is assumed of the shape of the distribution: Z is bounded, and
problems are independent. At audit rates below 1 a file is measured in several independent draws, and Z_i is the mean
over those that drew the problem: given the file they are alike, so the mean's expectation is that of one.

The calibrations of all policy steps share one probability: that of step k takes the part 1/((k+1)(k+2)). The safety
factor multiplies the measured figures first, for machines that were not measured.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from calibration.bounds import Array, rounded_up
from protocol.evidence.figures import BETS, FIGURES, FileFigures, rounded
from protocol.evidence.null_model import FALSE_ACCUSATION, Bet, PairNullModel
from protocol.seeds import AUDIT_EVERYTHING

SAFETY = 1.1
TILTS = (0.25, 0.8)  # λ of the bets, in standard deviations of a problem
# One problem pays at most 1.2 nats, but counts for 1.5 to 3 standard deviations: heavy tails accuse nobody, and the
# less Z can be, the fewer problems bear a rate out.
_MOST_NATS, _MOST_SPREADS = 1.2, (1.5, 3.0)
_STAKES = 0.98 * 2.0 ** -np.arange(8)
# A figure of events that honest work hardly has, whose spread says nothing: bets go by what one event pays.
_EVENTS = "unexplained"
_EVENT_SHARES = (0.5, 1.0)
_IDLE_NATS = 0.05  # what a problem without an event costs the bet of share 1, about
_LEAST_SPREAD = {"mantissas": 0.02, "logprobs": 1e-4, "gaps": 1e-4, "coherence": 0.2}  # where pilot files show none
# No mean below it accuses anybody: half of the distance of two float32 from 16 to 32, where scores are that ln p is
# taken of. Engines that agree to the bit differ by how each rounds it, and by more where a policy is less sharp.
_LEAST_RATE = {"logprobs": 2.0**-20}
_NO_BET = Bet(tilt=0, rate=0, most=0)
_Units = tuple[Array, Array, np.ndarray[Any, np.dtype[np.bool_]]]
"""S, N and whether the audit drew a row, of one figure [problems or blocks, draws]."""
Draws = Sequence[FileFigures]
"""The figures of one file in independent audits of it."""


def audit_draws(audit_rate: int) -> int:
    """Return in how many audits at this rate (of 65536) to measure a file: as many as draw each row about once."""
    return min(16, AUDIT_EVERYTHING // audit_rate)


def nats_wanted(strata: int, step: int, pairs: int = 1) -> float:
    """Return the nats that refute a rate of policy step `step`, whose part of the probability so many pairs share."""
    shares = 2 * len(FIGURES) * BETS * strata * pairs * (step + 1) * (step + 2)
    return math.log(shares / FALSE_ACCUSATION)


def pair_null_model(
    worker: str,
    verifier: str,
    strata: Sequence[Sequence[Draws]],
    pilot: Sequence[Draws],
    step: int = 0,
    pairs: int = 1,
) -> PairNullModel:
    """Return the null model of one of a step's `pairs` of engines. `strata`: honest files of each decode batch;
    `pilot`: others. Coherence is no figure of an engine with itself, which has no differences to speak of."""
    wanted, bets = nats_wanted(len(strata), step, pairs), {}
    for name in FIGURES:
        if name == "coherence" and worker == verifier:
            continue
        own = [_units(files, name) for files in strata]
        if name == _EVENTS:
            bets[name] = _event_bets(own, wanted)
            continue
        spread = max(_spread(*_units(pilot, name)), _LEAST_SPREAD[name])
        bets[name] = tuple(_spread_bet(tilt / spread, spread, own, wanted, _LEAST_RATE.get(name, 0)) for tilt in TILTS)
    return PairNullModel(worker=worker, verifier=verifier, bets=bets)


def log_wealth(loss: Array, most_nats: float) -> float:
    """Return ln K of a bet that lost `loss` = 1 − Z in each problem, where ln Z is at most `most_nats`."""
    stakes = _STAKES / math.expm1(most_nats)
    grown = np.log1p(stakes[:, None] * loss[None, :]).sum(axis=1)
    return float(np.logaddexp.reduce(grown) - math.log(len(stakes)))


def _event_bets(strata: Sequence[_Units], wanted: float) -> tuple[Bet, ...]:
    """Bets of which one event pays more the more problems there are: with none seen in n, a rate is too low unless it
    costs `wanted`·(e^x − 1)/n nats a problem, for a payment of x."""
    problems = min(len(units[0]) for units in strata)
    pays = math.log1p(_IDLE_NATS * problems / wanted)
    bets = (_bet(rounded(share * pays), 1.0, 0.1, strata, wanted) for share in _EVENT_SHARES)
    # Where a problem may honestly have half an event, another hardly pays.
    count = max(_count(units[1]) for units in strata)
    return tuple(bet if bet.rate * count < 0.5 else _NO_BET for bet in bets)


def _spread_bet(tilt: float, spread: float, strata: Sequence[_Units], wanted: float, least_rate: float) -> Bet:
    """A bet whose `most` is in standard deviations of a problem, `spread`."""
    tilt = rounded(tilt)
    least, largest = (spreads * spread for spreads in _MOST_SPREADS)
    bet = _bet(tilt, rounded(min(max(_MOST_NATS / tilt, least), largest)), spread, strata, wanted)
    return bet.model_copy(update={"rate": max(bet.rate, least_rate)}) if bet.tilt else bet


def _bet(tilt: float, most: float, unit: float, strata: Sequence[_Units], wanted: float) -> Bet:
    """The bet with the least rate that every stratum bears out, if any. `unit`: what a problem's sum is off by."""
    rates = [_least_rate(tilt, most, stratum, unit / _count(stratum[1]), wanted) for stratum in strata]
    if not all(map(math.isfinite, rates)):
        return _NO_BET
    return Bet(tilt=tilt, rate=rounded_up(max(rates), 6), most=most)


def _least_rate(tilt: float, most: float, units: _Units, unit: float, wanted: float) -> float:
    """The least rate from 0 on at which the measured problems refute that the bet pays, to a thousandth of `unit`;
    infinite if there are too few problems."""

    totals, counts, drawn = units
    draws = np.maximum(drawn.sum(axis=1), 1)

    def refuted(rate: float) -> bool:
        loss = -np.expm1(tilt * np.minimum(totals - rate * counts, most))
        return log_wealth(loss.sum(axis=1) / draws, tilt * most) >= wanted

    low, high = 0.0, 1e4 * unit
    if not refuted(high):
        return math.inf
    while high - low > 1e-3 * unit:
        middle = (low + high) / 2
        low, high = (low, middle) if refuted(middle) else (middle, high)
    return high


def _units(files: Sequence[Draws], name: str) -> _Units:
    """With S moved up by the safety factor, whatever its sign. A block counts in every draw; so does a problem in all
    that drew one of its rows, though a figure may count none of them: how often must not depend on what is measured."""
    both = _sums(files, name)
    drawn = np.ones(both.shape[:2], dtype=bool) if name == "coherence" else _sums(files, "logprobs")[..., 1] > 0
    return both[..., 0] + (SAFETY - 1) * np.abs(both[..., 0]), both[..., 1], drawn


def _sums(files: Sequence[Draws], name: str) -> Array:
    """S and N [problems, draws, 2]."""
    units = [draws for file in files for draws in zip(*(figures[name] for figures in file), strict=True)]
    both = [[(draw.total, draw.count) for draw in draws] for draws in units]
    return np.array(both, dtype=np.float64).reshape(len(units), max(map(len, units), default=1), 2)


def _spread(totals: Array, counts: Array, drawn: np.ndarray[Any, np.dtype[np.bool_]]) -> float:
    """The standard deviation of a problem's S − c·N at the mean rate c."""
    rate = totals.sum() / max(counts.sum(), 1.0)
    return float(np.std((totals - rate * counts)[drawn])) if drawn.any() else 0.0


def _count(counts: Array) -> float:
    return float(counts[counts > 0].mean()) if counts.any() else 1.0
