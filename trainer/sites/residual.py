"""What a site sends in mode `sparse`, and what it keeps for later (PULSELoCo, 2602.03839v2).

Sent is only what changes the next forward pass: an element whose weight, with everything that is owed taken off, is
another bfloat16 than before. The rest is owed: it is added to the next outer step's pseudo-gradient.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocol.sites.forms import sparse_values
from protocol.sites.layout import F32, Tensors


@dataclass(frozen=True)
class VisiblePart:
    """Of one outer step. `after`: the outer weights, with what is sent taken off; `sent`: what every reader makes of
    that; `residual`: what the site owes. All are tensors of the model's shapes."""

    after: Tensors
    sent: Tensors
    residual: Tensors

    @property
    def share(self) -> float:
        """Of the elements, how many are sent."""
        total = sum(one.size for one in self.sent.values())
        return sum(int(np.count_nonzero(one)) for one in self.sent.values()) / total if total else 0.0


def select_visible(weights: Tensors, gradient: Tensors, owed: Tensors | None = None) -> VisiblePart:
    """`weights`: of the outer state; `gradient`: outer − inner weights; `owed`: the residual of the step before.

    For every element, with u = gradient + owed in float32: sent + residual is u exactly where nothing is sent, and
    where the weight is not tiny beside u; elsewhere it is u rounded once. Raises MalformedContribution where something
    would be infinite.
    """
    after, sent, residual = {}, {}, {}
    for name, value in weights.items():
        due = gradient[name] + owed[name] if owed is not None else gradient[name]
        with np.errstate(over="ignore"):
            moved = value - due
        visible = bfloat16_bits(moved) != bfloat16_bits(value)
        after[name] = np.where(visible, moved, value)
        sent[name] = sparse_values(value, after[name])
        residual[name] = due - sent[name]
    return VisiblePart(after, sent, residual)


def bfloat16_bits(values: F32) -> NDArray[np.uint16]:
    """Finite float32 rounded to the nearest bfloat16, ties to even; −0 is 0, which no forward pass tells apart."""
    bits = (values + np.float32(0)).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype(np.uint16)
