"""Adapter for reasoning_gym's procedural generators and their own scorers."""

import copy
import dataclasses
import importlib.metadata
import math
from typing import Any

from environments.base import Problem
from environments.reviewed import REBUILD, REFUSED, REUSE, REVIEWED_VERSION
from protocol.errors import ConfigError, first_line

MAX_ANSWER_CHARS = 4096
THRESHOLD = "score_threshold"
RESERVED = ("seed", "size")


class GymEnvironment:
    """One dataset of reasoning_gym with its parameters.

    Besides the generator's own parameters, `score_threshold` t (default 1.0) makes the reward strict: 1 where the
    scorer gives at least t, else 0; with 0 the scorer's partial credit is kept.
    """

    def __init__(self, dataset: str, params: dict[str, Any]) -> None:
        self.name = f"reasoning_gym/{dataset}"
        self._check_name(dataset)
        own = dict(params)
        self.threshold = _threshold(own.pop(THRESHOLD, 1.0))
        from reasoning_gym.factory import DATASETS

        self._dataset_class, config_class = DATASETS[dataset]
        self._config = _config(self.name, config_class, own)
        self._rebuild = dataset in REBUILD
        try:
            self._dataset = self._dataset_class(self._config)
            self.problem(0)
        except Exception as error:  # generators check their parameters in many ways
            raise ConfigError(
                f"{self.name} refuses its parameters: {first_line(error)}", "mend `task.params`"
            ) from None

    def problem(self, seed: int) -> Problem:
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"a problem seed is an unsigned 64-bit number, not {seed}")
        if self._rebuild:
            dataset = self._dataset_class(dataclasses.replace(self._config, seed=seed))
        else:
            # These generators read nothing but `seed` at this point: a shallow copy costs microseconds where
            # building one may read word lists for 0.1 s, and leaves the shared object alone (threads).
            dataset = copy.copy(self._dataset)
            dataset.seed = seed
        entry = dataset[0]
        return Problem(entry["question"], str(entry["answer"]), entry["metadata"])

    def score(self, problem: Problem, answer_text: str) -> float:
        if len(answer_text) > MAX_ANSWER_CHARS:
            return 0.0
        entry = {"question": problem.question, "answer": problem.answer, "metadata": problem.metadata}
        try:
            value = float(self._dataset.score_answer(answer_text, entry))
        except (Exception, RecursionError):  # a scorer that chokes on a stranger's text saw no right answer
            return 0.0
        if not math.isfinite(value):
            return 0.0
        if self.threshold > 0:
            return 1.0 if value >= self.threshold else 0.0
        return min(1.0, max(0.0, value))

    def _check_name(self, dataset: str) -> None:
        if dataset in REFUSED:
            raise ConfigError(f"{self.name} cannot be used: {REFUSED[dataset]}", "choose another dataset")
        if dataset not in REUSE and dataset not in REBUILD:
            known = ", ".join(sorted(REUSE | REBUILD))
            raise ConfigError(f"unknown dataset `{dataset}` of reasoning_gym", f"use one of {known}")
        version = importlib.metadata.version("reasoning_gym")
        if version != REVIEWED_VERSION:
            raise ConfigError(
                f"reasoning_gym {version} is installed, but problems are defined by {REVIEWED_VERSION}",
                f"pip install reasoning_gym=={REVIEWED_VERSION}",
            )


def _config(name: str, config_class: type[Any], params: dict[str, Any]) -> Any:
    fields = {field.name for field in dataclasses.fields(config_class)} - set(RESERVED)
    for key in params:
        if key not in fields:
            allowed = ", ".join(sorted(fields | {THRESHOLD}))
            raise ConfigError(f"{name} has no parameter `{key}`", f"its parameters are {allowed}")
    try:
        return config_class(**params, seed=0, size=1)
    except Exception as error:
        raise ConfigError(f"{name} refuses its parameters: {first_line(error)}", "mend `task.params`") from None


def _threshold(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ConfigError(f"`task.params.{THRESHOLD}` is {value!r}", "use a number from 0 to 1 (1: right or nothing)")
    return float(value)
