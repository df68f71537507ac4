"""Inputs as strangers bring them, and what they may expect: every line of data/outside_inputs.jsonl.

A handler runs all lines of some kinds: it takes a line (`input`, `expected`, and whatever else it has) and a folder of
its own, and raises what the test should fail with. A kind without a handler is not mended yet.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from environments.genesys import read_row, scored
from environments.scorers import code, mathematics
from protocol.errors import ConfigError, IntegrityError

Line = dict[str, Any]
Handler = Callable[[Line, Path], None]
LINES: list[Line] = [
    json.loads(line) for line in (Path(__file__).parent / "data" / "outside_inputs.jsonl").read_text().splitlines()
]
HANDLERS: dict[str, Handler] = {}
PENDING: tuple[str, ...] = ()
"""Kinds that have a handler and are not mended yet."""


def handles(*kinds: str) -> Callable[[Handler], Handler]:
    """Register what runs the lines of these kinds; a name that ends in `*` stands for all that begin like it."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(kinds, handler))
        return handler

    return register


def _handler(kind: str) -> Handler | None:
    return HANDLERS.get(kind) or next(
        (handler for name, handler in HANDLERS.items() if name.endswith("*") and kind.startswith(name[:-1])), None
    )


def _parameter(line: Line) -> Any:
    pending = _handler(line["kind"]) is None or line["kind"].startswith(PENDING)
    marks = [pytest.mark.xfail(strict=False, reason="not mended yet")] if pending else []
    return pytest.param(line, id=line["id"], marks=marks)


@handles("math-*")
def _mathematics(line: Line, folder: Path) -> None:
    """A reference that the scorer cannot read is refused, which pays nobody."""
    try:
        found = mathematics.score(line["input"]["answer"], line["input"]["reference"])
    except ConfigError:
        found = 0.0
    assert found == line["expected"]


_LONG_RUNS = {
    "read 1e5 lines": ("100000\n" + "7\n" * 100_000, "700000"),
    "big output 2MB": ("300000", "1234567\n" * 300_000),
}


@handles("code-*")
def _code(line: Line, folder: Path) -> None:
    verification = line["input"]["verification"]
    if verification is None:
        given, printed = _LONG_RUNS[line["input"]["case"]]
        test = {"type": "stdin_stdout", "input": given, "output": printed}
        verification = {"language": "python", "test_cases": [test]}
    assert code.score(line["input"]["answer"], verification) == line["expected"]


@handles("predicted-output-*")
def _predicted_output(line: Line, folder: Path) -> None:
    assert scored("code_output_prediction", line["input"]["info"], line["input"]["answer"]) == line["expected"]


@handles("answer-tags")
def _answer_tags(line: Line, folder: Path) -> None:
    assert scored("reasoning_gym", line["input"]["info"], line["input"]["answer"]) == line["expected"]


def _refused(line: Line) -> bool:
    """Whether a data row is refused."""
    try:
        read_row(json.dumps(line["input"]).encode(), "row 0")
    except IntegrityError:
        return True
    return False


@handles("dataset-functional-taken-for-stdin")
def _functional(line: Line, folder: Path) -> None:
    assert _refused(line)


@pytest.mark.parametrize("line", [_parameter(line) for line in LINES])
def test_what_a_stranger_expects(line: Line, tmp_path: Path) -> None:
    handler = _handler(line["kind"])
    assert handler is not None, f"no handler for {line['kind']}: {line['how']}"
    handler(line, tmp_path)
