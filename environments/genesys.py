"""Files of problems in the schema of GENESYS and SYNTHETIC-1: rows, their scores, and the environment made of a file.

A row is read as hostile, and checked against what its task type needs.
"""

import ast
import hashlib
import json
import math
import mmap
import re
from collections.abc import Callable
from decimal import Decimal
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from environments.base import THRESHOLD, Declaration, Problem, credited, file_params
from environments.gym import GymEnvironment
from environments.parquet import is_parquet, unpack
from environments.scorers import code, mathematics
from environments.scorers.latex import nesting
from protocol.config import MAX_FILE_BYTES, MAX_ROW_BYTES, MAX_ROWS
from protocol.encoding import parse_json
from protocol.errors import ConfigError, IntegrityError, first_problem, printable
from protocol.files import explained, file_sha256, write_atomic

_NAME = re.compile(r"[a-z0-9_]{1,64}")


class GenesysRow(BaseModel):
    """A problem: what is asked, and what verifies an answer. `verification_info` and `metadata` may be text that holds
    a JSON object, as Parquet files have it."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    problem_id: str = Field(min_length=1, max_length=200)
    source: str = Field("", max_length=200)
    task_type: str = Field(max_length=64)
    in_source_id: str | None = Field(None, max_length=200)
    prompt: str = Field(min_length=1, max_length=1 << 20)
    gold_standard_solution: str | None = Field(None, max_length=MAX_ROW_BYTES)
    verification_info: dict[str, Any]
    metadata: dict[str, Any] = Field(default_factory=dict)


def read_row(line: bytes | dict[str, Any], where: str) -> GenesysRow:
    """Return a row from a line of JSON, or from what a Parquet file holds. Raise IntegrityError naming `where` and what
    is wrong with it."""
    try:
        if isinstance(line, bytes) and len(line) > MAX_ROW_BYTES:
            raise ValueError(f"it has {len(line)} bytes, {MAX_ROW_BYTES} at most")
        fields = parse_json(line) if isinstance(line, bytes) else dict(line)
        if not isinstance(fields, dict):
            raise ValueError("it is not a JSON object")
        for name in ("verification_info", "metadata"):
            if isinstance(fields.get(name), str):
                fields[name] = _object(fields[name], name)
            elif fields.get(name) is None:
                fields.pop(name, None)
        row = GenesysRow.model_validate(fields)
        NEEDED.get(row.task_type, _unknown)(row.verification_info)
        row.prompt.encode()
        return row
    except ValidationError as error:
        field, problem = first_problem(error.errors())
        raise IntegrityError(f"{where}: `{field}`: {problem}", "mend the row") from None
    except ValueError as error:
        raise IntegrityError(f"{where}: {printable(str(error), 200)}", "mend the row") from None


def _object(text: str, name: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        hint = "`muster env screen` turns Python literals into JSON"
        raise ValueError(f"`{name}` is text that is no JSON ({error}); {hint}") from None


def reference_of(info: dict[str, Any]) -> str:
    """Return a mathematical answer as text; a list of one counts as that."""
    value = info.get("ground_truth", info.get("answer"))
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("verification_info has no `ground_truth`, a text or a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("`ground_truth` is not finite")
    # Digits, for what reads 1e-05 as mathematics takes e for Euler's number.
    text = f"{Decimal(repr(value)):f}" if isinstance(value, float) else str(value)
    if not 0 < len(text) <= 4096:
        raise ValueError(f"`ground_truth` has {len(text)} characters, 1 to 4096 are allowed")
    return text


def _mathematical(info: dict[str, Any]) -> None:
    """A reference that is read in part would make wrong answers right."""
    try:
        mathematics.check_reference(reference_of(info))
    except ConfigError as error:
        raise ValueError(error.what) from None


def tests_of(info: dict[str, Any]) -> dict[str, Any]:
    """Return what environments/scorers/code.py takes: `language` and `test_cases`. The other common form, `inputs` and
    `outputs` side by side with one `fn_name`, is turned into it."""
    given = info.get("ground_truth", info)
    given = parse_json(given) if isinstance(given, str) else given
    if not isinstance(given, dict):
        raise ValueError("verification_info has no `test_cases`")
    cases = given.get("test_cases")
    if "inputs" in given:
        name, inputs, outputs = given.get("fn_name"), given["inputs"], given.get("outputs")
        if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
            raise ValueError("`inputs` and `outputs` are not lists of one length")
        kind = {"type": "function_call", "fn_name": name} if name else {"type": "stdin_stdout"}
        cases = [{**kind, "input": one, "output": out} for one, out in zip(inputs, outputs, strict=True)]
    made = {"language": info.get("language", "python"), "test_cases": cases}
    try:
        code.read_tests(made)
    except ConfigError as error:
        raise ValueError(error.what) from None
    return made


def output_of(info: dict[str, Any]) -> Any:
    """The output that an answer has to predict, under any of its names."""
    for name in ("ground_truth", "output", "code_output"):
        if name in info:
            return info[name]
    raise ValueError("verification_info has no `ground_truth`")


def _gym(info: dict[str, Any]) -> None:
    """A problem is named by its seed: scorers of reasoning_gym trust, and even run, what an entry says."""
    dataset, seed, params = info.get("dataset"), info.get("seed"), info.get("params", {})
    if not isinstance(dataset, str) or not _NAME.fullmatch(dataset):
        raise ValueError("verification_info has no `dataset`, a name of reasoning_gym")
    if type(seed) is not int or not 0 <= seed < 1 << 64 or not isinstance(params, dict):
        raise ValueError("verification_info has no `seed` from 0 to 2^64 - 1, or `params` are not an object")


def _judged(info: dict[str, Any]) -> None:
    raise ValueError("its task type is judged by a model: no validator could reproduce its score")


def _unknown(info: dict[str, Any]) -> None:
    raise ValueError(f"its task type is none of {', '.join(sorted(TASK_TYPES))}")


NEEDED: dict[str, Callable[[dict[str, Any]], object]] = {
    "verifiable_math": _mathematical,
    "verifiable_code": tests_of,
    "prime_rl_code": tests_of,
    "code_output_prediction": output_of,
    "verifiable_code_understanding": output_of,
    "reasoning_gym": _gym,
    "llm_judgeable": _judged,
    "llm_judgeable_groundtruth_similarity": _judged,
}
TASK_TYPES = frozenset(name for name, needed in NEEDED.items() if needed is not _judged)


# Predicted output


_TRIES, _WINDOW, _LITERAL_CHARS, _LITERAL_DEPTH = 256, 1 << 15, 4096, 32
NOTHING = object()


def predicted_output(text: str) -> Any:
    """Return `output` of the last object in the text that has one, written as JSON or as a Python dictionary; NOTHING
    without one. Only the last 32,768 characters and so many opening braces count."""
    text, found, start = text[-_WINDOW:], NOTHING, 0
    for _ in range(_TRIES):
        start = text.find("{", start)
        if start < 0:
            break
        end = _closing(text, start)
        made = _literal(text[start:end])
        if isinstance(made, dict) and "output" in made:
            found = made["output"]
            start = end
        else:
            start += 1
    return found


def _closing(text: str, start: int) -> int:
    """Return the end of the object that begins at `start`, quoted braces left out; `start` where there is none."""
    depth, quote, at = 0, "", start
    while at < len(text):
        character = text[at]
        if quote:
            at += character == "\\"
            quote = "" if character == quote else quote
        elif character in "\"'" and (character == '"' or text[at - 1] in "{[(:, "):
            quote = character
        elif character in "{}":
            depth += 1 if character == "{" else -1
            if depth == 0:
                return at + 1
        at += 1
    return start


def _literal(text: str) -> Any:
    """Return what a text means as JSON or as a Python literal; NOTHING for anything else."""
    try:
        return parse_json(text)
    except ValueError:
        pass
    # names of characters are those of the interpreter's version
    if len(text) > _LITERAL_CHARS or nesting(text) > _LITERAL_DEPTH or "\\N" in text or "---" in text:
        return NOTHING
    try:
        return json.loads(json.dumps(ast.literal_eval(text), allow_nan=False))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return NOTHING


def _is_truth(found: Any, truth: Any) -> bool:
    """Whether a predicted output is the truth, which may itself be text that holds JSON."""
    if same(found, truth):
        return True
    return isinstance(truth, str) and (meant := _literal(truth)) is not NOTHING and same(found, meant)


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, true and 1 told apart."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


# Data files


_CHECK = "2"  # raise it when what a file must hold changes


class ProblemFile:
    """The rows of a file whose name is its hash. Raises ConfigError where it is missing, IntegrityError where its bytes
    have another hash or are not rows that can be scored: the first wrong line is named."""

    def __init__(self, path: Path, content: str) -> None:
        self._path, self._content = path, content
        if not path.is_file():
            raise ConfigError(f"there is no data file {path}", "put it there under the name of its SHA-256")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise IntegrityError(f"{path} has more than {MAX_FILE_BYTES} bytes", "split it")
        self._lines = path.with_suffix(".rows") if is_parquet(path) else path
        self._check()

    @cached_property
    def _bytes(self) -> mmap.mmap:
        with self._lines.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        """Where each line ends."""
        return np.flatnonzero(np.frombuffer(self._bytes, dtype=np.uint8) == ord("\n")).astype(np.int64)

    def __len__(self) -> int:
        return len(self._ends)

    def row(self, number: int) -> GenesysRow:
        """Raise ValueError for a number outside the file."""
        if not 0 <= number < len(self):
            raise ValueError(f"row {number} of {len(self)}")
        return read_row(self._line(number), f"{self._path.name}, row {number}")

    def _line(self, number: int) -> bytes:
        start = int(self._ends[number - 1]) + 1 if number else 0
        return self._bytes[start : int(self._ends[number])]

    def _check(self) -> None:
        """Read everything, unless this machine has done so before."""
        marker = self._path.with_suffix(".checked")
        if marker.is_file() and marker.stat().st_size < 1024 and marker.read_text() == self._checked():
            return
        if file_sha256(self._path) != self._content:
            raise IntegrityError(f"{self._path} has another SHA-256 than {self._content[:16]}…", "fetch it again")
        if self._lines != self._path:
            with explained(f"write {self._lines}", "check the folder and the room on its disk"):
                unpack(self._path, self._lines)
        if not self._lines.stat().st_size or self._bytes[-1] != ord("\n"):
            raise IntegrityError(f"{self._path.name} does not end with a line", "write one row in each line")
        if len(self) > MAX_ROWS:
            raise IntegrityError(f"{self._path.name} has {len(self)} rows, {MAX_ROWS} at most", "split it")
        longest = int(np.max(np.diff(self._ends, prepend=-1)))
        if longest > MAX_ROW_BYTES + 1:
            raise IntegrityError(
                f"{self._path.name} has a line of {longest} bytes, {MAX_ROW_BYTES} at most", "shorten it"
            )
        self._check_rows()
        with explained(f"write {marker}", "check the folder"):
            write_atomic(marker, self._checked().encode())

    def _checked(self) -> str:
        """Return what is known of the files once they are checked: they are the same as long as this is."""
        if not self._lines.is_file():
            return "never"
        times = {self._path.stat().st_mtime_ns, self._lines.stat().st_mtime_ns}
        return " ".join((_CHECK, self._content, *map(str, sorted(times))))

    def _check_rows(self) -> None:
        known: dict[bytes, int] = {}
        for number in range(len(self)):
            name = hashlib.sha256(self.row(number).problem_id.encode()).digest()[:16]
            if known.setdefault(name, number) != number:
                raise IntegrityError(
                    f"{self._path.name}: rows {known[name]} and {number} have one problem_id", "remove one of them"
                )


# The environment


MAX_ANSWER_CHARS = 1 << 16
MAX_SECONDS = 120.0


class GenesysEnvironment:
    """The file at `path`, whose SHA-256 is `content`. `params`: those of environments/registry.py."""

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
    """Return the problem of row `number`."""
    known = {"row": number, "problem_id": row.problem_id, "task_type": row.task_type, "info": row.verification_info}
    return Problem(row.prompt, row.gold_standard_solution or "", known)


def scored(task_type: str, info: dict[str, Any], answer: str) -> float:
    """Return what an answer is worth, 0 to 1. Raise what the scorer of the task type raises."""
    if task_type == "verifiable_math":
        return mathematics.score(answer, reference_of(info))
    if task_type in ("verifiable_code", "prime_rl_code"):
        return code.score(answer, tests_of(info))
    if task_type == "reasoning_gym":
        generator = _gym_environment(info["dataset"], _frozen(info.get("params", {})))
        return generator.score(generator.problem(info["seed"]), answer.strip())
    found = predicted_output(answer)
    return float(found is not NOTHING and _is_truth(found, output_of(info)))


def _frozen(params: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    try:
        hash(made := tuple(sorted((name, _hashable(value)) for name, value in params.items())))
    except TypeError:
        raise IntegrityError("`params` of a reasoning_gym row are too deep", "use numbers, texts and lists") from None
    return made


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@lru_cache(maxsize=128)
def _gym_environment(dataset: str, params: tuple[tuple[str, Any], ...]) -> GymEnvironment:
    return GymEnvironment(dataset, {**dict(params), THRESHOLD: 0})
