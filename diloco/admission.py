"""Which contributions count in an outer step, from what is published alone: anyone gets the same answer to the bit.

A contribution counts if its length is within a factor of the median length, and the median of its cosines with the
others' is not below a bound. Both follow from the inner products of all contributions, and a minority cannot move a
median beyond the honest values. What counts is scaled down to the median length, so that a worker moves the weights no
further than half of the others do.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from diloco.config import AdmissionConfig
from diloco.tensors import Products


@dataclass(frozen=True)
class Admitted:
    """`weights`: for each admitted worker, the factor of its contribution in the sum; empty if the outer step cannot be
    made of what there is. `excluded`: why another worker's contribution does not count."""

    weights: Mapping[str, Fraction]
    excluded: Mapping[str, str]


def admit_equally(workers: Sequence[str], config: AdmissionConfig) -> Admitted:
    """Admit every contribution that decodes, which makes it finite: one owner trusts all workers (`cosine` null)."""
    if len(workers) < config.minimum:
        return _too_few(workers, {}, config)
    return Admitted({worker: Fraction(1, len(workers)) for worker in workers}, {})


def admit(workers: Sequence[str], products: Products, config: AdmissionConfig) -> Admitted:
    """Judge contributions by their inner products with one another, in the order of `workers`."""
    assert config.cosine is not None, "see admit_equally"
    excluded: dict[str, str] = {}
    at = {worker: place for place, worker in enumerate(workers)}
    lengths = {worker: math.sqrt(products[place][place]) for worker, place in at.items()}
    for worker, length in lengths.items():
        if not math.isfinite(length):
            excluded[worker] = "infinity or NaN in it"
        elif length == 0:
            excluded[worker] = "it is zero"
    left = [worker for worker in workers if worker not in excluded]
    median = _lower_median([lengths[worker] for worker in left])
    for worker in left:
        if not median / config.norm_factor <= lengths[worker] <= median * config.norm_factor:
            excluded[worker] = f"its length is {lengths[worker] / median:.3g} times the median"
    left = [worker for worker in left if worker not in excluded]
    for worker in left:
        cosines = [
            products[at[worker]][at[other]] / (lengths[worker] * lengths[other]) for other in left if other != worker
        ]
        typical = _upper_median(cosines)
        if typical < config.cosine:
            excluded[worker] = f"its median cosine with the others is {typical:.3f}"
    left = [worker for worker in left if worker not in excluded]
    if len(left) < config.minimum:
        return _too_few(left, excluded, config)
    median = _lower_median([lengths[worker] for worker in left])
    scale = {worker: min(Fraction(1), Fraction(median) / Fraction(lengths[worker])) for worker in left}
    return Admitted({worker: Fraction(1, len(left)) * scale[worker] for worker in left}, excluded)


def _too_few(workers: Sequence[str], excluded: Mapping[str, str], config: AdmissionConfig) -> Admitted:
    why = f"only {len(workers)} are admitted, {config.minimum} are needed"
    return Admitted({}, {**excluded, **dict.fromkeys(workers, why)})


def _lower_median(values: Sequence[float]) -> float:
    """Return the lower of two middle values: never longer than an honest length while fewer than half are hostile."""
    return sorted(values)[(len(values) - 1) // 2] if values else 0.0


def _upper_median(values: Sequence[float]) -> float:
    """Return the higher of two middle values: of two others, an honest worker needs one that is honest. −1 of none."""
    return sorted(values)[len(values) // 2] if values else -1.0
