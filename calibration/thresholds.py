"""The thresholds that follow from measurements.

The false-reject probability of a submission is split evenly among the eight measurements (union bound). Statistical
bounds (calibration/bounds.py) are multiplied by the safety factor, which stands for machines and kernels that were not
measured; floors, which come from arithmetic, are not.
"""

import math
from collections.abc import Mapping, Sequence

from calibration.bounds import EXTREMES, FEWEST, MEANS, MEASUREMENTS, Design, limit, mean_limit, rounded_up
from calibration.pairs import PairMeasurements

FLOORS = {
    # Four values of a chunk at a power of two or at the cut of the 128 largest, rounded the other way at once.
    "exponent_mismatches_chunk_reject": 4.0,
    # Four mantissas of a chunk (of at least 64 compared) rounded the other way to bfloat16 at once.
    "mantissa_mean_chunk_reject": 4 / 64,
    # Claimed log-probabilities are float32: four units in the last place of a surprisal of up to 32 nats, and one.
    "logprob_error_reject": 8e-6,
    "logprob_mean_reject": 2e-6,
}
MOST = {
    "exponent_mismatches_reject": 128.0,
    "exponent_mismatches_chunk_reject": 128.0,
    "mantissa_mean_reject": 128.0,
    "mantissa_mean_chunk_reject": 128.0,
    "sampling_miss_rate_reject": 1.0,
}
"""No measurement exceeds these, whatever was computed; a threshold there refuses nothing but the impossible."""
UNRELATED = {
    # Of 128 random exponents of eight bits hardly one agrees.
    "exponent_mismatches_reject": 120.0,
    "exponent_mismatches_chunk_reject": 120.0,
    # The mean distance of two random numbers of seven bits is 128/3.
    "mantissa_mean_reject": 42.0,
    "mantissa_mean_chunk_reject": 42.0,
    # Text that was chosen without the noise misses where the model is unsure, and where it is sure of other text.
    "sampling_miss_rate_reject": 0.5,
    # A word that is one in 265, the demo's vocabulary, claimed to be certain, is 5.6 nats off.
    "logprob_mean_reject": 5.6,
    "logprob_error_reject": 5.6,
    "sampling_gap_reject": 5.6,
}
"""What the work of an unrelated model reaches, roughly: a threshold there or above sees nothing."""
_RARE = 50
"""Events of a whole sample above which their count needs no Poisson floor."""


def thresholds(
    pairs: Sequence[PairMeasurements], design: Design, false_reject: float, safety: float
) -> dict[str, float]:
    """Return every measurement's reject threshold, the largest over the pairs, rounded up to three digits."""
    each = [_pair(pair, design, false_reject / len(MEASUREMENTS), safety) for pair in pairs]
    return {name: rounded_up(max(limits[name] for limits in each), 3) for name in MEASUREMENTS}


def _pair(pair: PairMeasurements, design: Design, probability: float, safety: float) -> dict[str, float]:
    out = {}
    for name, extreme in EXTREMES.items():
        bound = limit(pair.extremes[name], probability / design.rows, extreme.quantum)
        out[name] = max(safety * bound.value, FLOORS.get(name, 0.0))
    # Two scores are each off by their error of ln p (the common constant cancels), and the verifier's own choice is a
    # sample as well, with errors like those of chosen tokens: a gap of g needs an error of g/2 on either side.
    either = 2 * max(
        safety * limit(pair.extremes["logprob_error_reject"], probability / 2 / design.rows, 0.0).value, 8e-6
    )
    few = pair.extremes["sampling_gap_reject"].at_least < FEWEST
    out["sampling_gap_reject"] = either if few else min(out["sampling_gap_reject"], either)
    for name, mean in MEANS.items():
        strata = [stratum.sums[name] for stratum in pair.strata]
        # Sums of whole events have tails in whole steps.
        found_mean = mean_limit(strata, pair.ratios[name], design, probability, 1.0 if mean.quantum == 1.0 else 0.0)
        floor = _poisson_floor(pair, name, design, probability) if mean.quantum else 0.0
        seen = pair.largest[name]
        out[name] = max(safety * found_mean, safety * seen, floor, FLOORS.get(name, 0.0))
    return {name: min(value, MOST.get(name, math.inf)) for name, value in out.items()}


def blind(limits: Mapping[str, float]) -> list[str]:
    """Return the thresholds that not even an unrelated model's work would reach."""
    return [name for name in MEASUREMENTS if limits[name] >= UNRELATED[name]]


def _poisson_floor(pair: PairMeasurements, name: str, design: Design, probability: float) -> float:
    """Bound rare events that come one by one: how many a submission may hold though the sample has few or none."""
    strata = [stratum.sums[name] for stratum in pair.strata]
    counted, total = sum(sums.count for sums in strata), math.fsum(sums.total for sums in strata)
    rows = sum(sums.rows for sums in strata)
    quantum = MEANS[name].quantum
    events = total / quantum
    if events > _RARE:
        return 0.0
    upper = events + 1.645 * math.sqrt(events) + 3.0
    in_file = counted / rows * design.rows * design.audited
    fewest = max(1.0, counted / rows * design.fewest)
    return (_poisson_quantile(upper * in_file / counted, probability) + 1) * quantum / fewest


def _poisson_quantile(rate: float, probability: float) -> int:
    """Return the least c with P(Poisson(rate) > c) ≤ probability."""
    term = math.exp(-rate)
    left, count = 1.0 - term, 0
    while left > probability and count < 10_000:
        count += 1
        term *= rate / count
        left -= term
    return count
