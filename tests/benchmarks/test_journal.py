"""Journals that a kill cuts off in the middle of a line."""

from pathlib import Path

import pytest

from benchmarks.journal import append, lines, resumed


@pytest.mark.parametrize("cut", ['{"done": 2', "{", '{"done": 2}'])
def test_half_a_line_is_left_out_and_nothing_is_written_behind_it(tmp_path: Path, cut: str) -> None:
    journal = tmp_path / "slices.jsonl"
    append(journal, {"done": 1})
    journal.write_text(journal.read_text() + cut)
    assert lines(journal) == [{"done": 1}]
    assert journal.read_text().endswith(cut)
    assert resumed(journal) == [{"done": 1}]
    append(journal, {"done": 3})
    assert lines(journal) == [{"done": 1}, {"done": 3}]


def test_no_journal_yet(tmp_path: Path) -> None:
    assert resumed(tmp_path / "new" / "journal.jsonl") == []
