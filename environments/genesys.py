"""Files of problems in the schema of GENESYS and SYNTHETIC-1, read as hostile; and the environment made of one."""

import hashlib
import math
import mmap
import re
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from environments.base import MAX_ANSWER_CHARS, THRESHOLD, Declaration, FileParams, Problem, credited, read_params
from environments.gym import GymEnvironment
from environments.row_formats import python_literal
from environments.scorers import code, mathematics
from protocol.config import MAX_FILE_BYTES, MAX_ROW_BYTES, MAX_ROWS
from protocol.encoding import canonical_json, parse_json
from protocol.errors import ConfigError, IntegrityError, first_problem, printable
from protocol.files import file_sha256, write_file


class GenesysRow(BaseModel):
    """A problem. `verification_info` and `metadata` may be text that holds a JSON object, as in Parquet files."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    problem_id: str = Field(min_length=1, max_length=200)
    source: str = Field("", max_length=200)
    task_type: str = Field(max_length=64)
    in_source_id: str | None = Field(None, max_length=200)
    prompt: str = Field(min_length=1, max_length=1 << 20)
    gold_standard_solution: str | None = Field(None, max_length=MAX_ROW_BYTES)
    verification_info: dict[str, Any]
    metadata: dict[str, Any] = Field(default_factory=dict)


def read_row(line: bytes, where: str) -> GenesysRow:
    """Return a row from a line of JSON. Raise IntegrityError naming `where` and what is wrong with it."""
    try:
        if len(line) > MAX_ROW_BYTES:
            raise ValueError(f"it has {len(line)} bytes, {MAX_ROW_BYTES} at most")
        fields = parse_json(line)
        if not isinstance(fields, dict):
            raise ValueError("it is not a JSON object")
        for name in ("verification_info", "metadata"):
            if isinstance(fields.get(name), str):
                try:
                    fields[name] = parse_json(fields[name])
                except ValueError as error:
                    hint = "`muster env screen` turns Python literals into JSON"
                    raise ValueError(f"`{name}` is text that is no JSON ({error}); {hint}") from None
            elif fields.get(name) is None:
                fields.pop(name, None)
        row = GenesysRow.model_validate(fields)
        if row.task_type in _JUDGED:
            raise ValueError("its task type is judged by a model: no validator could reproduce its score")
        if row.task_type not in _TASKS:
            raise ValueError(f"its task type is none of {', '.join(sorted(_TASKS))}")
        _TASKS[row.task_type][0](row.verification_info)
        row.prompt.encode()
        return row
    except ValidationError as error:
        field, problem = first_problem(error.errors())
        raise IntegrityError(f"{where}: `{field}`: {problem}", "mend the row") from None
    except (ValueError, ConfigError) as error:
        what = error.what if isinstance(error, ConfigError) else str(error)
        raise IntegrityError(f"{where}: {printable(what, 200)}", "mend the row") from None


def reference_of(info: dict[str, Any]) -> str:
    """Return a mathematical answer as text; a list of one counts as that."""
    value = info.get("ground_truth", info.get("answer"))
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("verification_info has no `ground_truth`, a text or a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("`ground_truth` is not finite")
    # Digits, because whatever reads 1e-05 as mathematics takes e for Euler's number
    text = f"{Decimal(repr(value)):f}" if isinstance(value, float) else str(value)
    if not 0 < len(text) <= 4096:
        raise ValueError(f"`ground_truth` has {len(text)} characters, 1 to 4096 are allowed")
    return text


def tests_of(info: dict[str, Any]) -> dict[str, Any]:
    """Return `language` and `test_cases`, into which `inputs` and `outputs` side by side with one `fn_name` are
    turned."""
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
        cases = [kind | {"input": value, "output": out} for value, out in zip(inputs, outputs, strict=True)]
    verification = {"language": info.get("language", "python"), "test_cases": cases}
    code.read_tests(verification)
    return verification


def output_of(info: dict[str, Any]) -> Any:
    """Return the output that an answer has to predict, under any of its names."""
    for name in ("ground_truth", "output", "code_output"):
        if name in info:
            return info[name]
    raise ValueError("verification_info has no `ground_truth`")


def _check_gym(info: dict[str, Any]) -> None:
    """A problem is named by its seed: scorers of reasoning_gym trust, and even run, what an entry says."""
    dataset, seed, params = info.get("dataset"), info.get("seed"), info.get("params", {})
    if not isinstance(dataset, str) or not re.fullmatch(r"[a-z0-9_]{1,64}", dataset):
        raise ValueError("verification_info has no `dataset`, a name of reasoning_gym")
    if type(seed) is not int or not 0 <= seed < 1 << 64 or not isinstance(params, dict):
        raise ValueError("verification_info has no `seed` from 0 to 2^64 - 1, or `params` are not an object")


def _score_gym(answer: str, info: dict[str, Any]) -> float:
    generator = _generator(info["dataset"], canonical_json(info.get("params", {})))
    return generator.score(generator.problem(info["seed"]), answer.strip())


@lru_cache(maxsize=128)
def _generator(dataset: str, params: bytes) -> GymEnvironment:
    own = {name: tuple(value) if isinstance(value, list) else value for name, value in parse_json(params).items()}
    return GymEnvironment(dataset, own | {THRESHOLD: 0})


_TRIES, _WINDOW, _LITERAL_CHARS, _LITERAL_DEPTH = 256, 1 << 15, 4096, 32
NOTHING = object()


def predicted_output(text: str) -> Any:
    """Return `output` of the last object in the text that has one, written as JSON or as a Python dictionary; NOTHING
    without one. Only the last 32,768 characters and so many opening braces count."""
    text, output, start = text[-_WINDOW:], NOTHING, 0
    for _ in range(_TRIES):
        start = text.find("{", start)
        if start < 0:
            break
        end = _closing(text, start)
        value = _literal(text[start:end])
        if isinstance(value, dict) and "output" in value:
            output, start = value["output"], end
        else:
            start += 1
    return output


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
    with suppress(ValueError):
        return parse_json(text)
    try:  # names of characters are those of the interpreter's version
        return NOTHING if "\\N" in text or "---" in text else python_literal(text, _LITERAL_CHARS, _LITERAL_DEPTH)
    except ValueError:
        return NOTHING


def _score_output(answer: str, info: dict[str, Any]) -> float:
    """Compare a predicted output with the truth, which may itself be text that holds JSON."""
    output, truth = predicted_output(answer), output_of(info)
    if output is NOTHING:
        return 0.0
    meant = _literal(truth) if isinstance(truth, str) else NOTHING
    return float(same(output, truth) or (meant is not NOTHING and same(output, meant)))


def same(left: Any, right: Any) -> bool:
    """Return whether two JSON values are equal, true and 1 told apart."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


# Task type → what checks its verification_info, and what scores an answer by it
_Task = tuple[Callable[[dict[str, Any]], object], Callable[[str, dict[str, Any]], float]]
_CODE: _Task = tests_of, lambda answer, info: code.score(answer, tests_of(info))
_OUTPUT: _Task = output_of, _score_output
_TASKS: dict[str, _Task] = {
    "verifiable_math": (
        lambda info: mathematics.check_reference(reference_of(info)),
        lambda answer, info: mathematics.score(answer, reference_of(info)),
    ),
    "verifiable_code": _CODE,
    "prime_rl_code": _CODE,
    "code_output_prediction": _OUTPUT,
    "verifiable_code_understanding": _OUTPUT,
    "reasoning_gym": (_check_gym, _score_gym),
}
_JUDGED = ("llm_judgeable", "llm_judgeable_groundtruth_similarity")


def scored(task_type: str, info: dict[str, Any], answer: str) -> float:
    """Return what an answer is worth, 0 to 1. Raise what the scorer of the task type raises."""
    return _TASKS[task_type][1](answer, info)


_CHECK = "3"  # raise it when what a file must hold changes


class ProblemFile:
    """The rows of a file of JSON lines. Raises ConfigError where it is missing, IntegrityError for other bytes, or the
    first wrong row."""

    def __init__(self, path: Path, content: str) -> None:
        self._name = path.name
        if not path.is_file():
            raise ConfigError(f"there is no data file {path}", "put it there under the name of its SHA-256")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise IntegrityError(f"{path} has more than {MAX_FILE_BYTES} bytes", "split it")
        marker = path.with_suffix(".checked")  # this machine has read it all before, and nothing has changed since
        state = f"{_CHECK} {content} {path.stat().st_mtime_ns}"
        is_checked = marker.is_file() and marker.stat().st_size < 1024 and marker.read_text() == state
        if not is_checked and file_sha256(path) != content:
            raise IntegrityError(f"{path} has another SHA-256 than {content[:16]}…", "fetch it again")
        if not path.stat().st_size:
            raise IntegrityError(f"{path.name} is empty", "write one row in each line")
        with path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._ends: NDArray[np.int64] = np.flatnonzero(np.frombuffer(self._bytes, dtype=np.uint8) == ord("\n"))
        if not is_checked:
            self._check()
            write_file(marker, state.encode())

    def __len__(self) -> int:
        return len(self._ends)

    def row(self, number: int) -> GenesysRow:
        if not 0 <= number < len(self):
            raise ValueError(f"row {number} of {len(self)}")
        start = int(self._ends[number - 1]) + 1 if number else 0
        return read_row(self._bytes[start : int(self._ends[number])], f"{self._name}, row {number}")

    def _check(self) -> None:
        if self._bytes[-1] != ord("\n"):
            hint = "write one row in each line; `muster env screen` does so, also with Parquet"
            raise IntegrityError(f"{self._name} does not end with a line", hint)
        if len(self) > MAX_ROWS:
            raise IntegrityError(f"{self._name} has {len(self)} rows, {MAX_ROWS} at most", "split it")
        known: dict[bytes, int] = {}
        for number in range(len(self)):
            key = hashlib.sha256(self.row(number).problem_id.encode()).digest()[:16]
            if known.setdefault(key, number) != number:
                what = f"{self._name}: rows {known[key]} and {number} have one problem_id"
                raise IntegrityError(what, "remove one of them")


MAX_SECONDS = 120.0


class GenesysEnvironment:
    """The file at `path`, whose SHA-256 is `content`."""

    def __init__(self, path: Path, content: str, params: dict[str, Any]) -> None:
        given = read_params(FileParams, "genesys", params)
        self._threshold, self._file = given.score_threshold, ProblemFile(path, content)
        self.declared = Declaration("1", content, given.licence, MAX_SECONDS)

    @property
    def rows(self) -> int:
        return len(self._file)

    def problem(self, seed: int) -> Problem:
        return problem_of(self._file.row(seed), seed)

    def score(self, problem: Problem, answer_text: str) -> float:
        if len(answer_text) > MAX_ANSWER_CHARS:
            return 0.0
        return credited(scored(problem.metadata["task_type"], problem.metadata["info"], answer_text), self._threshold)


def problem_of(row: GenesysRow, number: int) -> Problem:
    known = {"row": number, "problem_id": row.problem_id, "task_type": row.task_type, "info": row.verification_info}
    return Problem(row.prompt, row.gold_standard_solution or "", known)
