"""Screening a file: rows that can be asked and verified are kept as they stand, others are named with the reason."""

import io
import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from environments.checking import Screen, screen_file
from environments.registry import load_environment
from environments.row_formats import json_rows
from protocol.config import MAX_ROW_BYTES
from protocol.errors import IntegrityError
from tests.environments.test_genesys import CALLS, GYM, MATH, OUTPUT, STDIN, written

PROVEN: list[dict[str, Any]] = [
    {**MATH, "gold_standard_solution": "It is $\\frac{1}{2}$."},
    {**STDIN, "gold_standard_solution": "```python\nprint(2 * int(input()))\n```"},
    {**CALLS, "prompt": "Double a number.", "gold_standard_solution": "def double(x):\n    return 2 * x"},
    {**OUTPUT, "gold_standard_solution": '{"output": [1, true]}'},
]
"""References in the forms in which people write them."""


def screened(folder: Path, rows: list[Any], checks: Screen) -> tuple[list[Any], list[tuple[int, str]], Counter[str]]:
    """What is kept, the numbers of the others with their reasons, and how many of which reason."""
    path, out, refused = (folder / name for name in ("rows.jsonl", "out.jsonl", "refused.jsonl"))
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    by_type, dropped = screen_file(path, out, refused, checks, print)
    kept = [json.loads(line) for line in out.read_bytes().splitlines()]
    bad = [json.loads(line) for line in refused.read_bytes().splitlines()]
    assert all(f"row {one['row']}" in one["what"] for one in bad)
    assert by_type.total() == len(kept)
    return kept, [(one["row"], one["reason"]) for one in bad], dropped


def test_rows_with_references_of_every_form_are_kept_and_others_unless_they_are_asked_for(tmp_path: Path) -> None:
    kept, refused, _ = screened(tmp_path, PROVEN, Screen(proven=True))
    assert (kept, refused) == (PROVEN, []), "as they stand"
    assert screened(tmp_path, [STDIN, GYM], Screen())[0] == [STDIN, GYM]
    assert screened(tmp_path, [STDIN, GYM], Screen(proven=True))[1] == [(0, "unproven"), (1, "unproven")]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b'{"problem_id": 1}', "schema"),
        ({**MATH, "problem_id": "j", "task_type": "llm_judgeable"}, "schema"),
        (b'{"problem_id": "' + b"x" * 3 * MAX_ROW_BYTES + b'"}', "schema"),
        ({**OUTPUT, "problem_id": "m1", "prompt": "Another?"}, "repeated"),
        ({**OUTPUT, "problem_id": "o2", "prompt": "  Half of\none?"}, "repeated"),
        ({**OUTPUT, "problem_id": "o2", "prompt": "Long? " * 9}, "long"),
        ({**PROVEN[1], "problem_id": "c3", "gold_standard_solution": "```python\nprint(9)\n```"}, "wrong"),
        ({**MATH, "problem_id": "m2", "prompt": "?", "verification_info": {"ground_truth": "$ $"}}, "schema"),
        ({**MATH, "problem_id": "m2", "prompt": "?", "verification_info": {"ground_truth": "1, \\dots, n"}}, "schema"),
        ({**MATH, "problem_id": "m2", "prompt": "Is it \\boxed{0.5}?"}, "given"),
        ({**STDIN, "problem_id": "c3", "prompt": "Thrice?"}, "unproven"),
    ],
)
def test_a_row_that_cannot_be_used_is_dropped_and_named(tmp_path: Path, row: Any, reason: str) -> None:
    checks = Screen(lambda problem: len(problem.question) < 40, proven=True)
    kept, refused, dropped = screened(tmp_path, [PROVEN[0], row, PROVEN[3]], checks)
    assert kept == [PROVEN[0], PROVEN[3]]
    assert refused == [(1, reason)]
    assert dropped == {reason: 1}
    wrong = {**PROVEN[1], "gold_standard_solution": "```python\nprint(9)\n```"}
    kept, refused, _ = screened(tmp_path, [wrong, PROVEN[1], PROVEN[1]], Screen())
    assert (kept, refused) == ([PROVEN[1]], [(0, "wrong"), (2, "repeated")])


def packed(rows: list[dict[str, Any]], **options: Any) -> bytes:
    """A Parquet file as such files are: what is an object is a text that holds JSON; what a row lacks is null."""
    names = dict.fromkeys(name for row in rows for name in row)
    texts = [{name: json.dumps(cell) if isinstance(cell, dict) else cell for name, cell in row.items()} for row in rows]
    table = pa.table({name: pa.array([row.get(name) for row in texts]) for name in names})
    out = io.BytesIO()
    pq.write_table(table.append_column("embedding", pa.array([[1.0]] * len(rows))), out, **options)
    return out.getvalue()


def from_parquet(folder: Path, data: bytes) -> tuple[list[Any], Counter[str]]:
    path, out = folder / "rows.parquet", folder / "out"
    path.write_bytes(data)
    _, dropped = screen_file(path, out, folder / "bad", Screen(), print)
    return [json.loads(line) for line in out.read_bytes().splitlines()], dropped


@pytest.mark.parametrize("options", [{"compression": "zstd", "row_group_size": 2}, {"version": "1.0"}])
def test_parquet_is_screened_to_json_lines_that_a_pool_takes(tmp_path: Path, options: dict[str, Any]) -> None:
    rows, dropped = from_parquet(tmp_path, packed([PROVEN[0], *PROVEN], **options))
    assert dropped == {"repeated": 1}
    assert load_environment(written(tmp_path, rows), tmp_path).problem(0).question == MATH["prompt"]
    nested = pa.table({name: [cell] for name, cell in MATH.items()})
    pq.write_table(nested, tmp_path / "nested")
    assert from_parquet(tmp_path, (tmp_path / "nested").read_bytes())[0] == [MATH], "objects as columns of columns"
    binary = {name: [cell.encode() if isinstance(cell, str) else cell] for name, cell in MATH.items()}
    pq.write_table(pa.table(binary | {"difficulty": [math.nan], "image": [b"\xff\xd8"]}), tmp_path / "binary")
    (row,) = from_parquet(tmp_path, (tmp_path / "binary").read_bytes())[0]
    assert {name: row[name] for name in row if name != "image"} == MATH, "texts as bytes, not a number"


def test_an_array_on_one_line_may_be_longer_than_a_row(tmp_path: Path) -> None:
    path, long = tmp_path / "rows.json", [{"problem_id": str(n), "of": "x" * (MAX_ROW_BYTES // 4)} for n in range(6)]
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(long).encode())
    assert [json.loads(row) for row in json_rows(path)] == long


def test_damaged_files_are_refused_or_are_whole(tmp_path: Path) -> None:
    data, draw, refused = packed(PROVEN, compression="zstd"), random.Random(7), 0
    for _ in range(6):
        damaged = bytearray(data)
        for _ in range(3):
            damaged[draw.randrange(4, len(data))] ^= 1 << draw.randrange(8)
        try:
            from_parquet(tmp_path, bytes(damaged))
        except IntegrityError:
            refused += 1
    assert refused > 2
    with pytest.raises(IntegrityError, match="refuses it"):
        from_parquet(tmp_path, data[:-9])
