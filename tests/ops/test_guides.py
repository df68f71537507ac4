"""Commands and figures of the guides are those of the command line and of the benchmark."""

import json
import re
from pathlib import Path

import pytest

from tests.ops.commands import problem

ROOT = Path(__file__).parents[2]
GUIDES = sorted(path for folder in ("start", "guides") for path in (ROOT / "docs" / folder).glob("*.md"))


def commands(text: str) -> list[str]:
    """Every `muster …` of code blocks and of code in the text; lines that a backslash continues are one."""
    joined = text.replace("\\\n", " ")
    blocks = re.findall(r"^```(?:sh)?\n(.*?)^```", joined, re.MULTILINE | re.DOTALL)
    found = [line.strip() for block in blocks for line in block.splitlines()]
    found += re.findall(r"`(muster [^`\n]+)`", re.sub(r"^```.*?^```", "", joined, flags=re.MULTILINE | re.DOTALL))
    return [re.sub(r"[\[\]]", "", line) for line in found if line.startswith("muster ")]


PAIRS = [(guide.stem, line) for guide in GUIDES for line in commands(guide.read_text())]


def test_the_guides_hold_commands() -> None:
    assert len(PAIRS) > 80
    assert {guide for guide, _ in PAIRS} >= {"demo", "operations", "base", "troubleshooting"}


@pytest.mark.parametrize(("guide", "command"), PAIRS)
def test_every_command_of_a_guide_is_one(guide: str, command: str) -> None:
    assert problem(command) == ""


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("muster nod up", "no command nod"),
        ("muster node upp", "no command upp"),
        ("muster node up --pol URL", "No such option: --pol (Possible options: --pool, --rpc)"),
        ("muster node up --pool", "Option '--pool' requires an argument."),
        ("muster node up URL", "URL is too much"),
        ("muster why 17 --pool 1", ""),
        ("muster node up --pool=URL # a comment", ""),
    ],
)
def test_a_command_that_is_none_is_noticed(command: str, says: str) -> None:
    assert problem(command) == says


def test_the_guide_has_the_benchmarks_gas() -> None:
    measured = json.loads((ROOT / "benchmarks" / "results" / "gas.json").read_text())
    text = (ROOT / "docs" / "guides" / "base.md").read_text()
    rows = re.findall(r"^\|[^|]+\| `(\w+)`[^|]*\| ([\d,]+) \| ([\d.]+) \|$", text, re.MULTILINE)
    assert len(rows) == 9
    for name, gas, ether in rows:
        said = int(gas.replace(",", ""))
        assert abs(said / measured[name]["gas"] - 1) < 0.1, f"{name}: {measured[name]['gas']} gas now"
        assert float(ether) == pytest.approx(said * 0.01e-9, abs=0.6e-7)
    (whole,) = re.findall(r"`life_lane16`: ([\d,]+) gas", text)
    assert abs(int(whole.replace(",", "")) / measured["life_lane16"]["gas"] - 1) < 0.1
