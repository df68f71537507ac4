"""What can be said of a step's rollouts before any is trained on. Pure."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from trainer.rollouts import Group


def batch_facts(groups: Iterable[Group], policy_steps: Sequence[int], trained: int) -> dict[str, Any]:
    """For the record of the step that made policy `trained` from files of `policy_steps`: mean task reward by
    environment, mean distance from target lengths (tokens; None where there are none), files by staleness (policy steps
    between a file's weights and those it is trained into)."""
    rollouts = [rollout for group in groups for rollout in group]
    by_environment: dict[str, list[float]] = {}
    for one in rollouts:
        by_environment.setdefault(one.settings.environment, []).append(one.task_reward)
    errors = [abs(one.target - len(one.output)) for one in rollouts if one.target]
    ages = [trained - 1 - step for step in policy_steps]
    return {
        "rewards_by_environment": {name: _mean(rewards) for name, rewards in sorted(by_environment.items())},
        "length_error": _mean(errors) if errors else None,
        "staleness": {str(age): count for age, count in sorted(Counter(ages).items())},
        "staleness_mean": _mean(ages) if ages else None,
    }


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
