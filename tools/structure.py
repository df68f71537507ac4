"""`python -m tools.structure`: check the import rules of tools/import_law.py; exit 1 on any breach or circle."""

import sys
from pathlib import Path

from tools.import_law import breaches, circles
from tools.sources import ROOT, read_sources


def report(root: Path) -> list[str]:
    """Return every breach of the import rules, in words."""
    python = read_sources(root)
    wrong = [f"against the import rules: {breach}" for breach in breaches(python)]
    return wrong + [f"import circle: {circle}" for circle in circles(python)]


if __name__ == "__main__":
    wrong = report(ROOT)
    print("\n".join(wrong) or "structure: every import follows the rules")
    sys.exit(1 if wrong else 0)
