"""A pool owner's program as an environment: what fails in it fails on every machine alike, and harms nobody.

A score that crashes, runs out of fuel or is no number is 0; a reply that is no text ends the rollout. A problem that
cannot be made is the owner's fault: with that of seed 0 the configuration is refused; with a later one a fixed question
stands in its place, every answer to which is worth 0, so that no worker and no validator comes to a stop over it.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from environments.base import NO_PROBLEM, Declaration, Problem, Turns
from environments.data import file_params
from environments.kept import KeptAnswers, Said
from environments.program.answers import read_problem, read_reply, read_score
from environments.program.limits import SECONDS, take_limits
from environments.sandbox.pool import shared_pool
from environments.sandbox.program import SandboxOutcome, SandboxProgram
from environments.threshold import credited
from environments.turns.parameters import PARAMETERS, TOOLS, take_tools, take_turns
from protocol.errors import ConfigError, IntegrityError
from protocol.files import read_bounded

MAX_PROGRAM_BYTES = 1 << 16
MAX_ANSWER_CHARS = 1 << 16


class ProgramEnvironment:
    """The program at `path`, whose SHA-256 is `content`: `problem(seed)` and `score(problem, answer_text)`; of several
    turns `reply(problem, turns)` and `score(problem, turns)`, with the turns so far as a list of texts.

    `params`: those of environments/data.py, limits.py and environments/turns/parameters.py. Raises ConfigError for one
    that is wrong or missing, and for a program that makes no problem of seed 0, IntegrityError for other bytes,
    ScoringUnavailable where this machine has no sandbox."""

    def __init__(self, path: Path, content: str, params: dict[str, Any]) -> None:
        own = dict(params)
        turns, self._limits = take_turns(own, Turns(tools=take_tools(own))), take_limits(own)
        self._threshold, licence = file_params("program", own, (SECONDS, *PARAMETERS, TOOLS))
        self._source = _read(path, content)
        self.declared = Declaration("program", "1", content, licence, MAX_ANSWER_CHARS, self._limits.seconds, turns)
        self._said = KeptAnswers()
        if fault := self.problem(0).fault:
            raise ConfigError(f"the program {content[:16]}… makes no problem of seed 0: {fault}", "mend the program")

    @property
    def rows(self) -> int:
        return 0

    def problem(self, seed: int) -> Problem:
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"a problem seed is an unsigned 64-bit number, not {seed}")
        try:
            return read_problem(self._run("problem", [seed]))
        except ValueError as error:
            return Problem(NO_PROBLEM, "", fault=str(error))

    def score(self, problem: Problem, answer_text: str) -> float:
        if self.declared.turns.most > 1:
            return self.score_turns(problem, [answer_text])
        return self._score(problem, answer_text, len(answer_text))

    def score_turns(self, problem: Problem, said: Sequence[str]) -> float:
        return self._score(problem, list(said), sum(map(len, said)))

    def reply(self, problem: Problem, said: Sequence[str]) -> str | None:
        if problem.fault or sum(map(len, said)) > MAX_ANSWER_CHARS:
            return None
        value = self._answer("reply", problem, list(said), read_reply, None)
        return value if isinstance(value, str) else None

    def _score(self, problem: Problem, answer: Any, chars: int) -> float:
        if problem.fault or chars > MAX_ANSWER_CHARS:
            return 0.0
        return credited(float(self._answer("score", problem, answer, read_score, 0.0) or 0.0), self._threshold)

    def _answer(
        self, function: str, problem: Problem, about: Any, read: Callable[[SandboxOutcome], Said], failed: Said
    ) -> Said:
        """What the program says, `failed` where it says nothing."""
        made = {"question": problem.question, "answer": problem.answer, "metadata": problem.metadata}

        def ask() -> Said:
            try:
                return read(self._run(function, [made, about]))
            except ValueError:
                return failed

        return self._said.get([function, made, about], ask)

    def _run(self, function: str, arguments: list[Any]) -> SandboxOutcome:
        program = SandboxProgram(self._source, function=function, arguments=arguments)
        return shared_pool("python").run(program, self._limits)


def _read(path: Path, content: str) -> str:
    if not path.is_file():
        raise ConfigError(f"there is no program {path}", "put it there under the name of its SHA-256")
    data = read_bounded(path, MAX_PROGRAM_BYTES, "the program ")
    if hashlib.sha256(data).hexdigest() != content:
        raise IntegrityError(f"{path} has another SHA-256 than {content[:16]}…", "fetch it again")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"the program {path} is no UTF-8", "save it as UTF-8") from None
