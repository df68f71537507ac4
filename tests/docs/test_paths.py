"""What documents name in the repository is there."""

import re
from pathlib import Path

import pytest

from benchmarks.__main__ import names
from tools.structure import ROOT

DOCUMENTS = [
    *sorted(ROOT.glob("docs/**/*.md")),
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
]
PATH = re.compile(r"[\w./-]+\.(py|sol|mjs)|[\w.-]+(/[\w.-]+)*/")
# Folders of a reader's own: of a model, an exported data set, a deployment.
PLACEHOLDERS = {"additional_chat_templates/", "manifests/", "tokenizer/", "config/", "config/targets/"}


def absent(text: str) -> list[str]:
    """Return the backticked paths, from the repository's root, that lead nowhere."""
    named = re.findall(r"`([^`\s]+)`", text)
    return [path for path in named if PATH.fullmatch(path) and path not in PLACEHOLDERS and not (ROOT / path).exists()]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_path_and_benchmark_is_there(document: Path) -> None:
    text = document.read_text()
    assert absent(text) == []
    assert set(re.findall(r"python -m benchmarks ([a-z_]+)", text)) <= {*names()}


def test_a_path_that_leads_nowhere_is_noticed() -> None:
    text = "`validator/daemon.py`, `docs/`, `rpc.py`, `no/folder/`, `contracts/src/No.sol`, `a.json`, `muster up`"
    assert absent(text) == ["rpc.py", "no/folder/", "contracts/src/No.sol"]
