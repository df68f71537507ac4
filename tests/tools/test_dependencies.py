"""pyproject.toml names what is imported, and the check of that sees what it is for."""

import shutil
from pathlib import Path

from tools.dependencies import breaches
from tools.sources import ROOT


def test_every_import_is_declared_and_every_range_holds_the_pinned_version() -> None:
    assert breaches(ROOT) == []


def test_an_undeclared_an_unused_and_a_wrongly_pinned_package_are_named(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "requirements.in"):
        shutil.copy(ROOT / name, tmp_path / name)
    requirements = tmp_path / "requirements.in"
    requirements.write_text(requirements.read_text().replace("tenacity==9", "tenacity==8"))
    (tmp_path / "chain").mkdir()
    (tmp_path / "chain" / "new.py").write_text("import tenacity\ndef late():\n    from nobody.knows import this\n")
    found = breaches(tmp_path)
    assert "chain/new.py imports nobody, which pyproject.toml does not name" in found
    assert "pyproject.toml names httpx, which nothing imports" in found
    assert not any("tenacity, which" in one for one in found)
    assert [one for one in found if "pins tenacity to 8" in one]
