"""The examples in the documentation of installed packages, as programs whose last statement prints what is written
under it."""

import ast
import builtins
import doctest
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.genesys_source import PackageFile, read, stored

_PARSER = doctest.DocTestParser()
_FLAGS = (doctest.SKIP, doctest.ELLIPSIS)


@dataclass(frozen=True)
class Documented:
    """Example number `place` of what is documented at `where`."""

    where: str
    place: int
    program: str
    printed: str


def documented(file: PackageFile) -> Iterator[Documented]:
    """Every example with an output, with the examples before it, and with the imports that it takes for granted."""
    for name, words in _docstrings(file.tree):
        try:
            examples = _PARSER.get_examples(words)
        except ValueError:
            continue
        given = ""
        for place, example in enumerate(examples):
            given += example.source
            left_out = example.exc_msg is not None or any(example.options.get(flag) for flag in _FLAGS)
            if example.want and not left_out and (program := _whole(given, file)):
                yield Documented(name, place, program, example.want.removesuffix("\n"))


def _whole(given: str, file: PackageFile) -> str:
    """The program with the imports that it lacks; empty where its last statement computes nothing."""
    try:
        tree = ast.parse(given)
    except (SyntaxError, ValueError):
        return ""
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant | ast.Name):
        return ""
    imported = {
        one.asname or one.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for one in node.names
    }
    made = imported | stored(tree) | {one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef)}
    missing = sorted(name for name in read(tree) - made if not hasattr(builtins, name) or name in file.defined)
    lines = sorted({line for name in missing if (line := file.line_for(name))})
    return "".join(f"{line}\n" for line in lines) + given


def _docstrings(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Every docstring of a file, with the line and the name of what it is of."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            words = ast.get_docstring(node)
            if words and ">>>" in words:
                yield f"{getattr(node, 'name', '')}@{getattr(node, 'lineno', 0)}", words
