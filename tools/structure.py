"""`python -m tools.structure`: measures the structure of our code, names every breach of its limits, exits 1 if any.

Files of Python and of contracts/src by lines, functions by lines, constructors (`__init__`; a dataclass is a record,
not a constructor) by arguments besides `self`, classes that share a name, and the import law with its circles
(tools/import_law.py).
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.import_law import breaches, circles
from tools.sources import ROOT, SourceFile, read_sources

PYTHON_FILE, CONTRACT_FILE, FUNCTION, CONSTRUCTOR = 330, 350, 50, 7


@dataclass(frozen=True)
class Measurement:
    """`size` of what stands at `where`, of which `limit` is allowed; both counted in `unit`."""

    what: str
    where: str
    size: int
    limit: int
    unit: str = "lines"

    def __str__(self) -> str:
        return f"{self.what} {self.where}: {self.size} {self.unit} (limit {self.limit})"


def measure(python: Iterable[SourceFile], contracts: Iterable[SourceFile]) -> Iterator[Measurement]:
    """Every file, function and constructor."""
    for source in python:
        yield Measurement("Python file", source.where, source.lines, PYTHON_FILE)
        for node in source.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _function(f"{source.where}:{node.lineno} {node.name}", node)
    for source in contracts:
        if source.where.startswith("contracts/src/"):
            yield Measurement("contract", source.where, source.lines, CONTRACT_FILE)


def _function(where: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Measurement]:
    yield Measurement("function", where, (node.end_lineno or node.lineno) - node.lineno + 1, FUNCTION)
    if node.name == "__init__":
        given = node.args
        count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - 1
        yield Measurement("constructor", where, count, CONSTRUCTOR, "arguments")


def twins(python: Iterable[SourceFile]) -> list[str]:
    """Class names that stand for two things."""
    places: dict[str, list[str]] = defaultdict(list)
    for source in python:
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{source.where}:{node.lineno}")
    return [f"{name}: {', '.join(where)}" for name, where in sorted(places.items()) if len(where) > 1]


def report(root: Path) -> tuple[list[str], list[str]]:
    """(the largest of every kind, every breach), in words."""
    python, contracts = read_sources(root), read_sources(root, ".sol")
    found = list(measure(python, contracts))
    kinds = dict.fromkeys(one.what for one in found)
    largest = [str(max((one for one in found if one.what == what), key=lambda one: one.size)) for what in kinds]
    wrong = [f"too large: {one}" for one in found if one.size > one.limit]
    wrong += [f"one name for several classes: {twin}" for twin in twins(python)]
    wrong += [f"against the import law: {breach}" for breach in breaches(python)]
    wrong += [f"import circle: {circle}" for circle in circles(python)]
    return largest, wrong


if __name__ == "__main__":
    largest, wrong = report(ROOT)
    print("\n".join(f"largest {one}" for one in largest))
    print("\n".join(wrong) or "structure: within its limits")
    sys.exit(1 if wrong else 0)
