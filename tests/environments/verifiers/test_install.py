"""What a requirement comes to by the reports of different versions of pip."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from environments.verifiers import install
from protocol.errors import ConfigError

NAME = "sums-1.0+local-py3-none-any.whl"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "with space" / NAME
    path.parent.mkdir()
    path.write_bytes(b"a wheel")
    return path


def _reporting(monkeypatch: pytest.MonkeyPatch, url: str, archive: dict[str, Any]) -> None:
    """Let pip report one distribution."""
    about = {"metadata": {"name": "sums", "version": "1.0"}, "download_info": {"url": url, "archive_info": archive}}

    def pip(arguments: list[str], what: str, hint: str) -> None:
        Path(arguments[arguments.index("--report") + 1]).write_text(json.dumps({"install": [about]}))

    monkeypatch.setattr(install, "_pip", pip)


@pytest.mark.parametrize("archive", [{}, {"hash": "sha256=" + "0" * 64}, {"hashes": {"sha256": "0" * 64}}])
def test_the_hash_of_a_local_wheel_is_computed_whatever_pip_reports(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archive: dict[str, Any]
) -> None:
    _reporting(monkeypatch, wheel.as_uri(), archive)
    (locked,) = install.resolve("sums==1.0+local", [wheel], False, tmp_path / "kept")
    assert (locked.sha256, locked.file, locked.carried) == (hashlib.sha256(b"a wheel").hexdigest(), NAME, True)
    assert (tmp_path / "kept" / locked.sha256).read_bytes() == b"a wheel"


@pytest.mark.parametrize("archive", [{"hash": "sha256=" + "1" * 64}, {"hashes": {"sha256": "1" * 64}}])
def test_a_hash_is_read_in_both_spellings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archive: dict[str, Any]
) -> None:
    _reporting(monkeypatch, "https://index.example/sums-1.0-py3-none-any.whl", archive)
    (locked,) = install.resolve("sums==1.0", [], False, tmp_path)
    assert (locked.sha256, locked.carried) == ("1" * 64, False)


def test_a_wheel_without_a_hash_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _reporting(monkeypatch, "https://index.example/sums-1.0-py3-none-any.whl", {})
    with pytest.raises(ConfigError, match="no SHA-256 of sums-1"):
        install.resolve("sums==1.0", [], False, tmp_path)
