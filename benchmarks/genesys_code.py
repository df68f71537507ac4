"""Tasks that ask for a program: functions of installed packages that need nothing but Python's own library, with what
documentation and tests say of them.

The reference is the function's own source, with the functions and constants of its package that it uses.
"""

import ast
import builtins
import inspect
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.genesys_asserts import equations
from benchmarks.genesys_examples import documented
from benchmarks.genesys_source import PackageFile, read

LEAST_TESTS, MOST_TESTS = 2, 8
_MOST_PARTS, _MOST_WORDS = 40, 200
_FUNCTION = "Write a Python function `{name}{arguments}`.\n{words}\nFor example, `{call}` gives `{result}`."
_PROGRAM = (
    "Write a Python program that reads a JSON list of arguments from standard input and prints, as JSON, what "
    "`{name}{arguments}` gives.\n{words}\nFor `{given}` it prints `{printed}`."
)


@dataclass(frozen=True)
class CodeTask:
    """`function`: what is asked for; `tests`: pairs of arguments and result, JSON values. `by_program`: it is to read
    and print instead of being called."""

    path: str
    function: str
    prompt: str
    reference: str
    tests: tuple[tuple[list[Any], Any], ...]
    by_program: bool

    @property
    def verification(self) -> dict[str, Any]:
        kind = {"type": "stdin_stdout"} if self.by_program else {"type": "function_call", "fn_name": self.function}
        cases = [
            {**kind, "input": json.dumps(given) + "\n", "output": json.dumps(result) + "\n"}
            if self.by_program
            else {**kind, "input": given, "output": result}
            for given, result in self.tests
        ]
        return {"language": "python", "test_cases": cases}


def code_tasks(files: Sequence[PackageFile]) -> Iterator[CodeTask]:
    """Of one package's files; every second one asks for a program that reads and prints."""
    known = _Package({file.module: file for file in files})
    called = _calls(files, known)
    for number, ((module, name), tests) in enumerate(sorted(called.items())):
        file = known.files[module]
        function = file.defined[name]
        different = list({json.dumps(one): one for one in tests}.values())[:MOST_TESTS]
        reference = known.alone(file, name)
        words = ast.get_docstring(function) if isinstance(function, ast.FunctionDef) else None
        if reference and words and len({json.dumps(result) for _, result in different}) >= LEAST_TESTS:
            yield _task(file, name, reference, words, tuple(different), bool(number % 2))


def _task(
    file: PackageFile, name: str, reference: str, words: str, tests: tuple[tuple[list[Any], Any], ...], by_program: bool
) -> CodeTask:
    function = file.defined[name]
    assert isinstance(function, ast.FunctionDef)
    given, result = tests[0]
    about = {
        "name": name,
        "arguments": f"({ast.unparse(function.args)})",
        "words": _described(words),
        "call": f"{name}({', '.join(map(repr, given))})",
        "result": repr(result),
        "given": json.dumps(given),
        "printed": json.dumps(result),
    }
    if by_program:
        reference += f"\nimport json\nprint(json.dumps({name}(*json.loads(input()))))\n"
    asked = (_PROGRAM if by_program else _FUNCTION).format_map(about)
    return CodeTask(file.path, name, asked, f"```python\n{reference}```", tests, by_program)


def _described(words: str) -> str:
    """The documentation up to its first example or section, at most a few lines."""
    text = inspect.cleandoc(words).split(">>>")[0]
    lines: list[str] = []
    for line in text.splitlines():
        if set(line.strip()) & {"=", "-"} and not set(line.strip()) - {"=", "-"}:
            lines = lines[:-1]
            break
        lines.append(line)
    kept = " ".join(" ".join(lines).split())
    return kept if len(kept) <= _MOST_WORDS else kept[:_MOST_WORDS].rpartition(". ")[0] + "."


def _calls(files: Sequence[PackageFile], known: "_Package") -> dict[tuple[str, str], list[tuple[list[Any], Any]]]:
    """(module, function) → arguments and results of calls with nothing but JSON values."""
    found = defaultdict[tuple[str, str], list[tuple[list[Any], Any]]](list)
    for file in files:
        for equation in equations(file):
            if equation.literal is not None:
                _add(found, known, file, equation.left, equation.literal)
        for example in documented(file):
            last = ast.parse(example.program).body[-1]
            if isinstance(last, ast.Expr):
                _add(found, known, file, last.value, example.printed)
    return found


def _add(found: Mapping[Any, list[Any]], known: "_Package", file: PackageFile, call: ast.expr, result: str) -> None:
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.keywords:
        return
    try:
        given, value = [ast.literal_eval(one) for one in call.args], ast.literal_eval(result)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return
    place, plain = known.origin(file, call.func.id), _listed([given, value])
    if place is not None and value is not None and _same_as_json(plain):
        found[place].append((plain[0], plain[1]))


def _listed(value: Any) -> Any:
    """With lists for tuples."""
    return [_listed(one) for one in value] if isinstance(value, list | tuple) else value


def _same_as_json(value: Any) -> bool:
    """Whether a JSON text gives the value back."""
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False


@dataclass
class _Package:
    """Modules of a package, which import one another."""

    files: Mapping[str, PackageFile]
    _known: dict[tuple[str, str], tuple[str, str] | None] = field(default_factory=dict)

    def origin(self, file: PackageFile, name: str, depth: int = 0) -> tuple[str, str] | None:
        """Where a name of a file is defined as a function of the package."""
        if isinstance(file.defined.get(name), ast.FunctionDef | ast.Assign | ast.AnnAssign):
            return file.module, name
        line = file.imports.get(name, "")
        if not line.startswith("from ") or depth > 4:
            return None
        _, module, _, original, *_ = line.split()
        there = self.files.get(module)
        return self.origin(there, original, depth + 1) if there else None

    def alone(self, file: PackageFile, name: str) -> str:
        """A function with all that it needs, as a program; empty where it needs more than Python's own library."""
        parts, lines, made, waiting = list[str](), set[str](), dict[str, str](), [(file, name)]
        while waiting and len(parts) <= _MOST_PARTS:
            where, wanted = waiting.pop()
            if made.setdefault(wanted, where.module) != where.module:
                return ""
            node = where.defined.get(wanted)
            if not isinstance(node, ast.FunctionDef | ast.Assign) or getattr(node, "decorator_list", []):
                return ""
            source = ast.unparse(node)
            if source in parts:
                continue
            parts.append(source)
            for one in sorted(_free(node)):
                if one in where.defined:
                    waiting.append((where, one))
                elif (origin := self.origin(where, one)) and origin[1] == one:
                    waiting.append((self.files[origin[0]], one))
                elif (line := where.imports.get(one, "")) and line.split()[1].split(".")[0] in sys.stdlib_module_names:
                    lines.add(line)
                elif not hasattr(builtins, one):
                    return ""
            waiting = [one for one in waiting if made.get(one[1]) != one[0].module]
        return "\n".join([*sorted(lines), *reversed(parts), ""]) if not waiting else ""


def _free(node: ast.AST) -> set[str]:
    """The names that a definition needs from its module."""
    inner = {one.name for one in ast.walk(node) if isinstance(one, ast.FunctionDef | ast.ClassDef) and one is not node}
    bound = {one.name for one in ast.walk(node) if isinstance(one, ast.ExceptHandler) and one.name}
    imported = {
        one.asname or one.name
        for each in ast.walk(node)
        if isinstance(each, ast.Import | ast.ImportFrom)
        for one in each.names
    }
    return read(node) - inner - bound - imported - ({node.name} if isinstance(node, ast.FunctionDef) else set())
