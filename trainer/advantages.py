"""Group-relative advantages (GRPO, arXiv 2402.03300; without dividing by the deviation: Dr. GRPO, 2503.20783)."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from trainer.rollouts import Group, TrainRollout


@dataclass(frozen=True)
class Selection:
    """Samples with signal, and how many groups had some or none."""

    samples: tuple[TrainRollout, ...]
    used: int
    dropped: int


def advantages(rewards: Iterable[float]) -> list[float]:
    """reward − mean of the group, in float64; all zeros where every reward is equal."""
    values = np.asarray(list(rewards), dtype=np.float64)
    if values.size == 0 or bool(np.all(values == values[0])):
        return [0.0] * values.size
    return [float(value) for value in values - values.mean()]


def select(groups: Iterable[Group]) -> Selection:
    """Drop groups whose rewards are all equal (they carry no signal) and give the others their advantages."""
    samples: list[TrainRollout] = []
    used = dropped = 0
    for group in groups:
        values = advantages(rollout.reward for rollout in group)
        if not any(values):
            dropped += 1
            continue
        used += 1
        samples += [replace(one, advantage=value) for one, value in zip(group, values, strict=True)]
    return Selection(tuple(samples), used, dropped)
