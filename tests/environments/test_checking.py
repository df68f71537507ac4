"""Screening a file: rows that can be asked and verified are kept as they stand, others are named with the reason."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from environments.checking import Screen, screen_file
from protocol.config import MAX_ROW_BYTES
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


def test_parquet_is_screened_to_json_lines_that_a_pool_takes(tmp_path: Path) -> None:
    columns = ("problem_id", "task_type", "prompt", "verification_info", "gold_standard_solution")
    table = {name: [one[name] if isinstance(one[name], str) else json.dumps(one[name]) for one in PROVEN]
             for name in columns}  # fmt: skip
    table["problem_id"][1] = table["problem_id"][0]
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    _, dropped = screen_file(tmp_path / "rows.parquet", tmp_path / "out", tmp_path / "bad", Screen(), print)
    assert dropped == {"repeated": 1}
    rows = [json.loads(line) for line in (tmp_path / "out").read_bytes().splitlines()]
    assert written(tmp_path, rows).rows == 3
