"""An owner's own program as an environment. Its `seconds` are counted, not timed."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from environments.base import (
    MAX_ANSWER_CHARS,
    NO_PROBLEM,
    Answer,
    AnswerCache,
    Declaration,
    FileParams,
    Problem,
    check_seed,
    credited,
    read_content,
    read_params,
)
from environments.turns import TurnParams, checked_tools
from protocol.config import PoolConfig
from protocol.encoding import parse_json
from protocol.errors import ConfigError, printable
from protocol.verdict import LANE
from sandbox.pool import shared_pool
from sandbox.wasi import MIB, Ending, SandboxLimits, SandboxOutcome, SandboxProgram

CORE_FUEL = 4_000_000_000  # units of fuel that a usual core does in a second at most
_LEAST_SECONDS = 0.01
MAX_PROGRAM_BYTES = _MAX_CHARS = 1 << 16


class ProgramParams(TurnParams, FileParams):
    """`seconds`: of a core, that a call may take."""

    seconds: float = Field(0.5, ge=_LEAST_SECONDS, le=5.0)
    tools: Annotated[list[dict[str, Any]], BeforeValidator(checked_tools)] = Field(default_factory=list)


def read_problem(outcome: SandboxOutcome) -> Problem:
    """Read as hostile what a program returned. Raise ValueError, in words, where it gave no problem."""
    fields = _returned(outcome)
    if not isinstance(fields, dict):
        raise ValueError(f"it gave no dictionary, but {printable(json.dumps(fields), 60)}")
    if wrong := sorted(fields.keys() - {"question", "answer", "metadata"}):
        raise ValueError(f"a problem has no `{printable(wrong[0], 40)}`, only question, answer, metadata")
    question, answer = fields.get("question"), fields.get("answer")
    metadata = {} if fields.get("metadata") is None else fields["metadata"]
    if not isinstance(question, str) or not 0 < len(question) <= _MAX_CHARS:
        raise ValueError(f"`question` is no text of 1 to {_MAX_CHARS} characters")
    if not isinstance(answer, str) or len(answer) > _MAX_CHARS:
        raise ValueError(f"`answer` is no text of at most {_MAX_CHARS} characters")
    if not isinstance(metadata, dict) or len(json.dumps(metadata)) > _MAX_CHARS:
        raise ValueError(f"`metadata` is no dictionary of at most {_MAX_CHARS} characters of JSON")
    return Problem(question, answer, metadata)


def _returned(outcome: SandboxOutcome) -> Any:
    if outcome.ending is not Ending.EXITED:
        raise ValueError(f"the program ended: {outcome.ending}")
    if outcome.code != 0:
        lines = outcome.stderr[-2000:].decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise ValueError(printable(lines[-1], 200))
    try:
        return parse_json(outcome.stdout)
    except ValueError as error:
        raise ValueError(f"what it returned is no JSON: {printable(str(error), 100)}") from None


class ProgramEnvironment:
    """The program at `path`: `problem(seed)` and `score(problem, answer_text)`; of several turns, with a list of texts,
    `reply(problem, turns)` and `score(problem, turns)`. Raises ConfigError for a wrong parameter, a missing program, or
    one that makes no problem of seed 0, IntegrityError for other bytes, ScoringUnavailable."""

    rows = 0

    def __init__(self, path: Path, content: str, params: dict[str, Any]) -> None:
        given = read_params(ProgramParams, "program", params)
        self._threshold, fuel = given.score_threshold, round(given.seconds * CORE_FUEL)
        self._limits = SandboxLimits(fuel=fuel, memory=256 * MIB, output=2 * MIB, calls=2_000)
        try:
            self._source = read_content(path, content, MAX_PROGRAM_BYTES, "program").decode()
        except UnicodeDecodeError:
            raise ConfigError(f"the program {path} is no UTF-8", "save it as UTF-8") from None
        self.declared = Declaration("1", content, given.licence, self._limits.seconds, given.with_tools(given.tools))
        self._answers = AnswerCache()
        if fault := self.problem(0).fault:
            raise ConfigError(f"the program {content[:16]}… makes no problem of seed 0: {fault}", "mend the program")

    def problem(self, seed: int) -> Problem:
        check_seed(seed)
        try:
            return read_problem(self._run("problem", [seed]))
        except ValueError as error:
            return Problem(NO_PROBLEM, "", fault=str(error))

    def score(self, problem: Problem, answer_text: str) -> float:
        if self.declared.turns.most > 1:
            return self.score_turns(problem, [answer_text])
        return self._score(problem, answer_text, len(answer_text))

    def score_turns(self, problem: Problem, turns: Sequence[str]) -> float:
        return self._score(problem, list(turns), sum(map(len, turns)))

    def reply(self, problem: Problem, turns: Sequence[str]) -> str | None:
        if problem.fault or sum(map(len, turns)) > MAX_ANSWER_CHARS:
            return None
        value = self._ask("reply", problem, list(turns))
        return value if isinstance(value, str) and len(value) <= _MAX_CHARS else None

    def _score(self, problem: Problem, answer: Any, chars: int) -> float:
        if problem.fault or chars > MAX_ANSWER_CHARS:
            return 0.0
        value = self._ask("score", problem, answer)
        return credited(value, self._threshold) if isinstance(value, float) else 0.0

    def _ask(self, function: str, problem: Problem, about: Any) -> Answer:
        """Return the number or the text that the program answers; None where it gives neither."""
        given = {"question": problem.question, "answer": problem.answer, "metadata": problem.metadata}

        def ask() -> Answer:
            try:
                value = _returned(self._run(function, [given, about]))
                return value if isinstance(value, str) else float(value)
            except (ValueError, TypeError, OverflowError):
                return None

        return self._answers.get([function, given, about], ask)

    def _run(self, function: str, arguments: list[Any]) -> SandboxOutcome:
        program = SandboxProgram(self._source, function=function, arguments=arguments)
        return shared_pool("python").run(program, self._limits)


def template() -> str:
    return Path(__file__).with_name("program_template.py").read_text(encoding="utf-8")


# A program's scorer is its owner's and may take its full time for each answer. Every row of a file is scored, whatever
# the audit rate, and a seat votes on a full lane at once. Other scorers are muster's own or reviewed.

_SHARE = 0.5  # of a window, for scoring: the rest is for weights, the model's own pass, slower cores


def too_slow(config: PoolConfig, commit_window: int, jury_commit_window: int) -> ConfigError | None:
    """Return what is wrong, and what its owner can change, where the worst case does not fit: a full lane into half of
    a committee's window, one file into half of a jury's (both in seconds). Raise ConfigError for a wrong parameter."""
    work = config.work
    for environment in (environment for environment in config.environments if environment.name == "program"):
        given = read_params(ProgramParams, "program", environment.params)
        calls_per_file = work.problems_per_file + work.rows * given.turns
        tasks = (
            (f"a lane of {LANE} files", LANE * calls_per_file, "commit_window", commit_window),
            ("a file before a jury", calls_per_file, "jury_commit_window", jury_commit_window),
        )
        most = math.floor(1000 * min(_SHARE * window / calls for _, calls, _, window in tasks)) / 1000
        shorter = f"set `params.seconds` to {most:g} or less, " if most >= _LEAST_SECONDS else ""
        for task, calls, name, window in tasks:
            if calls * given.seconds > _SHARE * window:
                return ConfigError(
                    f"{environment.called}: scoring {task} may take {calls} calls of {given.seconds:g} s, "
                    f"{calls * given.seconds:.0f} s of a core; of `{name}` {_SHARE * window:g} s are for that",
                    f"{shorter}make files smaller, or raise `{name}`",
                )
    return None
