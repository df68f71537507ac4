"""A pool owner's program as an environment: what fails in it fails on every machine alike, and harms nobody.

A score that crashes, runs out of fuel or is no number is 0. A problem that cannot be made is the owner's fault: with
that of seed 0 the configuration is refused; with a later one a fixed question stands in its place, every answer to
which is worth 0, so that no worker and no validator comes to a stop over it.
"""

import hashlib
import json
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from environments.base import Declaration, Problem
from environments.data import file_params
from environments.program.answers import read_problem, read_score
from environments.sandbox.pool import shared_pool
from environments.sandbox.program import MIB, SandboxLimits, SandboxOutcome, SandboxProgram
from environments.threshold import credited
from protocol.errors import ConfigError, IntegrityError
from protocol.files import read_bounded

MAX_PROGRAM_BYTES = 1 << 16
MAX_ANSWER_CHARS = 1 << 16
LIMITS = SandboxLimits(fuel=4_000_000_000, memory=256 * MIB, output=2 * MIB, calls=2_000)
"""Of one call of `problem` or of `score`; the fuel is about a second of a usual core."""
NO_PROBLEM = "There is no problem here. Any answer is worth nothing."
_KEPT_SCORES = 1 << 16


class ProgramEnvironment:
    """The program at `path`, whose SHA-256 is `content`: `problem(seed)` and `score(problem, answer_text)`. `params`:
    those of environments/data.py. Raises ConfigError for one that is missing or makes no problem of seed 0,
    IntegrityError for other bytes, ScoringUnavailable where this machine has no sandbox."""

    def __init__(self, path: Path, content: str, params: dict[str, Any]) -> None:
        self._threshold, licence = file_params("program", params)
        self._source = _read(path, content)
        self.declared = Declaration("program", "1", content, licence, MAX_ANSWER_CHARS, LIMITS.seconds)
        self._lock, self._scores = threading.Lock(), OrderedDict[bytes, float]()
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
        if problem.fault or len(answer_text) > MAX_ANSWER_CHARS:
            return 0.0
        made = {"question": problem.question, "answer": problem.answer, "metadata": problem.metadata}
        return credited(self._value([made, answer_text]), self._threshold)

    def _value(self, arguments: list[Any]) -> float:
        """What the program says, 0 where it says nothing; kept, since workers and trainers ask the same again."""
        key = hashlib.sha256(json.dumps(arguments).encode()).digest()
        with self._lock:
            if key in self._scores:
                self._scores.move_to_end(key)
                return self._scores[key]
        try:
            value = read_score(self._run("score", arguments))
        except ValueError:
            value = 0.0
        with self._lock:
            self._scores[key] = value
            if len(self._scores) > _KEPT_SCORES:
                self._scores.popitem(last=False)
        return value

    def _run(self, function: str, arguments: list[Any]) -> SandboxOutcome:
        return shared_pool("python").run(SandboxProgram(self._source, function=function, arguments=arguments), LIMITS)


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
