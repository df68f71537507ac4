"""reasoning_gym as an environment: strictness, limits, and where a dataset is run."""

from typing import Any, Protocol

from environments.base import Declaration, Problem
from environments.gym.answers import may_be_scored, portable
from environments.gym.apart import GymApart
from environments.gym.generator import RESERVED, GymGenerator, check_offered
from environments.gym.reviewed import APART, REVIEWED_VERSION
from environments.packages import content_hash
from environments.threshold import THRESHOLD, credited, take_threshold

__all__ = ["RESERVED", "THRESHOLD", "GymEnvironment"]

MAX_ANSWER_CHARS = 4096
MAX_SECONDS = 5.0
LICENCE = "Apache-2.0"


class Generator(Protocol):
    """A dataset in this process or in another."""

    def problem(self, seed: int) -> Problem: ...
    def score(self, problem: Problem, answer_text: str) -> float: ...


class GymEnvironment:
    """One dataset of reasoning_gym with its parameters.

    Besides the generator's own parameters, `score_threshold` t (default 1.0) makes the reward strict: 1 where the
    scorer gives at least t, else 0; with 0 the scorer's partial credit is kept.
    """

    def __init__(self, dataset: str, params: dict[str, Any]) -> None:
        self._dataset, self._name = dataset, f"reasoning_gym/{dataset}"
        check_offered(self._name, dataset)
        own = dict(params)
        self._threshold = take_threshold(own)
        self._generator: Generator = (GymApart if dataset in APART else GymGenerator)(dataset, own)

    @property
    def declared(self) -> Declaration:
        content = content_hash("reasoning_gym")
        return Declaration(self._name, REVIEWED_VERSION, content, LICENCE, MAX_ANSWER_CHARS, MAX_SECONDS)

    @property
    def rows(self) -> int:
        return 0

    def problem(self, seed: int) -> Problem:
        return self._generator.problem(seed)

    def score(self, problem: Problem, answer_text: str) -> float:
        if len(answer_text) > MAX_ANSWER_CHARS or not may_be_scored(self._dataset, answer_text, problem.answer):
            return 0.0
        answer = answer_text if answer_text == problem.answer else portable(answer_text)
        return credited(self._generator.score(problem, answer), self._threshold)
