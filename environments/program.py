"""`seconds`: how long each call of a program may take, as its owner promises the validators; counted, not timed."""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from environments.base import NO_PROBLEM, Declaration, KeptAnswers, Problem, Said, Turns, credited, file_params
from environments.turns import PARAMETERS, TOOLS, take_tools, take_turns
from protocol.config import EnvironmentConfig, PoolConfig
from protocol.encoding import parse_json
from protocol.errors import ConfigError, IntegrityError, printable
from protocol.files import read_bounded
from protocol.verdict import LANE
from sandbox.pool import shared_pool
from sandbox.wasi import MIB, Ending, SandboxLimits, SandboxOutcome, SandboxProgram

CORE_FUEL = 4_000_000_000
"""Units of fuel that a usual core does in a second at most."""
SECONDS = "seconds"
_USUAL, LEAST, MOST = 0.5, 0.01, 5.0


def take_limits(params: dict[str, Any]) -> SandboxLimits:
    """Of one call of `problem`, `reply` or `score`; the parameter is taken out of `params`. Raise ConfigError."""
    return SandboxLimits(fuel=round(take_seconds(params) * CORE_FUEL), memory=256 * MIB, output=2 * MIB, calls=2_000)


def take_seconds(params: dict[str, Any]) -> float:
    """Return the parameter, taken out of `params`; half a second where it is not there. Raise ConfigError."""
    value = params.pop(SECONDS, _USUAL)
    if isinstance(value, bool) or not isinstance(value, int | float) or not LEAST <= value <= MOST:
        raise ConfigError(f"`params.{SECONDS}` is {value!r}", f"use a number from {LEAST:g} to {MOST:g}")
    return float(value)


# What a program returns, read as hostile


MAX_QUESTION_CHARS = 1 << 16
MAX_REFERENCE_CHARS = 1 << 16
MAX_METADATA_CHARS = 1 << 16
MAX_REPLY_CHARS = 1 << 16
_FIELDS = {"question", "answer", "metadata"}


def read_problem(outcome: SandboxOutcome) -> Problem:
    """Raise ValueError, in words, where the program gave no problem."""
    said = _said(outcome)
    if not isinstance(said, dict):
        raise ValueError(f"it gave no dictionary, but {printable(json.dumps(said), 60)}")
    if wrong := sorted(said.keys() - _FIELDS):
        raise ValueError(f"a problem has no `{printable(wrong[0], 40)}`, only question, answer, metadata")
    question, answer = said.get("question"), said.get("answer")
    metadata = {} if said.get("metadata") is None else said["metadata"]
    if not isinstance(question, str) or not 0 < len(question) <= MAX_QUESTION_CHARS:
        raise ValueError(f"`question` is no text of 1 to {MAX_QUESTION_CHARS} characters")
    if not isinstance(answer, str) or len(answer) > MAX_REFERENCE_CHARS:
        raise ValueError(f"`answer` is no text of at most {MAX_REFERENCE_CHARS} characters")
    if not isinstance(metadata, dict) or len(json.dumps(metadata)) > MAX_METADATA_CHARS:
        raise ValueError(f"`metadata` is no dictionary of at most {MAX_METADATA_CHARS} characters of JSON")
    return Problem(question, answer, metadata)


def read_score(outcome: SandboxOutcome) -> float:
    """Return a number, or True or False. Raise ValueError, in words, where the program gave none."""
    said = _said(outcome)
    if not isinstance(said, int | float):
        raise ValueError(f"it gave no number, but {printable(json.dumps(said), 60)}")
    try:
        return float(said)
    except OverflowError:
        raise ValueError("it gave a number that is too large") from None


def read_reply(outcome: SandboxOutcome) -> str | None:
    """Return a text, or None for the end. Raise ValueError, in words, where the program gave neither."""
    said = _said(outcome)
    if said is not None and (not isinstance(said, str) or len(said) > MAX_REPLY_CHARS):
        raise ValueError(f"it gave no text of at most {MAX_REPLY_CHARS} characters, and no None")
    return said


def _said(outcome: SandboxOutcome) -> Any:
    if outcome.ending is not Ending.EXITED:
        raise ValueError(f"the program ended: {outcome.ending}")
    if outcome.code != 0:
        told = outcome.stderr[-2000:].decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise ValueError(printable(told[-1], 200))
    try:
        return parse_json(outcome.stdout)
    except ValueError as error:
        raise ValueError(f"what it returned is no JSON: {printable(str(error), 100)}") from None


# The environment


MAX_PROGRAM_BYTES = 1 << 16
MAX_ANSWER_CHARS = 1 << 16


class ProgramEnvironment:
    """The program at `path`, whose SHA-256 is `content`: `problem(seed)` and `score(problem, answer_text)`; of several
    turns `reply(problem, turns)` and `score(problem, turns)`, with the turns so far as a list of texts.

    `params`: those of environments/registry.py, limits.py and environments/turns.py. Raises ConfigError for one
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
        """Return what the program says, `failed` where it says nothing."""
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


def read() -> str:
    """Return its source."""
    return Path(__file__).with_name("program_template.py").read_text(encoding="utf-8")


# Judging time. A program's scorer is its owner's and may take its full time for each answer. Every row of a file is
# scored, whatever the audit rate, and a seat votes on a full lane at once. Other scorers are muster's own or reviewed.


_SHARE = 0.5
"""Of a window, for scoring: the rest is for weights, the model's own pass, slower cores."""


@dataclass(frozen=True)
class ProgramTime:
    """What an environment's program may take of a core for one file, at worst: so many `calls` of `seconds` each."""

    environment: str
    calls: int
    seconds: float

    @property
    def file(self) -> float:
        """Seconds."""
        return self.calls * self.seconds


@dataclass(frozen=True)
class SlowPool:
    """Why a pool's files could not be judged in time, in one line, and what its owner can change."""

    what: str
    hint: str


def slowest_program(config: PoolConfig) -> ProgramTime | None:
    """Of a pool's programs the one that may take longest, if all problems of a file fall to it; None without any.
    Raise ConfigError for a wrong parameter."""
    times = [_time(config, one) for one in config.environments if one.name == "program"]
    return max(times, key=lambda time: time.file, default=None)


def _time(config: PoolConfig, one: EnvironmentConfig) -> ProgramTime:
    own, work = dict(one.params), config.work
    turns, seconds = take_turns(own, Turns(tools=take_tools(own))), take_seconds(own)
    return ProgramTime(one.called, work.problems_per_file + work.rows * turns.most, seconds)


def too_slow(config: PoolConfig, commit_window: int, jury_commit_window: int) -> SlowPool | None:
    """Return where the worst case does not fit: a full lane into half of a committee's window, one file into half of a
    jury's (both in seconds). Raise ConfigError for a wrong parameter."""
    time = slowest_program(config)
    if time is None:
        return None
    asked = (
        (f"a lane of {LANE} files", LANE * time.calls, "commit_window", commit_window),
        ("a file before a jury", time.calls, "jury_commit_window", jury_commit_window),
    )
    most = min(_SHARE * window / calls for _, calls, _, window in asked)
    for what, calls, name, window in asked:
        if calls * time.seconds > _SHARE * window:
            said = f"{time.environment}: scoring {what} may take {calls} calls of {time.seconds:g} s"
            return SlowPool(
                f"{said}, {calls * time.seconds:.0f} s of a core; of `{name}` {_SHARE * window:g} s are for that",
                f"{_shorter(most)}make files smaller, or raise `{name}`",
            )
    return None


def _shorter(most: float) -> str:
    rounded = math.floor(1000 * most) / 1000
    return f"set `params.{SECONDS}` to {rounded:g} or less, " if rounded >= LEAST else ""
