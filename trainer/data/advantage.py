"""Advantages from the rewards of one problem's samples, in float64, and which groups have a signal."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from protocol.config import AdvantageName, AlgorithmConfig, OverlongConfig
from trainer.data.batch import Group, GroupSettings, TrainRollout

Rewards = NDArray[np.float64]
Advantage = Callable[[Rewards], Rewards]
"""Rewards of a group [G], which are not all equal, so G ≥ 2 → advantages [G]."""


def centred(rewards: Rewards) -> Rewards:
    """Return R − mean (Dr. GRPO, 2503.20783): no division, so that easy and hard problems are not weighted up."""
    return rewards - np.mean(rewards)


def normalised(rewards: Rewards) -> Rewards:
    """Return (R − mean) / (deviation + 1e-4), the sample's deviation (GRPO, 2402.03300)."""
    return centred(rewards) / (np.std(rewards, ddof=1) + 1e-4)


def leave_one_out(rewards: Rewards) -> Rewards:
    """Return R − mean of the others (RLOO, 2402.14740): a baseline that does not depend on the sample itself."""
    return centred(rewards) * (rewards.size / (rewards.size - 1))


def maxrl(rewards: Rewards) -> Rewards:
    """Return (R − mean) / mean (MaxRL, 2602.02710): maximises ln p(correct) rather than p, so rarely solved problems
    count more. For rewards that are never negative."""
    mean = np.mean(rewards)
    return centred(rewards) / mean if mean > 0 else np.zeros_like(rewards)


ADVANTAGES: dict[AdvantageName, Advantage] = {
    "mean": centred,
    "normalised": normalised,
    "leave_one_out": leave_one_out,
    "maxrl": maxrl,
    "none": np.zeros_like,
}


def group_advantages(rewards: Rewards, advantage: Advantage) -> Rewards:
    """Return the advantages [G] of any group: zeros where it is empty, has one sample, or all rewards are equal."""
    if rewards.size == 0 or bool(np.all(rewards == rewards[0])):
        return np.zeros_like(rewards)
    return advantage(rewards)


def overlong_penalty(tokens: int, longest: int, config: OverlongConfig | None) -> float:
    """Return the reward that an answer of so many tokens loses, where it may have at most `longest` (DAPO,
    2503.14476)."""
    if config is None:
        return 0.0
    return config.penalty * min(1.0, max(0.0, (tokens - longest + config.buffer) / config.buffer))


@dataclass(frozen=True)
class Selection:
    """Samples with a signal, and how many groups had some or none."""

    samples: tuple[TrainRollout, ...]
    used: int
    dropped: int


def select(groups: Iterable[Group], config: AlgorithmConfig) -> Selection:
    """Give samples the advantages that their environment's estimator, or else the run's, finds, and drop groups without
    any; with a teacher, from whom every token has a signal, none."""
    samples: list[TrainRollout] = []
    used = dropped = 0
    for group in groups:
        settings = group[0].settings if group else GroupSettings()
        chosen = ADVANTAGES[settings.advantage or config.advantage]
        rewards = np.asarray([sample.reward for sample in group], dtype=np.float64)
        values = settings.scale * group_advantages(rewards, chosen)
        if not group or not (values.any() or config.kl.teacher):
            dropped += 1
            continue
        used += 1
        samples += [replace(sample, advantage=float(value)) for sample, value in zip(group, values, strict=True)]
    return Selection(tuple(samples), used, dropped)
