"""A file of a member's home that is damaged is named, with how to mend it."""

from pathlib import Path

from swarm.state import MemberProgress


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
