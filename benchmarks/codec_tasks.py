"""What the model of `python -m benchmarks codec` is trained on: problems of reasoning_gym, right and wrong answers to
them, and the environments' own scores of these."""

import random
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from environments.base import Environment
from environments.registry import load_environment
from protocol.environments import EnvironmentConfig
from protocol.models import load_tokenizer
from trainer.batch import Group, TrainRollout

DATASETS = ("caesar_cipher", "chain_sum", "sentence_reordering", "spell_backward", "word_sequence_reversal")
SAMPLES = 4
_FIRST_TRAINED, _READ_FOR_WORDS = 1_000, 600


def _environments() -> dict[str, Environment]:
    return {name: load_environment(EnvironmentConfig(name=f"reasoning_gym/{name}")) for name in DATASETS}


def words(count: int) -> list[str]:
    """The commonest words of the tasks' text, each with the space before it: the tokenizer's phrases."""
    found: Counter[str] = Counter()
    for environment in _environments().values():
        for seed in range(_READ_FOR_WORDS):
            problem = environment.problem(seed)
            found.update(re.findall(r" [A-Za-z]+|\b[a-z]{2,}", f"{problem.question} {problem.answer}"))
    return [word for word, _ in sorted(found.items(), key=lambda one: (-one[1], one[0]))[:count]]


class Tasks:
    """Groups of scored answers, the same for the same step in every process."""

    def __init__(self, model: Path) -> None:
        self._tokenizer = load_tokenizer(model)
        self._end = len(self._tokenizer) - 2
        self._environments: Mapping[str, Environment] = _environments()

    def groups(self, step: int, problems: int) -> list[Group]:
        """Of so many problems, with SAMPLES answers each: the reference, which is right, its beginning, which is wrong,
        and two that have its words or characters in another order."""
        first = _FIRST_TRAINED + step * problems
        return [self._group(DATASETS[number % len(DATASETS)], number) for number in range(first, first + problems)]

    def _group(self, dataset: str, seed: int) -> Group:
        environment = self._environments[dataset]
        problem = environment.problem(seed)
        prompt = tuple(self._tokenizer.encode(problem.question))
        dice, made = random.Random(seed), []
        texts = [problem.answer, problem.answer[:-1]]
        texts += [_shuffled(problem.answer, dice) for _ in range(SAMPLES - len(texts))]
        for text in texts:
            output = (*self._tokenizer.encode(text), self._end)
            made.append(TrainRollout(prompt, output, environment.score(problem, text)))
        return tuple(made)


def _shuffled(answer: str, dice: random.Random) -> str:
    """Some of its words, or of its characters, in another order; now and then it stays right."""
    between = dice.choice((" ", ""))
    parts = answer.split(" ") if between else list(answer)
    for _ in range(3):
        one, other = dice.randrange(len(parts)), dice.randrange(len(parts))
        parts[one], parts[other] = parts[other], parts[one]
    return between.join(parts)
