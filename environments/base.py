"""What an environment is: problems drawn from a seed, and a scorer that anyone can run again with the same result."""

import hashlib
import importlib.util
import json
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from protocol.errors import ConfigError, IntegrityError, first_problem, printable
from protocol.files import read_bounded

MAX_ANSWER_CHARS = 1 << 18
"""Of an answer that is scored, where an environment reads whole answers; a longer one is worth 0."""
ANSWER_TOKENS = MAX_ANSWER_CHARS // 4
"""Tokens of which any usual text is no longer: `muster pool check` refuses answers of more."""
# Asked where an environment has no problem, or one that is longer than the pool's prompts may be
NO_PROBLEM = "There is no problem here. Any answer is worth nothing."


@dataclass(frozen=True)
class Problem:
    """`metadata`: what the environment's own scorer needs besides. `fault`: why there is no problem for this seed, on
    every machine alike; `question` then stands in, and every answer is worth 0."""

    question: str
    answer: str
    metadata: dict[str, Any] = field(default_factory=dict)
    fault: str = ""


@dataclass(frozen=True)
class Turns:
    """`reply_tokens`: of a reply with what the chat template puts around it; a longer one ends the rollout. `role`:
    whose turn a reply is there. `tools`: JSON schemas of functions that the template is told of."""

    most: int = 1
    reply_tokens: int = 256
    role: str = "user"
    tools: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Declaration:
    """What an environment says of itself. `content`: hex SHA-256 of what defines its problems and scores; `licence` of
    that. No score takes more than `seconds`. `turns`: of more than one only an `InTurns` has."""

    version: str
    content: str
    licence: str
    seconds: float
    turns: Turns = Turns()


class Environment(Protocol):
    """Deterministic: the same seed gives the same problem in every process, the same text the same score."""

    @property
    def declared(self) -> Declaration: ...

    @property
    def rows(self) -> int:
        """How many problems there are; 0 where one is made from any seed."""
        ...

    def problem(self, seed: int) -> Problem:
        """Return the problem of a seed (64 bits) or row. Raise ValueError outside that, ScoringUnavailable."""
        ...

    def score(self, problem: Problem, answer_text: str) -> float:
        """Return 0 to 1, whatever the text; bounded in time. Raise nothing but ScoringUnavailable."""
        ...


@runtime_checkable
class InTurns(Environment, Protocol):
    """An environment that replies: a game, a tool, somebody who asks back. `turns`: the model's turns so far as text,
    each without its EOS. The same turns at the same problem get the same reply and score in every process."""

    def reply(self, problem: Problem, turns: Sequence[str]) -> str | None:
        """Return what comes after these turns, None where they are the end. Raise nothing but ScoringUnavailable."""
        ...

    def score_turns(self, problem: Problem, turns: Sequence[str]) -> float:
        """Score a whole rollout, like `score`; of the last turn only what comes after the pool's `answer_after`."""
        ...


def check_seed(seed: int) -> None:
    """Raise ValueError unless a problem seed is an unsigned 64-bit number."""
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"a problem seed is an unsigned 64-bit number, not {seed}")


THRESHOLD = "score_threshold"


class Params(BaseModel):
    """What any environment takes. `score_threshold`: what counts as 1; 0 keeps partial credit."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    score_threshold: float = Field(1.0, ge=0, le=1)


class FileParams(Params):
    """Of an environment that is a file. `licence`: what its owner says of it."""

    licence: str = Field("unknown", max_length=100)


AnyParams = TypeVar("AnyParams", bound=Params)


def read_params(kind: type[AnyParams], environment: str, params: Mapping[str, Any]) -> AnyParams:
    """Raise ConfigError for an unknown or a wrong parameter."""
    try:
        return kind.model_validate(params)
    except ValidationError as error:
        wrong = error.errors()[0]
        name, problem = first_problem([wrong])
        if wrong["type"] == "extra_forbidden":
            known = f"it has {', '.join(kind.model_fields)}"
            raise ConfigError(f"{environment} has no such parameter: `{name}`", known) from None
        raise ConfigError(f"`params.{name}` is {printable(repr(wrong['input']))}", problem) from None


def credited(value: float, threshold: float) -> float:
    """Return 1 where a score reaches the threshold, else 0; with threshold 0 the score itself, held within 0 and 1."""
    if not math.isfinite(value):
        return 0.0
    if threshold > 0:
        return 1.0 if value >= threshold else 0.0
    return min(1.0, max(0.0, value))


def tagged_answer(text: str) -> str:
    """Return what stands in the last <answer>…</answer> of a text, or the text where it has no such tag."""
    if "<answer>" not in text and "</answer>" not in text:
        return text
    return text.rpartition("<answer>")[2].partition("</answer>")[0].strip()


Answer = float | str | None


class AnswerCache:
    """The last answers of an environment, bounded in their number and in their characters together."""

    def __init__(self, most: int = 1 << 16, chars: int = 1 << 25) -> None:
        self._most, self._limit, self.chars = most, chars, 0
        self._lock, self._kept = threading.Lock(), OrderedDict[bytes, Answer]()

    def get(self, question: Any, ask: Callable[[], Answer]) -> Answer:
        """Return the answer to a question that JSON can hold; call `ask` for one that is not kept."""
        key = hashlib.sha256(json.dumps(question).encode()).digest()
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        answer = ask()
        with self._lock:
            if key not in self._kept:
                self._kept[key] = answer
                self.chars += len(str(answer))
            while len(self._kept) > self._most or self.chars > self._limit:
                self.chars -= len(str(self._kept.popitem(last=False)[1]))
        return answer


def read_content(path: Path, content: str, most: int, kind: str) -> bytes:
    """Return the bytes of a file whose name is its SHA-256. Raise ConfigError where it is missing or has more than
    `most`, IntegrityError where it has another hash."""
    if not path.is_file():
        raise ConfigError(f"there is no {kind} {path}", "put it there under the name of its SHA-256")
    data = read_bounded(path, most, f"the {kind} ")
    if hashlib.sha256(data).hexdigest() != content:
        raise IntegrityError(f"{path} has another SHA-256 than {content[:16]}…", "fetch it again")
    return data


@cache
def content_hash(package: str) -> str:
    """Return the hex SHA-256 over a package's files, or of a module's one. Raise ConfigError where it is not
    installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ConfigError(f"the package {package} is not installed", f"pip install {package}")
    if not spec.submodule_search_locations:
        return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()
    folder, total = Path(spec.submodule_search_locations[0]), hashlib.sha256()
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    for name, path in sorted((path.relative_to(folder).as_posix(), path) for path in files):
        total.update(f"{name}\n{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()
