"""Families that were measured are kept, and measured again only when asked for."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import families
from benchmarks.families import FAMILIES, Family

NAMES = [family.name for family in FAMILIES]


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The families that were really measured, in order; the third is interrupted."""
    names: list[str] = []

    def measure(family: Family, engines: Sequence[str], rollouts: int, say: Callable[[str], None]) -> dict[str, Any]:
        names.append(family.name)
        if len(names) == 3:
            raise KeyboardInterrupt
        return {"name": family.name, "rollouts": rollouts, "run": len(names)}

    monkeypatch.setattr(families, "measure", measure)
    monkeypatch.setattr(families, "KEPT", tmp_path / "families.json")
    return names


def kept() -> list[str]:
    return [entry["name"] for entry in json.loads(families.KEPT.read_bytes())["families"]]


def test_an_interrupted_benchmark_goes_on_with_the_family_where_it_was(measured: list[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        families.run(False, print)
    assert kept() == NAMES[:2]
    whole = families.run(False, print, resume=True)["families"]
    assert measured == [*NAMES[:3], *NAMES[2:]]
    assert [entry["name"] for entry in whole] == kept() == NAMES


def test_one_family_is_measured_again_and_the_others_are_kept(measured: list[str]) -> None:
    families.KEPT.write_text(json.dumps({"families": [{"name": name, "run": 0} for name in NAMES[:2]]}))
    families.run(False, print, only=NAMES[0])
    assert measured == NAMES[:1]
    assert [entry["run"] for entry in json.loads(families.KEPT.read_bytes())["families"]] == [1, 0]


def test_a_quick_run_is_not_kept(measured: list[str]) -> None:
    families.run(True, print)
    assert measured == NAMES[:2]
    assert not families.KEPT.exists()
