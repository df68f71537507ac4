"""What a round costs does not grow with the rounds that were made before it."""

import json
from pathlib import Path
from typing import Any

import pytest

from swarm import state
from swarm.state import JOURNAL, MemberProgress, read_journal


def line(number: int, **more: Any) -> dict[str, Any]:
    return {"round": number, "shared": [], **more}


def rounds(path: Path) -> list[int]:
    return [one["round"] for one in read_journal(path)]


def test_a_round_costs_no_reading_of_those_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress, path = MemberProgress(tmp_path, 1), tmp_path / JOURNAL
    path.write_bytes(b"".join(json.dumps(line(number)).encode() + b"\n" for number in range(5)) + b'{"cut o')
    progress._append([line(3), line(4), line(5)])
    assert rounds(path) == list(range(6)), "the first time, what a kill left is mended"
    monkeypatch.setattr(state, "read_journal", None)
    monkeypatch.setattr(Path, "read_bytes", None)
    for number in range(3):
        progress._append([line(5 + number), line(6 + number, text="x" * 100_000 * number)])
    monkeypatch.undo()
    assert rounds(path) == list(range(9))
    assert path.read_bytes().endswith(b"\n")


def test_a_cut_first_line_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL
    path.write_bytes(b'{"round": 0, "sh')
    MemberProgress(tmp_path, 1)._append([line(0)])
    assert rounds(path) == [0]


def test_what_kills_left_of_policies_and_checkpoints_is_removed(tmp_path: Path) -> None:
    """Each is as large as the model."""
    left = [tmp_path / ".policy.0123456789ab.old", tmp_path / "checkpoints" / ".step-000001.0123456789ab"]
    kept = [tmp_path / "policy", tmp_path / "outbox"]
    progress = MemberProgress(tmp_path, 1)
    for folder in (*left, *kept):
        folder.mkdir()
        (folder / "file").write_bytes(b"1")
    progress.resume(None, None)  # type: ignore[arg-type]
    assert [folder.exists() for folder in (*left, *kept)] == [False, False, True, True]
