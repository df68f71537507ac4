"""A folder is put in place whole, whatever kills have left beside it."""

import shutil
from functools import partial
from pathlib import Path

import pytest

from protocol.files import remove_leftovers, write_folder


class KilledError(Exception):
    """Stands for the end of the process."""


def fill(text: str, folder: Path) -> None:
    for name in ("one", "two"):
        (folder / name).write_text(text)


def killed_while_the_old_one_is_removed(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a folder there whose predecessor is removed in part only."""
    remove = shutil.rmtree

    def half(path: Path, ignore_errors: bool = False) -> None:
        if path.name.endswith(".old"):
            (path / "one").unlink()
            raise KilledError
        remove(path, ignore_errors)

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", half)
        with pytest.raises(KilledError):
            write_folder(target, partial(fill, "second"))


def test_a_kill_while_the_old_folder_is_removed_hinders_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = write_folder(tmp_path / "policy", partial(fill, "first"))
    killed_while_the_old_one_is_removed(target, monkeypatch)
    assert (target / "two").read_text() == "second"
    for text in ("third", "fourth"):
        write_folder(target, partial(fill, text))
        assert {path.read_text() for path in target.iterdir()} == {text}
    (left,) = (path for path in tmp_path.iterdir() if path != target)
    assert [path.name for path in left.iterdir()] == ["two"]
    remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == [target]


def test_what_is_not_filled_is_not_put_there(tmp_path: Path) -> None:
    target = write_folder(tmp_path / "policy", partial(fill, "first"))

    def broken(aside: Path) -> None:
        fill("second", aside)
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        write_folder(target, broken)
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]
    assert (target / "one").read_text() == "first"
