"""What the tests of installed packages assert, as programs whose last line has a known value.

Taken are equations inside functions called `test_…` that need nothing but imports and assignments which stand before
them; those are given, as few as it takes. What else a test does in between is not: whether a program has the value is
found by running it (benchmarks/genesys_truth.py).
"""

import ast
import builtins
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.genesys_source import PackageFile, read, stored

_MOST_STATEMENTS = 12


@dataclass(frozen=True)
class Equation:
    """`left` is asserted to be `right` in the test `where`; `before`: the lines that both need, imports first."""

    where: str
    before: tuple[str, ...]
    left: ast.expr
    right: ast.expr

    @property
    def program(self) -> str:
        return "\n".join([*self.before, ast.unparse(self.left)]) + "\n"

    @property
    def literal(self) -> str | None:
        """The right side's value, as Python writes it; None where it is no literal."""
        try:
            return repr(ast.literal_eval(self.right))
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return None


def equations(file: PackageFile) -> Iterator[Equation]:
    """In the order of the file."""
    shared = [_Given.of(one) for one in file.tree.body if isinstance(one, ast.Assign)]
    for function in file.tree.body:
        if isinstance(function, ast.FunctionDef) and function.name.startswith("test"):
            before = [*shared]
            for statement in function.body:
                if isinstance(statement, ast.Assign):
                    before.append(_Given.of(statement))
                elif found := _sides(statement):
                    lines = _needed(read(found[0]) | read(found[1]), before, file.imports)
                    if lines is not None:
                        yield Equation(f"{function.name}@{statement.lineno}", lines, *found)


@dataclass(frozen=True)
class _Given:
    """An assignment: the names that it makes, and those that it reads."""

    statement: ast.Assign
    made: frozenset[str]
    read: frozenset[str]

    @classmethod
    def of(cls, statement: ast.Assign) -> "_Given":
        return cls(statement, frozenset(stored(statement)), frozenset(read(statement)))


def _sides(statement: ast.stmt) -> tuple[ast.expr, ast.expr] | None:
    """Of `assert left == right`, or `is`, whose left side computes something."""
    match statement:
        case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right])):
            return (left, right) if not isinstance(left, ast.Constant | ast.Name) else None
    return None


def _needed(wanted: set[str], before: Sequence[_Given], imports: dict[str, str]) -> tuple[str, ...] | None:
    """The lines that make these names; None where one comes from elsewhere."""
    lines, used = list[str](), set[str]()
    for one in reversed(before):
        if one.made & wanted:
            lines.append(ast.unparse(one.statement))
            wanted = (wanted - one.made) | one.read
    for name in sorted(wanted):
        if name in imports:
            used.add(imports[name])
        elif not hasattr(builtins, name):
            return None
    return (*sorted(used), *reversed(lines)) if len(lines) <= _MOST_STATEMENTS else None
