"""The outer optimiser: SGD with Nesterov momentum on the mean pseudo-gradient of the contributions that count.

Everything is elementwise float32, each operation rounded once, in a stated order. So anyone who has the contributions
computes the same weights to the bit, on any machine, however tensors are cut.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from protocol.delta.delta import TensorEntry, WeightIndex
from protocol.encoding import canonical_json
from protocol.errors import ConfigError, IntegrityError
from protocol.sites.config import OuterConfig
from protocol.sites.layout import F32, TensorLayout, Tensors

_TINY = np.float32(1e-40)


class OuterStepError(IntegrityError):
    """An outer step that cannot be made; the state stays as it was."""


@dataclass(frozen=True)
class OuterState:
    """What all sites hold alike after outer step `step`: the weights, and the momentum, tensors of the same shapes."""

    step: int
    weights: Tensors
    momentum: Tensors

    @classmethod
    def start(cls, weights: Tensors) -> "OuterState":
        return cls(0, weights, {name: np.zeros_like(one) for name, one in weights.items()})

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over the step's number and the hashes of all weights and momentum: the base that a contribution
        names, and what a joiner compares. Computed once: nobody changes the tensors."""
        hashes = [_index(one).digest.hex() for one in (self.weights, self.momentum)]
        return hashlib.sha256(canonical_json([self.step, *hashes])).digest()

    @cached_property
    def layout(self) -> TensorLayout:
        return TensorLayout.of(self.weights)


def advance(
    state: OuterState, contributions: Mapping[str, Tensors], shares: Mapping[str, Fraction], config: OuterConfig
) -> OuterState:
    """The state after one more outer step. `contributions`: each site's pseudo-gradient (outer − inner weights);
    `shares`: what it is multiplied by. Sites are added in ascending order of their names.

    Raises OuterStepError for none, for other tensors than the state's, where something would not be finite;
    ConfigError in a process that flushes small floats to zero.
    """
    if not contributions or contributions.keys() != shares.keys():
        raise OuterStepError(f"{len(contributions)} contributions and {len(shares)} shares")
    check_tensors(state, contributions)
    order = sorted(contributions)
    factors = outer_factors(shares)
    with np.errstate(over="ignore", invalid="ignore"):
        means = {name: weighted_sum([contributions[site][name] for site in order], factors) for name in state.weights}
    return advance_by(state, means, config)


def advance_by(state: OuterState, mean: Tensors, config: OuterConfig) -> OuterState:
    """The same where the mean is known, of tensors of the state's shapes. Raises as `advance`."""
    if _TINY * np.float32(1) == 0:
        raise ConfigError(
            "this process flushes small floats to zero, so its outer steps would differ from the others'",
            "leave out what sets that, such as torch.set_flush_denormal or a library built with -ffast-math",
        )
    weights, momentum = {}, {}
    with np.errstate(over="ignore", invalid="ignore"):
        for name, value in state.weights.items():
            weights[name], momentum[name] = outer_update(value, state.momentum[name], mean[name], config)
    for name in weights:
        if not (np.isfinite(weights[name]).all() and np.isfinite(momentum[name]).all()):
            raise OuterStepError(f"{name} would not be finite")
    return OuterState(state.step + 1, weights, momentum)


def check_tensors(state: OuterState, contributions: Mapping[str, Tensors]) -> None:
    """Raise OuterStepError unless every contribution has the model's tensors, and nothing else."""
    layout = state.layout
    for site, tensors in contributions.items():
        try:
            fits = TensorLayout.of(tensors) == layout
        except ValueError:
            fits = False
        if not fits:
            raise OuterStepError(f"the contribution of {site} has other tensors than the model")


def outer_factors(shares: Mapping[str, Fraction]) -> list[np.float32]:
    """What each site's contribution is multiplied by, in ascending order of the sites' names."""
    return [np.float32(float(shares[site])) for site in sorted(shares)]


def weighted_sum(values: Sequence[F32], factors: Sequence[np.float32]) -> F32:
    """((0 + factors₀·values₀) + factors₁·values₁) + …, each product and each sum rounded to float32."""
    total, product = np.zeros_like(values[0]), np.empty_like(values[0])
    for factor, value in zip(factors, values, strict=True):
        total += np.multiply(factor, value, out=product)
    return total


def outer_update(weights: F32, momentum: F32, gradient: F32, config: OuterConfig) -> tuple[F32, F32]:
    """m' = μ·m + g; w' = w − η·(g + μ·m'). New weights and momentum."""
    rate, decay = np.float32(config.learning_rate), np.float32(config.momentum)
    after, change = np.empty_like(momentum), np.empty_like(weights)  # no arrays besides: they are as large as the model
    np.add(np.multiply(decay, momentum, out=after), gradient, out=after)
    np.add(np.multiply(decay, after, out=change), gradient, out=change)
    np.subtract(weights, np.multiply(rate, change, out=change), out=change)
    return change, after


def _index(tensors: Tensors) -> WeightIndex:
    entries = []
    for name, value in tensors.items():
        data = np.ascontiguousarray(value, "<f4").reshape(-1).view(np.uint8)
        entries.append(TensorEntry.of(name, "F32", value.shape, data))
    return WeightIndex.of(entries)
