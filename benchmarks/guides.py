"""The commands of the guides: the fenced blocks below a heading, read from the documents themselves."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def commands(guide: str, heading: str) -> list[str]:
    """The `muster …` lines of the first fenced block below a heading of docs/<guide>.md; lines that a backslash
    continues are one. Raises LookupError where there is none."""
    text = (DOCS / f"{guide}.md").read_text().replace("\\\n", " ")
    _, found, below = text.partition(f"\n{heading}\n")
    block = re.search(r"^```(?:sh)?\n(.*?)^```", below, re.MULTILINE | re.DOTALL)
    if not found or block is None:
        raise LookupError(f"{guide}.md has no commands below {heading!r}")
    lines = [line.partition(" #")[0].strip() for line in block[1].splitlines()]
    return [line for line in lines if line.startswith("muster ")]
