"""One row of a data file: read as hostile, checked against what its task type needs."""

import math
import re
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from environments.scorers import code
from protocol.encoding import parse_json
from protocol.errors import ConfigError, IntegrityError, first_problem, printable

MAX_ROW_BYTES = 4 << 20
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
    """A row from a line of JSON, or from what a Parquet file holds. Raises IntegrityError naming `where` and what is
    wrong with it."""
    try:
        if isinstance(line, bytes) and len(line) > MAX_ROW_BYTES:
            raise ValueError(f"it has {len(line)} bytes, {MAX_ROW_BYTES} at most")
        fields = parse_json(line) if isinstance(line, bytes) else dict(line)
        if not isinstance(fields, dict):
            raise ValueError("it is not a JSON object")
        for name in ("verification_info", "metadata"):
            if isinstance(fields.get(name), str):
                fields[name] = parse_json(fields[name])
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


def reference_of(info: dict[str, Any]) -> str:
    """A mathematical answer as text; a list of one counts as that."""
    value = info.get("ground_truth", info.get("answer"))
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("verification_info has no `ground_truth`, a text or a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("`ground_truth` is not finite")
    text = str(value)
    if not 0 < len(text) <= 4096:
        raise ValueError(f"`ground_truth` has {len(text)} characters, 1 to 4096 are allowed")
    return text


def tests_of(info: dict[str, Any]) -> dict[str, Any]:
    """What environments/scorers/code.py takes: `language` and `test_cases`. The other common form, `inputs` and
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


def _output(info: dict[str, Any]) -> None:
    if "ground_truth" not in info and "output" not in info:
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
    "verifiable_math": reference_of,
    "verifiable_code": tests_of,
    "prime_rl_code": tests_of,
    "code_output_prediction": _output,
    "verifiable_code_understanding": _output,
    "reasoning_gym": _gym,
    "llm_judgeable": _judged,
    "llm_judgeable_groundtruth_similarity": _judged,
}
TASK_TYPES = frozenset(name for name, needed in NEEDED.items() if needed is not _judged)
