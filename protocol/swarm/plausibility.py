"""Whether one's own policy could have said what another shared: small pure functions over surprises.

A surprise is −ln p of a token under the receiver's own policy, in nats. Planted text is made of tokens that the policy
finds next to impossible; what it says itself hardly ever contains one. So the receiver's own completions say what is
usual, and what is far beyond that is not trained on. It is no breach: a better policy surprises too.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import Field

from protocol.encoding import Document


class PlausibilityConfig(Document):
    """A completion is implausible where any `window` tokens in a row together are more than `slack` nats, or one token
    more than `token_slack` nats, beyond what of the own newest `history` completions all but the share `odd` stay
    within; or that has more than `brief` tokens and is more than `longer` times as long as the longest of these; or
    that is said to have stopped where stopping without an end takes more than `stop_slack` nats. Fewer own completions
    than `least` say nothing, and nothing of others' is trained on until there are more.

    One surprise is what a policy that has learnt something else has in store; a plant is several close together.
    """

    slack: float = Field(6.0, ge=0, le=100)
    token_slack: float = Field(4.0, ge=0, le=100)
    stop_slack: float = Field(2.0, ge=0, le=100)
    window: int = Field(16, ge=1, le=1024)
    odd: float = Field(0.01, ge=0, lt=1)
    longer: float = Field(1.25, ge=1, le=100)
    brief: int = Field(32, ge=0, le=131072)
    history: int = Field(512, ge=8, le=65536)
    least: int = Field(16, ge=1, le=65536)


class Shape(NamedTuple):
    """What of a completion is compared. `worst`: the largest surprise of a token; `window`: the largest sum over a
    window; `length` in tokens; `stop`: how surprising it is that it did not end where it stops (0 of one that ended,
    and of one that was as long as it might be). Nats, never NaN."""

    worst: float
    window: float
    length: int
    stop: float = 0.0


def shape_of(surprises: Sequence[float], window: int, stop: float = 0.0) -> Shape:
    """The shape of a completion with these surprises. What is not a number counts as infinite; a text shorter than the
    window is one window."""
    known = [math.inf if math.isnan(one) else max(0.0, one) for one in surprises]
    size = min(window, len(known))
    sums = [math.fsum(known[at : at + size]) for at in range(len(known) - size + 1)]
    return Shape(max(known, default=0.0), max(sums), len(known), math.inf if math.isnan(stop) else stop)


def finite(shape: Shape) -> bool:
    """Whether it can be compared with: an engine's mistake may be none."""
    return math.isfinite(shape.worst) and math.isfinite(shape.window)


def usual(own: Sequence[Shape], odd: float) -> Shape:
    """What all but the share `odd` of own completions stay within, and the longest. Of none at all: nothing is usual.
    One that is not finite does not make everything usual."""
    known = [one for one in own if finite(one)]
    if not known:
        return Shape(-math.inf, -math.inf, 0)
    place = min(len(known), math.ceil((1 - odd) * len(known))) - 1
    worst, window = (sorted(values)[place] for values in ([s.worst for s in known], [s.window for s in known]))
    return Shape(worst, window, max(one.length for one in known))


def implausible(shape: Shape, known: Shape, config: PlausibilityConfig) -> str | None:
    """Why the own policy, whose completions are usually within `known`, would not have said it; None if it might."""
    if not shape.worst <= known.worst + config.token_slack:
        return f"a token of {shape.worst:.1f} nats, {known.worst:.1f} is usual"
    if not shape.window <= known.window + config.slack:
        return f"{shape.window:.1f} nats within {config.window} tokens, {known.window:.1f} are usual"
    if not shape.length <= max(config.brief, config.longer * known.length):
        return f"{shape.length} tokens, {known.length} are usual"
    if not shape.stop <= config.stop_slack:
        return f"not to end there takes {shape.stop:.1f} nats"
    return None


def surprise_of_not(probability_logarithm: float) -> float:
    """−ln(1 − p) from ln p: how surprising it is that something so likely did not happen. Infinite for a certainty and
    for what is not a number."""
    if not probability_logarithm < 0:
        return math.inf
    return -math.log(-math.expm1(probability_logarithm))
