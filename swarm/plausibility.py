"""The receiver's own policy as the judge of what others shared."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Self

import torch

from protocol.swarm.plausibility import (
    PlausibilityConfig,
    Shape,
    finite,
    implausible,
    shape_of,
    surprise_of_not,
    usual,
)
from swarm.config import MixConfig
from swarm.generation import MemberModel, OwnGroup
from swarm.inspection import FoundGroup
from trainer.batch import Group, micro_batch, plan_rows
from trainer.learner import Learner


class PlausibilityJudge:
    """Compares shared completions with own ones, both under the own policy of the moment. `end`: the token that ends
    a completion; `longest`: of an own completion, in tokens."""

    def __init__(self, config: PlausibilityConfig, learner: Learner, end: int, longest: int) -> None:
        self._config, self._learner, self._end, self._longest = config, learner, end, longest

    @classmethod
    def of(cls, mix: MixConfig, learner: Learner, model: MemberModel) -> Self | None:
        """None where the mix wants none."""
        if mix.plausibility is None:
            return None
        return cls(mix.plausibility, learner, model.end, model.config.work.max_new_tokens)

    def usual_with(self, shapes: Sequence[Shape], own: Sequence[OwnGroup]) -> list[Shape]:
        """The newest shapes, with those of the own groups just made."""
        made = [shape_of([-value for value in one], self._config.window) for group in own for one in group.logprobs]
        return [*shapes, *filter(finite, made)][-self._config.history :]

    def doubts(self, found: FoundGroup, group: Group, own: Sequence[Shape]) -> str | None:
        """Why the own policy, whose completions have the shapes `own`, would not have said a completion of the group
        that an update makes likelier; None if it might have said all. What is made less likely teaches nothing that it
        says."""
        if len(own) < self._config.least:
            return f"{len(own)} own completions are too few to compare with"
        known, rewards = usual(own, self._config.odd), found.offer.rewards
        for place, shape in enumerate(self.shapes(found, group)):
            reason = implausible(shape, known, self._config)
            if reason is not None and rewards[place] > found.offer.mean:
                return f"completion {place}: {reason}"
        return None

    def shapes(self, found: FoundGroup, group: Group) -> list[Shape]:
        """Of each completion. One that is as long as an own one may be had to stop."""
        told = zip(found.group.completions, group, strict=True)
        stopped = [not one.ended and len(made.output) < self._longest for one, made in told]
        asked = tuple(
            replace(made, output=(*made.output, self._end) if one else made.output, logprobs=())
            for one, made in zip(stopped, group, strict=True)
        )
        window, shapes = self._config.window, []
        for one, made, values in zip(stopped, group, self._logprobs(asked), strict=True):
            surprises = [-value for value in values[: len(made.output)]]
            shapes.append(shape_of(surprises, window, surprise_of_not(values[-1]) if one else 0.0))
        return shapes

    @torch.no_grad()
    def _logprobs(self, group: Group) -> list[list[float]]:
        """ln p of every output token."""
        policy, learner = self._learner.policy, self._learner
        lengths = [one.length for one in group]
        capacity = learner.placement.memory.row_tokens
        (rows,) = plan_rows(lengths, capacity, 1, policy.work.of_sequence, policy.packs)
        found: dict[int, list[float]] = {}
        for places in rows:
            logp, _ = policy.logprobs(micro_batch(group, places, policy.device), learner.temperature)
            values = iter(logp.tolist())
            found.update({place: list(islice(values, len(group[place].output))) for place in places})
        return [found[place] for place in range(len(group))]
