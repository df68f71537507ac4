"""`python -m tools.structure`: check the import rules, exit 1 on any breach; `--report` prints the structure and sizes.

The rules: imports go downwards only, and there are no circles.

    cli → localnet | calibration | dataset → diloco | swarm → worker | validator | trainer | orchestrator → runtime →
    chain | engines | storage | environments → sandbox → protocol

Packages of one layer do not import one another. `attacks`, `benchmarks` and `simulation` may use every package below
`cli`, tests everything; nothing uses these. A module that is executed (`python -m module`) or imported by name
(`importlib.import_module`) counts as an import, with one exception: `EXECUTES` names who may start which processes.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

LAYERS = (
    {"protocol"},
    {"sandbox"},
    {"chain", "engines", "storage", "environments"},
    {"runtime"},
    {"worker", "validator", "trainer", "orchestrator"},
    {"diloco", "swarm"},
    {"calibration", "dataset", "localnet"},
)
BELOW_CLI = set[str]().union(*LAYERS)
BESIDE = {
    "cli": BELOW_CLI,
    "attacks": BELOW_CLI,
    "benchmarks": BELOW_CLI | {"attacks"},
    "simulation": BELOW_CLI,
    "tools": {"cli", "orchestrator", "runtime"},
}
PACKAGES = {*BELOW_CLI, *BESIDE, "tests"}
# A local network and the benchmarks start the commands that users type; a local network also starts its cheaters, and a
# trainer what learns its null models.
EXECUTES = {"localnet": {"cli", "attacks"}, "benchmarks": {"cli"}, "trainer": {"calibration"}}


@dataclass(frozen=True)
class SourceFile:
    """One source file; `path` is relative to the repository's root."""

    path: str
    text: str

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All syntax nodes of a Python file. Raises SyntaxError naming the file."""
        return tuple(ast.walk(ast.parse(self.text, self.path)))

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def tracked(root: Path) -> list[Path]:
    """Return the files that are or could be under version control, in order; all files where there is no git."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    paths = [root / name for name in listed.stdout.splitlines()] if listed.returncode == 0 else root.rglob("*")
    return sorted(filter(Path.is_file, paths))


def read_sources(root: Path, suffix: str = ".py") -> list[SourceFile]:
    """Read every tracked file that ends in `suffix`."""
    paths = (path for path in tracked(root) if path.suffix == suffix)
    return [SourceFile(str(path.relative_to(root)), path.read_text()) for path in paths]


def allowed(package: str) -> set[str]:
    """Return the packages that `package` may import: itself and the layers below it."""
    if package == "tests":
        return PACKAGES
    if package in BELOW_CLI:
        return {package}.union(*takewhile(lambda layer: package not in layer, LAYERS))
    return {package} | BESIDE.get(package, set())


def imports(source: SourceFile) -> Iterator[tuple[int, str, str]]:
    """Yield (line, module, name) of every import, relative ones resolved; the name is empty for `import module`."""
    for node in source.nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                folders = source.path.split("/")[: -node.level]
                module = ".".join([*folders, *([module] if module else [])])
            yield from ((node.lineno, module, alias.name) for alias in node.names)


def executed(source: SourceFile) -> Iterator[tuple[int, str]]:
    """Yield (line, module) of every module that is named in `import_module("…")` or behind "-m" in a list."""
    for node in source.nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "import_module" and node.args:
            yield from ((node.lineno, name) for name in _module_names(node.args[0]))
        elif isinstance(node, ast.List | ast.Tuple):
            for flag, module in zip(node.elts, node.elts[1:], strict=False):
                if isinstance(flag, ast.Constant) and flag.value == "-m":
                    yield from ((module.lineno, name) for name in _module_names(module))


def _module_names(node: ast.expr) -> list[str]:
    """Return the module that a string names; of an f-string the constant beginning."""
    if isinstance(node, ast.JoinedStr) and node.values:
        node = node.values[0] if isinstance(node.values[0], ast.Constant) else node
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value.rstrip(".")] if re.fullmatch(r"[a-z_][\w.]*", node.value) else []
    return []


def breaches(sources: Iterable[SourceFile]) -> list[str]:
    """Return every use of a package that the rules forbid, as `file:line imports module` or `… executes module`."""
    broken = []
    for source in sources:
        package = _top(source.module)
        may_import = allowed(package)
        may_execute = may_import | EXECUTES.get(package, set())
        uses = [("imports", line, module, may_import) for line, module, _ in imports(source)]
        uses += [("executes", line, module, may_execute) for line, module in executed(source)]
        broken += [
            f"{source.path}:{line} {verb} {module}"
            for verb, line, module, may in uses
            if _top(module) in PACKAGES - may
        ]
    return broken


def _top(module: str) -> str:
    return module.split(".")[0]


def circles(sources: Iterable[SourceFile]) -> list[str]:
    """Return import circles, each as `a → b → a`; imports inside functions count too."""
    by_module = {source.module: source for source in sources}
    graph: dict[str, list[str]] = {}
    for module, source in by_module.items():
        targets = {f"{of}.{name}" if f"{of}.{name}" in by_module else of for _, of, name in imports(source)}
        graph[module] = sorted(targets & by_module.keys())
    circles: list[str] = []
    while True:
        try:
            TopologicalSorter(graph).prepare()
            return circles
        except CycleError as error:
            circle = error.args[1][::-1]
            circles.append(" → ".join(circle))
            graph[circle[0]].remove(circle[1])


def check(root: Path) -> list[str]:
    """Return every breach of the import rules and every import circle, in words."""
    python = read_sources(root)
    wrong = [f"against the import rules: {breach}" for breach in breaches(python)]
    return wrong + [f"import circle: {circle}" for circle in circles(python)]


def report(root: Path) -> Iterator[str]:
    """Yield the package graph, the entries of each folder, the extreme files of each package, and the sizes."""
    packages: dict[str, list[SourceFile]] = defaultdict(list)
    folders: dict[Path, set[str]] = defaultdict(set)
    for source in read_sources(root):
        packages[_top(source.module)].append(source)
        path = Path(source.path)
        for part, parent in zip([path, *path.parents], path.parents, strict=False):
            folders[parent].add(part.name)
    yield "package: imports"
    for package, sources in sorted(packages.items()):
        used = {_top(module) for source in sources for _, module, _ in imports(source)}
        yield f"  {package}: {', '.join(sorted((PACKAGES & used) - {package})) or 'nothing of ours'}"
    yield "folder: Python files and folders in it"
    yield from (
        f"  {folder}: {len(entries)}" for folder, entries in sorted(folders.items()) if "tests" not in folder.parts
    )
    yield "package: its five largest and five smallest files, in lines"
    for package, sources in sorted(packages.items()):
        ordered = sorted((source for source in sources if source.lines), key=lambda source: -source.lines)
        shown = ordered if len(ordered) <= 10 else [*ordered[:5], *ordered[-5:]]
        yield f"  {package}: " + ", ".join(
            f"{source.path.partition('/')[2] or source.path} {source.lines}" for source in shown
        )
    yield "sizes"
    yield from (f"  {name}: {size}" for name, size in sizes(root).items())


def sizes(root: Path) -> dict[str, int]:
    """Return the sizes that we watch: lines, files, words."""
    python = read_sources(root)
    code = [source for source in python if _top(source.module) not in ("tests", "benchmarks")]
    docs = [source for source in read_sources(root, ".md") if source.path.startswith("docs/")]
    solidity = [source for source in read_sources(root, ".sol") if source.path.startswith("contracts/src/")]
    return {
        "Python lines outside tests and benchmarks": sum(source.lines for source in code),
        "Python files outside tests and benchmarks": len(code),
        "lines of benchmarks": sum(source.lines for source in python if _top(source.module) == "benchmarks"),
        "lines of tests": sum(source.lines for source in python if _top(source.module) == "tests"),
        "lines of contracts/src": sum(source.lines for source in solidity),
        "words of docs": sum(len(source.text.split()) for source in docs),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.structure", description="check the import rules")
    parser.add_argument("--report", action="store_true", help="print the structure and the sizes too")
    if parser.parse_args().report:
        print("\n".join(report(ROOT)))
    wrong = check(ROOT)
    print("\n".join(wrong) or "structure: every import follows the rules")
    sys.exit(1 if wrong else 0)
