"""Which groups of a step have a signal, and the advantages of their samples."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainer.algorithms.advantages import ADVANTAGES, Advantage, group_advantages
from trainer.rollouts import Group, GroupSettings, TrainRollout


@dataclass(frozen=True)
class Selection:
    """Samples with signal, and how many groups had some or none."""

    samples: tuple[TrainRollout, ...]
    used: int
    dropped: int


def select(groups: Iterable[Group], advantage: Advantage) -> Selection:
    """Drop groups without advantages (they carry no signal) and give the samples of the others theirs; `advantage` is
    for groups whose environment has no estimator of its own."""
    samples: list[TrainRollout] = []
    used = dropped = 0
    for group in groups:
        values = _advantages(group, advantage)
        if not values.any():
            dropped += 1
            continue
        used += 1
        samples += [replace(one, advantage=float(value)) for one, value in zip(group, values, strict=True)]
    return Selection(tuple(samples), used, dropped)


def signals(groups: Iterable[Group], advantage: Advantage) -> int:
    """How many groups have a signal."""
    return sum(bool(_advantages(group, advantage).any()) for group in groups)


def _advantages(group: Group, advantage: Advantage) -> NDArray[np.float64]:
    settings = group[0].settings if group else GroupSettings()
    chosen = ADVANTAGES[settings.advantage] if settings.advantage else advantage
    return settings.scale * group_advantages(np.asarray([one.reward for one in group], dtype=np.float64), chosen)
