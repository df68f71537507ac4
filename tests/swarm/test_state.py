"""What a round costs does not grow with the rounds that were made before it."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from swarm import state
from swarm.state import MemberProgress, append, read_journal


def line(number: int, **more: Any) -> dict[str, Any]:
    return {"round": number, "shared": [], **more}


class CountingFile(io.BytesIO):
    """Counts what is read of it."""

    taken = 0

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.taken += len(found)
        return found


@pytest.mark.parametrize("longest", [10, 100_000])
def test_a_long_journal_costs_as_much_as_its_last_lines(longest: int) -> None:
    lines = [*(line(number) for number in range(100_000)), line(100_000, text="x" * longest)]
    whole = b"".join(json.dumps(one).encode() + b"\n" for one in lines)
    file = CountingFile(whole)
    assert state._last_line(file) == (len(whole), 100_000)
    assert file.taken < (1 << 16) + 8 * longest < len(whole) / 2


def test_what_is_not_the_end_of_a_journal_is_not_parsed(tmp_path: Path) -> None:
    """Its beginning could not be read here at all."""
    path = tmp_path / "journal.jsonl"
    whole = b"".join(json.dumps(line(number)).encode() + b"\n" for number in range(5000))
    path.write_bytes(b"\0" * 1000 + b"\n" + whole + b'{"cut o')
    append(path, [line(4998), line(4999), line(5000)])
    path.write_bytes(path.read_bytes()[1001:])
    assert [one["round"] for one in read_journal(path)] == list(range(5001))


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 16])
def test_lines_longer_than_what_is_read_first(tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_BLOCK", block)
    path = tmp_path / "journal.jsonl"
    for number in range(4):
        append(path, [line(number, text="x" * 300 * number)])
        append(path, [line(number)])
        with path.open("ab") as file:
            file.write(b'{"round": 7' * number)
    append(path, [])
    assert [one["round"] for one in read_journal(path)] == list(range(4))
    assert path.read_bytes().endswith(b"\n")


def test_a_cut_first_line_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"round": 0, "sh')
    append(path, [line(0)])
    assert [one["round"] for one in read_journal(path)] == [0]


# Leftovers of kills


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
