"""Data files in GENESYS's schema: scores by task type, hostile rows and files named, the right bytes or none."""

import hashlib
import io
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from environments import parquet
from environments.genesys import NOTHING, predicted_output, read_row
from environments.parquet import is_parquet
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
    for data in (b"", b"{}"):
        with pytest.raises(IntegrityError, match="does not end with a line"):
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


# Parquet files in GENESYS's schema: the same problems as from JSON lines; hostile files are refused within bounds.


def texts(rows: list[dict[str, Any]]) -> pa.Table:
    """As such files have it: what is an object is a text that holds JSON; what a row lacks is null."""
    names = dict.fromkeys(name for row in rows for name in row)
    as_text = [{n: json.dumps(v) if isinstance(v, dict) else v for n, v in row.items()} for row in rows]
    return pa.table({name: pa.array([row.get(name) for row in as_text]) for name in names})


def packed(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "zstd", "row_group_size": 2},
        {"compression": "snappy", "use_dictionary": False},
        {"version": "1.0"},
    ],
)
def test_it_holds_the_same_problems_as_json_lines(tmp_path: Path, options: dict[str, Any]) -> None:
    rows = [*ROWS, {**MATH, "problem_id": "é語\n", "in_source_id": "7", "gold_standard_solution": "0.5"}]
    unknown = texts(rows).append_column("embedding", pa.array([[1.0]] * len(rows)))
    environment = load_environment(kept(tmp_path, packed(unknown, **options), len(rows)), tmp_path)
    (tmp_path / "lines").mkdir()
    other = load_environment(written(tmp_path / "lines", rows), tmp_path / "lines")
    assert [environment.problem(n) for n in range(len(rows))] == [other.problem(n) for n in range(len(rows))]
    assert environment.score(environment.problem(0), "\\boxed{0.5}") == 1.0


def test_it_is_unpacked_again_when_its_rows_are_altered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = kept(tmp_path, packed(texts([MATH])), 1)
    load_environment(config, tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(parquet, "unpack", lambda *_: pytest.fail("unpacked twice"))
        patched.setattr("environments.genesys.unpack", parquet.unpack)
        load_environment(config, tmp_path)
    rows = tmp_path / f"{config.content}.rows"
    whole = rows.read_bytes()
    rows.write_bytes(whole.replace(b"Half", b"Some"))
    assert load_environment(config, tmp_path).problem(0).question == MATH["prompt"]
    assert rows.read_bytes() == whole


TWICE = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["prompt", "prompt"])
NESTED = texts([MATH]).drop(["verification_info"])
NESTED = NESTED.append_column("verification_info", pa.array([{"ground_truth": "1"}]))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (texts([MATH, {**OUTPUT, "task_type": "swe"}]), "row 1: its task type is none of"),
        (texts([MATH, MATH]), "rows 0 and 1 have one problem_id"),
        (texts([MATH, {**MATH, "problem_id": None}]), "row 1: `problem_id`: Field required"),
        (texts([MATH]).slice(0, 0), "it has 0 rows"),
        (texts([{**STDIN, "prompt": "x" * (4 << 20)}]), "row 0 has 4194"),
        (texts([MATH]).set_column(1, "task_type", pa.array([7])), "its column task_type is int64, not text"),
        (NESTED, "its column verification_info is struct<ground_truth: string>, not text"),
        (TWICE, "two columns of one name"),
        (pa.table({"other": ["a"]}), "row 0: `problem_id`: Field required"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_named(tmp_path: Path, table: pa.Table, said: str) -> None:
    config = kept(tmp_path, packed(table), max(1, table.num_rows))
    with pytest.raises(IntegrityError, match=said):
        load_environment(config, tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} <= {"", ".rows"}


def bomb(rows: int, length: int) -> bytes:
    """So many rows of one text: a dictionary of a few kilobytes when they are packed."""
    same = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), ["x" * length])
    data = packed(pa.table({"prompt": same}), compression="zstd", store_schema=False)
    assert len(data) < 1 << 16
    return data


@pytest.mark.parametrize(
    ("rows", "length", "said"),
    [(1 << 16, 1 << 13, "unpacks to more than 268435456 bytes"), (256, 1 << 24, "row 0 has|MiB to unpack|refuses it")],
)
def test_a_bomb_is_refused(tmp_path: Path, rows: int, length: int, said: str) -> None:
    with pytest.raises(IntegrityError, match=said):
        load_environment(kept(tmp_path, bomb(rows, length), rows), tmp_path)


def test_damaged_files_are_refused_or_are_whole(tmp_path: Path) -> None:
    data, draw, refused = packed(texts(ROWS), compression="zstd"), random.Random(7), 0
    for _ in range(6):
        damaged = bytearray(data)
        for _ in range(3):
            damaged[draw.randrange(4, len(data))] ^= 1 << draw.randrange(8)
        path = content_path(tmp_path, config := kept(tmp_path, bytes(damaged), len(ROWS)))
        assert is_parquet(path)
        try:
            load_environment(config, tmp_path)
        except IntegrityError:
            refused += 1
    assert refused > 2
    with pytest.raises(IntegrityError, match="refuses it"):
        load_environment(kept(tmp_path, data[:-9], len(ROWS)), tmp_path)
