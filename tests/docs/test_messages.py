"""What the guides' tables quote as messages is what the code prints."""

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tools.structure import ROOT

GUIDES = sorted(ROOT.glob("docs/guides/*.md"))
HEADERS = ("| Message |", "| Symptom |", "| You see |")
VALUE = "\0"  # in place of what a template fills in
FORMAT = re.compile(r"%[-+#0 ]?[\d.]*[sdrfgx]")
BLANK = re.compile(r"(?:0x)?…|\b[NPXY]\b|\b\d+(?:\.\d+)?\b")  # in place of a value that a guide leaves out


def quotations(guide: str) -> list[str]:
    """Return what the first column of the tables of messages quotes, without backticks inside."""
    quoted, in_table = list[str](), False
    for line in guide.splitlines():
        in_table = line.startswith(HEADERS) or (in_table and line.startswith("|"))
        if in_table:
            cell = line.split("|")[1]
            quoted += [double or single for double, single in re.findall(r"``(.+?)``(?!`)|`([^`]+)`", cell)]
    return [one.replace("`", "").strip() for one in quoted]


def templates(source: str) -> Iterable[str]:
    """Return the texts of a Python file with VALUE for each value that they take, without backticks."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield FORMAT.sub(VALUE, node.value).replace("`", "")
        elif isinstance(node, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values]
            yield "".join(parts).replace("`", "")


def printed(quotation: str, code: str) -> bool:
    """Tell whether lines of the code's texts have the quotation: one all of it, or several its parts between `: ; `."""
    if _found(quotation, code):
        return True
    parts = [part for part in re.split("[:;] ", quotation) if re.search(r"\w", BLANK.sub("", part))]
    return len(parts) > 1 and all(_found(part, code) for part in parts)


def _found(quotation: str, code: str) -> bool:
    literals = [re.escape(literal) for literal in BLANK.split(quotation)]
    return re.search("[^\n]*".join(literals), code) is not None


@pytest.fixture(scope="module")
def code() -> str:
    folders = [path for path in ROOT.iterdir() if (path / "__init__.py").is_file() and path.name != "tests"]
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    errors = [name for file in ROOT.glob("contracts/src/**/*.sol") for name in _errors(file)]
    return "\n".join([one.replace("\n", " ") for file in files for one in templates(file.read_text())] + errors)


def _errors(contract: Path) -> list[str]:
    return re.findall(r"\berror (\w+)\(", contract.read_text())


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)
def test_every_quoted_message_is_printed(guide: Path, code: str) -> None:
    assert [one for one in quotations(guide.read_text()) if not printed(one, code)] == []


def test_a_message_that_nothing_prints_is_noticed() -> None:
    table = (
        "| Message | What to do |\n|---|---|\n| `no work lease: …` | wait |\n| ``file N is `lost` `` | wait |\n\n`x`\n"
    )
    assert quotations(table) == ["no work lease: …", "file N is lost"]
    code = "\n".join(templates("f'no lease: {why}'\n'file %d is `lost`'"))
    assert [printed(one, code) for one in quotations(table)] == [False, True]
