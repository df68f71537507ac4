"""What a requirement comes to by the reports of different versions of pip."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from environments.verifiers import install
from protocol.errors import ConfigError

NAME = "sums-1.0+local-py3-none-any.whl"


def _reporting(monkeypatch: pytest.MonkeyPatch, url: str, archive: dict[str, Any]) -> None:
    """Let pip report one distribution."""
    about = {"metadata": {"name": "sums", "version": "1.0"}, "download_info": {"url": url, "archive_info": archive}}

    def pip(arguments: list[str], what: str, hint: str) -> None:
        Path(arguments[arguments.index("--report") + 1]).write_text(json.dumps({"install": [about]}))

    monkeypatch.setattr(install, "_pip", pip)


@pytest.mark.parametrize("archive", [{}, {"hash": "sha256=" + "0" * 64}, {"hashes": {"sha256": "0" * 64}}])
def test_the_hash_of_a_local_wheel_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archive: dict[str, Any]
) -> None:
    wheel, kept = tmp_path / "with space" / NAME, tmp_path / "kept"
    wheel.parent.mkdir()
    wheel.write_bytes(b"a wheel")
    _reporting(monkeypatch, wheel.as_uri(), archive)
    (locked,) = install.resolve("sums==1.0+local", [wheel], False, kept)
    assert (locked.sha256, locked.file, locked.carried) == (hashlib.sha256(b"a wheel").hexdigest(), NAME, True)
    assert (kept / locked.sha256).read_bytes() == b"a wheel"


def test_the_hash_of_an_index_is_read_in_both_spellings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, digest = "https://index.example/sums-1.0-py3-none-any.whl", "1" * 64
    for archive in ({"hash": f"sha256={digest}"}, {"hashes": {"sha256": digest}}):
        _reporting(monkeypatch, url, archive)
        (locked,) = install.resolve("sums==1.0", [], False, tmp_path)
        assert (locked.sha256, locked.carried) == (digest, False)
    _reporting(monkeypatch, url, {})
    with pytest.raises(ConfigError, match="no SHA-256 of sums-1"):
        install.resolve("sums==1.0", [], False, tmp_path)
