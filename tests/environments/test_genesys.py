"""Data files in GENESYS's schema: scores by task type, hostile rows and files named, the right bytes or none."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from environments.genesys import NOTHING, predicted_output, read_row
from environments.registry import content_path, load_environment
from protocol.config import MAX_ROW_BYTES, EnvironmentConfig
from protocol.errors import ConfigError, IntegrityError, MusterError

MATH = {"problem_id": "m1", "task_type": "verifiable_math", "prompt": "Half of one?",
        "verification_info": {"ground_truth": "\\frac{1}{2}"}}  # fmt: skip
STDIN = {"problem_id": "c1", "task_type": "verifiable_code", "prompt": "Double it.", "verification_info": json.dumps(
    {"language": "python", "test_cases": [{"type": "stdin_stdout", "input": "4\n", "output": "8\n"}]})}  # fmt: skip
CALLS = {"problem_id": "c2", "task_type": "prime_rl_code", "prompt": "Double it.", "verification_info": {
    "ground_truth": json.dumps({"fn_name": "double", "inputs": [[4], [5]], "outputs": [8, 10]})}}  # fmt: skip
OUTPUT = {"problem_id": "o1", "task_type": "code_output_prediction", "prompt": "What comes out?",
          "verification_info": {"ground_truth": [1, True]}}  # fmt: skip
GYM = {"problem_id": "g1", "task_type": "reasoning_gym", "prompt": "A sum.",
       "verification_info": {"dataset": "chain_sum", "seed": 5, "params": {"max_terms": 3}}}  # fmt: skip
ROWS: list[dict[str, Any]] = [MATH, STDIN, CALLS, OUTPUT, GYM]


def written(folder: Path, rows: list[Any]) -> EnvironmentConfig:
    """A file of these rows, each JSON or raw bytes, and the environment that it is."""
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    return kept(folder, b"".join(line + b"\n" for line in lines), len(rows))


def kept(folder: Path, data: bytes, rows: int) -> EnvironmentConfig:
    config = EnvironmentConfig(name="genesys", content=hashlib.sha256(data).hexdigest(), rows=rows)
    content_path(folder, config).write_bytes(data)
    return config


@pytest.mark.parametrize(
    ("number", "right", "wrong"),
    [
        (0, "It is \\boxed{0.5}.", "It is \\boxed{0.4}."),
        (1, "```python\nprint(2 * int(input()))\n```", "```python\nprint(8.5)\n```"),
        (2, "```python\ndef double(x):\n    return 2 * x\n```", "```python\ndef double(x):\n    return 8\n```"),
        (3, 'So: {"output": [1, true]}', 'So: {"output": [1, 1]}'),
    ],
)
def test_each_type_of_task_has_its_scorer(tmp_path: Path, number: int, right: str, wrong: str) -> None:
    environment = load_environment(written(tmp_path, ROWS), tmp_path)
    problem = environment.problem(number)
    assert problem.question == ROWS[number]["prompt"]
    assert (environment.score(problem, right), environment.score(problem, wrong)) == (1.0, 0.0)
    assert environment.score(problem, "hm\n" * 40_000 + right) == 1.0, "as 32k tokens are"
    assert environment.score(problem, right + " " * (1 << 18)) == 0.0
    made = load_environment(EnvironmentConfig(name="reasoning_gym/chain_sum", params={"max_terms": 3})).problem(5)
    assert environment.score(environment.problem(4), f" {made.answer}\n") == 1.0
    assert environment.score(environment.problem(4), "17x") == 0.0


def deep(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (b"nonsense", "row 1: expected"),
        (b"[1]", "not a JSON object"),
        (b"", "row 1: EOF"),
        (deep(100_000), "row 1: recursion limit"),
        (b'{"a": ' + b"9" * 5000 + b"}", "row 1: "),
        (b'{"a": NaN}', "row 1: "),
        (b'{"prompt": "\\ud800"}', "row 1: "),
        ({**MATH, "problem_id": 5}, "`problem_id`"),
        ({**MATH, "problem_id": ""}, "`problem_id`"),
        ({**MATH, "prompt": ""}, "`prompt`"),
        ({**MATH, "verification_info": "[]"}, "`verification_info`"),
        ({**MATH, "verification_info": "{"}, "row 1: `verification_info` is text that is no JSON"),
        ({**MATH, "verification_info": {}}, "no `ground_truth`"),
        ({**MATH, "verification_info": {"ground_truth": ["1", "2"]}}, "no `ground_truth`"),
        ({**MATH, "verification_info": {"ground_truth": "1" * 5000}}, "5000 characters"),
        ({**MATH, "task_type": "llm_judgeable"}, "judged by a model"),
        ({**MATH, "task_type": "swe"}, "its task type is none of code_output_prediction"),
        ({**STDIN, "verification_info": {"language": "rust", "test_cases": [{}]}}, "'rust'"),
        ({**STDIN, "verification_info": {"test_cases": []}}, "no list of tests"),
        ({**STDIN, "verification_info": {"test_cases": [{"input": "1"}]}}, "lacks `input` or `output`"),
        ({**CALLS, "verification_info": {"inputs": [[1]], "outputs": []}}, "not lists of one length"),
        ({**GYM, "verification_info": {"dataset": "chain_sum", "seed": -1}}, "no `seed`"),
        ({**GYM, "verification_info": {"dataset": "../x", "seed": 1}}, "no `dataset`"),
        ({**MATH, "problem_id": "m1"}, "rows 0 and 1 have one problem_id"),
    ],
)
def test_a_hostile_row_is_named(tmp_path: Path, row: Any, said: str) -> None:
    with pytest.raises(IntegrityError, match=said):
        load_environment(written(tmp_path, [MATH, row]), tmp_path)


def test_other_bytes_than_the_hash_says_and_lines_that_are_cut_or_too_long_are_refused(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="it has 4194305 bytes"):
        read_row(b" " * (MAX_ROW_BYTES + 1), "here")
    for data, said in ((b"", "is empty"), (b"{}", "does not end with a line"), (b"PAR1", "also with Parquet")):
        with pytest.raises(IntegrityError, match=said):
            load_environment(kept(tmp_path, data, 1), tmp_path)
    config = written(tmp_path, ROWS)
    load_environment(config, tmp_path)
    path = content_path(tmp_path, config)
    path.write_bytes(path.read_bytes().replace(b"Half", b"Some"))
    with pytest.raises(IntegrityError, match="another SHA-256"):
        load_environment(config, tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rows": 4}, "has 5 rows, the configuration says 4"),
        ({"content": ""}, "names no `content`"),
        ({"content": "0" * 64}, "there is no data file"),
        ({"params": {"shuffle": 1}}, "no such parameter: `shuffle`"),
        ({"params": {"score_threshold": 2}}, "score_threshold"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(MusterError, match=said) as caught:
        load_environment(written(tmp_path, ROWS).model_copy(update=change), tmp_path)
    assert isinstance(caught.value, ConfigError)


def test_the_last_object_of_a_text_is_its_prediction() -> None:
    assert predicted_output('{"output": 1} then {"output": {"a": 2}}') == {"a": 2}
    for text in ("{" * 100_000 + "}", "}" * 100_000, '{"outputs": 1}', "none", ""):
        assert predicted_output(text) == NOTHING
