"""README's figures are those of the results files."""

import json
from typing import Any

import pytest

from tools.structure import ROOT


def measured(name: str) -> Any:
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())


FIGURES: list[tuple[str, list[str]]] = [
    (
        "Proofs",
        [f"{measured('toploc')['equal']:,} of", f"{min(measured('toploc')['build_ratio'].values()):.1f} times"],
    ),
    ("Checking", [f"{measured('validator')['ratio_quarter']:.1f} times"]),
    ("Honest work", [f"{measured('honest')['rejected']} of {measured('honest')['rollouts']:,}"]),
    (
        "Training",
        [f"{measured('trainer')[key]:.{digits}f}" for key, digits in (("tokens_ratio", 1), ("memory_ratio", 2))],
    ),
    ("Weights", [f"{measured('codec')['ratios']['1e-5']:.1f} times"]),
    ("Several machines", [f"{measured('diloco')['bytes_ratio']['int8']:.0f} times"]),
    ("Crashes", [f"{measured('resume')['kills']} kills"]),
]


@pytest.mark.parametrize(("topic", "figures"), FIGURES)
def test_a_headline_result_is_what_was_measured(topic: str, figures: list[str]) -> None:
    (row,) = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(f"| {topic} |")]
    assert [figure for figure in figures if figure not in row] == []


def test_claims_without_a_figure_hold() -> None:
    assert measured("toploc")["different"] == 0
    assert measured("resume")["bit_equal"] is True
    assert measured("resume")["repeated"] == 0


def test_no_row_has_a_figure_that_nothing_checks() -> None:
    _, after = (ROOT / "README.md").read_text().split("## What was measured\n")
    rows = [line.split(" | ")[0].removeprefix("| ") for line in after.split("##")[0].strip().splitlines()[2:]]
    assert rows == [topic for topic, _ in FIGURES]
