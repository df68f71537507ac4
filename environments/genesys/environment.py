"""A data file as an environment: each row's problem, and its score by the row's task type."""

from functools import lru_cache
from pathlib import Path
from typing import Any

from environments.base import Declaration, Problem
from environments.data import file_params
from environments.genesys.answers import NOTHING, predicted_output, same
from environments.genesys.datafile import ProblemFile
from environments.genesys.rows import GenesysRow, reference_of, tests_of
from environments.gym.environment import GymEnvironment
from environments.scorers import code, mathematics
from environments.threshold import THRESHOLD, credited
from protocol.errors import IntegrityError

MAX_ANSWER_CHARS = 1 << 16
MAX_SECONDS = 120.0


class GenesysEnvironment:
    """The file at `path`, whose SHA-256 is `content`. `params`: those of environments/data.py."""

    def __init__(self, path: Path, content: str, params: dict[str, Any]) -> None:
        self._threshold, licence = file_params("genesys", params)
        self._file = ProblemFile(path, content)
        self.declared = Declaration("genesys", "1", content, licence, MAX_ANSWER_CHARS, MAX_SECONDS)

    @property
    def rows(self) -> int:
        return len(self._file)

    def problem(self, seed: int) -> Problem:
        return problem_of(self._file.row(seed), seed)

    def score(self, problem: Problem, answer_text: str) -> float:
        if len(answer_text) > MAX_ANSWER_CHARS:
            return 0.0
        return credited(scored(problem.metadata["task_type"], problem.metadata["info"], answer_text), self._threshold)

    def row(self, number: int) -> GenesysRow:
        return self._file.row(number)


def problem_of(row: GenesysRow, number: int) -> Problem:
    """The problem of row `number`."""
    known = {"row": number, "problem_id": row.problem_id, "task_type": row.task_type, "info": row.verification_info}
    return Problem(row.prompt, row.gold_standard_solution or "", known)


def scored(task_type: str, info: dict[str, Any], answer: str) -> float:
    """What an answer is worth, 0 to 1. Raises what the scorer of the task type raises."""
    if task_type == "verifiable_math":
        return mathematics.score(answer, reference_of(info))
    if task_type in ("verifiable_code", "prime_rl_code"):
        return code.score(answer, tests_of(info))
    if task_type == "reasoning_gym":
        generator = _gym(info["dataset"], _frozen(info.get("params", {})))
        return generator.score(generator.problem(info["seed"]), answer.strip())
    found, wanted = predicted_output(answer), info.get("ground_truth", info.get("output"))
    return float(found is not NOTHING and same(found, wanted))


def _frozen(params: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    try:
        hash(made := tuple(sorted((name, _hashable(value)) for name, value in params.items())))
    except TypeError:
        raise IntegrityError("`params` of a reasoning_gym row are too deep", "use numbers, texts and lists") from None
    return made


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@lru_cache(maxsize=128)
def _gym(dataset: str, params: tuple[tuple[str, Any], ...]) -> GymEnvironment:
    return GymEnvironment(dataset, {**dict(params), THRESHOLD: 0})
