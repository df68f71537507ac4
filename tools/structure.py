"""The limits of our code's structure, measured: prints the figures, names every breach, exits 1 if there is one.

Files of Python and of contracts/src by lines, functions by lines, constructors (`__init__`; a dataclass is a record,
not a constructor) by arguments besides `self`, classes by name, and the import law with its circles
(tools/import_law.py).
"""

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.import_law import ROOT, breaches, circles

PYTHON_FILE, CONTRACT_FILE, FUNCTION, CONSTRUCTOR = 330, 350, 50, 7


@dataclass(frozen=True)
class Measured:
    """`size` lines or arguments of what stands at `where`, of which `limit` are allowed."""

    where: str
    size: int
    limit: int
    unit: str

    @property
    def over(self) -> bool:
        return self.size > self.limit

    def __str__(self) -> str:
        return f"{self.where}: {self.size} {self.unit} (limit {self.limit})"


def tracked(root: Path) -> list[Path]:
    """Files under version control, or all files where there is none."""
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        return sorted(path for path in root.rglob("*") if path.is_file())
    return sorted(root / name for name in listed.stdout.splitlines() if (root / name).is_file())


def measure(root: Path) -> Iterator[Measured]:
    """Every file, function and constructor of our own sources."""
    for path in tracked(root):
        where = str(path.relative_to(root))
        if path.suffix == ".py":
            source = path.read_text()
            yield Measured(where, source.count("\n"), PYTHON_FILE, "lines")
            yield from functions(where, ast.parse(source, where))
        elif path.suffix == ".sol" and where.startswith("contracts/src/"):
            yield Measured(where, path.read_text().count("\n"), CONTRACT_FILE, "lines")


def functions(where: str, tree: ast.AST) -> Iterator[Measured]:
    """Every function of a module, and every constructor's arguments."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        place = f"{where}:{node.lineno} {node.name}"
        yield Measured(place, (node.end_lineno or node.lineno) - node.lineno + 1, FUNCTION, "lines")
        if node.name == "__init__":
            given = node.args
            count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - 1
            yield Measured(place, count, CONSTRUCTOR, "arguments")


def twins(root: Path) -> list[str]:
    """Class names that stand for two things."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in tracked(root):
        if path.suffix == ".py":
            for node in ast.walk(ast.parse(path.read_text(), str(path))):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(f"{path.relative_to(root)}:{node.lineno}")
    return [f"class {name}: {', '.join(where)}" for name, where in sorted(places.items()) if len(where) > 1]


def main() -> int:
    found = list(measure(ROOT))
    wrong = [str(m) for m in found if m.over] + twins(ROOT) + breaches(ROOT) + circles(ROOT)
    for limit in (PYTHON_FILE, CONTRACT_FILE, FUNCTION, CONSTRUCTOR):
        print("largest:", max((m for m in found if m.limit == limit), key=lambda m: m.size))
    print("\n".join(wrong) or "structure: within its limits")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
