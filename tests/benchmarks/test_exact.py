"""What is kept of the files that exact arithmetic was tried on, and what becomes of them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import exact


def measured(name: str, seconds: float) -> dict[str, Any]:
    return {"tokens": 90, "differing": int(name == "plain"), "decode_seconds": seconds, "prefill_seconds": 2 * seconds}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, str, int]]:
    """The files that were measured; the exact engine takes three times as long, and twice that after the second."""
    found = []

    def measure(folder: Path, name: str, dtype: str, number: int) -> dict[str, Any]:
        found.append((name, dtype, number))
        return measured(name, (3.0 if number < 2 else 60.0) if name == "exact" else 1.0)

    monkeypatch.setattr(exact, "measure", measure)
    monkeypatch.setattr(exact, "FILES", {"exact": 5, "plain": 2})
    monkeypatch.setattr(exact, "base_model", lambda *_, **__: tmp_path)
    monkeypatch.setattr(exact, "KEPT_RUNS", tmp_path / "exact_runs.jsonl")
    return found


def test_a_finished_file_is_a_line_and_is_not_made_again(made: list[Any]) -> None:
    whole = exact.run(False, print)
    assert (whole["made"], whole["tokens"], whole["differing"], whole["left"]) == (100, 900, 0, 0)
    assert len(made) == len(set(made)) == 14
    path = exact.KEPT_RUNS
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:9]) + lines[9][:-5])  # a kill in the middle of the tenth
    assert exact.run(False, print, resume=True) == whole
    assert made[14:] == made[9:14]
    assert path.read_text() == "".join(lines)
    exact.run(False, print)
    assert len(made) == 19 + 14, "without --resume all are made anew"


def test_files_of_another_build_of_torch_do_not_count(made: list[Any]) -> None:
    exact.run(False, print)
    path = exact.KEPT_RUNS
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {line["torch"] for line in lines} == {torch.__version__}
    lines[3]["torch"] = "1.0"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    exact.run(False, print, resume=True)
    assert made[14:] == [made[3]]


def test_engines_are_compared_by_the_files_that_both_made(made: list[Any]) -> None:
    for run in exact.run(False, print)["runs"]:
        assert run["files"] == (5 if run["engine"] == "exact" else 2)
        slowdowns = {run["decode_slowdown"], run["prefill_slowdown"]}
        assert slowdowns == ({3.0} if run["engine"] == "exact" else {1.0})
