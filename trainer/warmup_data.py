"""Worked and blurted answers to chain sums: what the demo's tiny model is taught before reinforcement learning."""

import random
from dataclasses import dataclass

from protocol.encoding import tagged_hash, words
from protocol.errors import ConfigError
from protocol.tasks import Problem, Task
from trainer.tiny_model import END_OF_THOUGHT


@dataclass(frozen=True)
class Example:
    """A problem with the completion to imitate (without EOS)."""

    problem: Problem
    completion: str
    worked: bool


def example(task: Task, seed: int, index: int, worked_share: float) -> Example:
    """Example `index` of warm-up `seed`: worked with probability `worked_share`, else a blurted answer."""
    (number,) = words(tagged_hash("muster/warmup/1", seed, index), 1)
    problem = task.problem(number)
    worked = random.Random(number).random() < worked_share
    thought = worked_sum(problem) if worked else ""
    return Example(problem, f"{thought}{END_OF_THOUGHT}{problem.answer}", worked)


def worked_sum(problem: Problem) -> str:
    """The sum from left to right, one operation a line: `4 + 7 - 3` gives `4+7=11`, `11-3=8`."""
    parts = str(problem.metadata.get("expression", "")).split()
    try:
        total, lines = int(parts[0]), []
        for operator, term in zip(parts[1::2], parts[2::2], strict=True):
            result = total + int(term) if operator == "+" else total - int(term)
            lines.append(f"{total}{operator}{term}={result}")
            total = result
    except (IndexError, ValueError):
        raise ConfigError(
            "the warm-up can only teach sums of integers", "use reasoning_gym/chain_sum, or name a model folder"
        ) from None
    return "\n".join(lines)
