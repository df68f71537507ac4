"""What the receiver's own policy would not have said. An implausible group is not trained on, but it is no breach: a
better policy surprises too.

Surprise is −ln p of a token under the member's own policy. A single surprise may be something that another policy has
learnt; planted text shows several close together."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from swarm.generation import OwnGroup
    from swarm.sampling import InspectedGroup
    from trainer.data.batch import Group
    from trainer.learner import Learner

WINDOW = 16  # tokens whose surprises are added up
ODD = 0.01  # share of the newest HISTORY own completions that may be beyond what is usual
HISTORY = 512
LEAST = 16  # own completions without which no peer's text is trained on
# Nats beyond what is usual that WINDOW tokens, or one token, may have; and that not going on may have.
SLACK, TOKEN_SLACK, STOP_SLACK = 6.0, 4.0, 2.0
LONGER, BRIEF = 1.25, 32  # a completion of more than BRIEF tokens may be LONGER times as long as the longest own one


class Shape(NamedTuple):
    """What is compared of a completion, in nats and never NaN. `worst`: the largest surprise of a token; `window`: the
    largest sum over a window; `length` in tokens; `stop`: the surprise that it did not go on where it claims to have
    stopped (0 if it ended with an end token, or was as long as it may be)."""

    worst: float
    window: float
    length: int
    stop: float = 0.0

    @property
    def finite(self) -> bool:
        return math.isfinite(self.worst) and math.isfinite(self.window)


def shape_of(surprises: Sequence[float], stop: float = 0.0) -> Shape:
    """Return the shape of a completion with these surprises. NaN counts as infinite; a text shorter than the window is
    one window."""
    known = [math.inf if math.isnan(value) else max(0.0, value) for value in surprises]
    size = min(WINDOW, len(known))
    sums = [math.fsum(known[start : start + size]) for start in range(len(known) - size + 1)]
    return Shape(max(known, default=0.0), max(sums), len(known), math.inf if math.isnan(stop) else stop)


def usual(own: Sequence[Shape]) -> Shape:
    """Return what all but the share ODD of own completions stay within, and the longest of them. Shapes that are not
    finite are left out; without any, nothing is usual."""
    known = [shape for shape in own if shape.finite]
    if not known:
        return Shape(-math.inf, -math.inf, 0)
    index = min(len(known), math.ceil((1 - ODD) * len(known))) - 1
    worst, window = (sorted(values)[index] for values in ([s.worst for s in known], [s.window for s in known]))
    return Shape(worst, window, max(shape.length for shape in known))


def implausible(shape: Shape, usual: Shape) -> str | None:
    """Return why the own policy, whose completions are usually within `known`, would not have said it, or None."""
    if not shape.worst <= usual.worst + TOKEN_SLACK:
        return f"a token of {shape.worst:.1f} nats, {usual.worst:.1f} is usual"
    if not shape.window <= usual.window + SLACK:
        return f"{shape.window:.1f} nats within {WINDOW} tokens, {usual.window:.1f} are usual"
    if not shape.length <= max(BRIEF, LONGER * usual.length):
        return f"{shape.length} tokens, {usual.length} are usual"
    if not shape.stop <= STOP_SLACK:
        return f"not to end there takes {shape.stop:.1f} nats"
    return None


def surprise_of_not(logprob: float) -> float:
    """Return −ln(1 − p) from ln p: the surprise that an event of that probability did not happen. Infinite for a
    certainty and for NaN."""
    if not logprob < 0:
        return math.inf
    return -math.log(-math.expm1(logprob))


class PlausibilityJudge:
    """Compares peers' completions with own ones, both under the policy that the learner holds. `end` is the token that
    ends a completion, `longest` the length limit of an own completion in tokens."""

    def __init__(self, learner: "Learner", end: int, longest: int) -> None:
        self._learner, self._end, self._longest = learner, end, longest

    def with_own(self, shapes: Sequence[Shape], own: Sequence["OwnGroup"]) -> list[Shape]:
        """Return the newest shapes, those of the `own` groups included."""
        own_shapes = [shape_of([-value for value in row]) for group in own for row in group.logprobs]
        return [*shapes, *(shape for shape in own_shapes if shape.finite)][-HISTORY:]

    def doubt(self, inspected: "InspectedGroup", group: "Group", own: Sequence[Shape]) -> str | None:
        """Return why the own policy, whose completions have the shapes `own`, would not have said a completion that an
        update makes likelier, or None. Completions that are made less likely teach nothing that they say."""
        if len(own) < LEAST:
            return f"{len(own)} own completions are too few to compare with"
        known, rewards = usual(own), inspected.rewards
        for index, shape in enumerate(self.shapes(inspected, group)):
            reason = implausible(shape, known)
            if reason is not None and rewards[index] > inspected.mean:
                return f"completion {index}: {reason}"
        return None

    def shapes(self, inspected: "InspectedGroup", group: "Group") -> list[Shape]:
        """Return the shape of each completion."""
        claims = zip(inspected.group.completions, group, strict=True)
        stopped = [not claim.ended and len(rollout.output) < self._longest for claim, rollout in claims]
        asked = tuple(
            replace(rollout, output=(*rollout.output, self._end) if cut else rollout.output, logprobs=())
            for cut, rollout in zip(stopped, group, strict=True)
        )
        shapes = []
        for cut, rollout, values in zip(stopped, group, self._logprobs(asked), strict=True):
            surprises = [-value for value in values[: len(rollout.output)]]
            shapes.append(shape_of(surprises, surprise_of_not(values[-1]) if cut else 0.0))
        return shapes

    def _logprobs(self, group: "Group") -> list[list[float]]:
        """ln p of every output token under the learner's policy."""
        import torch

        from trainer.data.batch import micro_batch

        policy, learner = self._learner.policy, self._learner
        (rows,) = policy.plan([rollout.length for rollout in group])
        logprobs: dict[int, list[float]] = {}
        with torch.no_grad():
            for indices in rows:
                logp, _ = policy.logprobs(micro_batch(group, indices, policy.device), learner.temperature)
                values = iter(logp.tolist())
                logprobs.update({index: list(islice(values, len(group[index].output))) for index in indices})
        return [logprobs[index] for index in range(len(group))]
