"""One dataset of reasoning_gym with its parameters: problems and the dataset's own scores, in the calling process."""

import copy
import dataclasses
import importlib.metadata
import math
import random
from typing import Any

import numpy as np

from environments.base import Problem
from environments.gym.datasets import registry
from environments.gym.reviewed import APART, OFFERED, REBUILD, REFUSED, REVIEWED_VERSION
from protocol.errors import ConfigError, first_line

RESERVED = ("seed", "size")
_TRIES = 16
_STRIDE = 0x9E3779B97F4A7C15


class GymGenerator:
    """Raises ConfigError for a dataset that is not offered, another version of the package, or wrong parameters."""

    def __init__(self, dataset: str, params: dict[str, Any]) -> None:
        self.name = f"reasoning_gym/{dataset}"
        check_offered(self.name, dataset)
        self._dataset_class, config_class = registry()[dataset]
        self._config = _config(self.name, config_class, params)
        self._rebuild, self._apart = dataset in REBUILD, dataset in APART
        try:
            self._dataset = self._dataset_class(self._config)
            self.problem(0)
        except Exception as error:  # generators check their parameters in many ways
            raise ConfigError(f"{self.name} refuses its parameters: {first_line(error)}", "mend `params`") from None

    def problem(self, seed: int) -> Problem:
        """The problem of a seed, or of the first that follows from it where the generator gives up on it (one seed in
        some thousands of `maze`, say): everybody finds the same one. Raises ValueError for no unsigned 64-bit number,
        and what the generator raises if it gives up on all of them."""
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"a problem seed is an unsigned 64-bit number, not {seed}")
        for place in range(_TRIES - 1):
            try:
                return self._made((seed + place * _STRIDE) % (1 << 64))
            except (OSError, MemoryError, RecursionError):  # this machine's, not the seed's
                raise
            except Exception:  # generators give up in many ways
                continue
        return self._made((seed + (_TRIES - 1) * _STRIDE) % (1 << 64))

    def _made(self, seed: int) -> Problem:
        if self._apart:  # only in a process of its own: whoever else is in this one may count on the global state
            random.seed(seed)
            np.random.seed(seed % (1 << 32))
        own = seed % (1 << 32) if self.name.endswith("/pool_matrix") else seed  # numpy takes no larger seeds
        if self._rebuild:
            dataset = self._dataset_class(dataclasses.replace(self._config, seed=own))
        else:
            # These generators read nothing but `seed` at this point: a shallow copy costs microseconds where
            # building one may read word lists for 0.1 s, and leaves the shared object alone (threads).
            dataset = copy.copy(self._dataset)
            dataset.seed = own
        entry = dataset[0]
        return Problem(entry["question"], str(entry["answer"]), entry["metadata"])

    def score(self, problem: Problem, answer_text: str) -> float:
        """What the dataset's scorer gives, 0 where it chokes."""
        entry = {"question": problem.question, "answer": problem.answer, "metadata": problem.metadata}
        try:
            value = float(self._dataset.score_answer(answer_text, entry))
        except (Exception, RecursionError):  # a scorer that chokes on a stranger's text saw no right answer
            return 0.0
        return value if math.isfinite(value) else 0.0


def check_offered(name: str, dataset: str) -> None:
    """Raise ConfigError unless strangers may run the dataset, and this machine has the version that was reviewed."""
    if dataset in REFUSED:
        raise ConfigError(f"{name} cannot be used: {REFUSED[dataset]}", "choose another dataset")
    if dataset not in OFFERED:
        raise ConfigError(f"unknown dataset `{dataset}` of reasoning_gym", f"use one of {', '.join(sorted(OFFERED))}")
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
            raise ConfigError(f"{name} has no parameter `{key}`", f"its parameters are {', '.join(sorted(fields))}")
    try:
        return config_class(**params, seed=0, size=1)
    except Exception as error:
        raise ConfigError(f"{name} refuses its parameters: {first_line(error)}", "mend `params`") from None
