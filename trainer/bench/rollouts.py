"""Rollouts that nobody generated: random tokens, with lengths as reasoning models write them."""

import random

from protocol.config import WorkConfig
from trainer.rollouts import Group, TrainRollout

_SPREAD = 1.0


def synthetic_groups(work: WorkConfig, vocabulary: int, tokens: int, seed: int = 0) -> list[Group]:
    """Groups of at least `tokens` tokens altogether, in the shape of a pool's work: prompts up to a quarter of the
    longest allowed, outputs log-normal around a sixth of the longest allowed and cut there: many short, some as long
    as can be. Every group has a signal."""
    dice = random.Random(seed)
    groups: list[Group] = []
    made = 0
    while made < tokens:
        prompt = _tokens(dice, vocabulary, dice.randint(1, max(1, work.max_prompt_tokens // 4)))
        group = []
        for number in range(max(2, work.samples_per_problem)):
            length = int(work.max_new_tokens / 6 * dice.lognormvariate(0.0, _SPREAD))
            output = _tokens(dice, vocabulary, min(work.max_new_tokens, max(1, length)))
            group.append(TrainRollout(prompt, output, float(number % 2), logprobs=(-1.0,) * len(output)))
        groups.append(tuple(group))
        made += sum(one.length for one in group)
    return groups


def full_row(tokens: int, vocabulary: int) -> list[Group]:
    """One group of two rollouts that fill a row of `tokens`."""
    dice = random.Random(tokens)
    halves = [_tokens(dice, vocabulary, max(2, tokens // 2)) for _ in range(2)]
    return [tuple(TrainRollout(half[:1], half[1:], float(number)) for number, half in enumerate(halves))]


def _tokens(dice: random.Random, vocabulary: int, count: int) -> tuple[int, ...]:
    return tuple(dice.randrange(vocabulary) for _ in range(count))
