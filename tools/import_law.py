"""The one law of dependencies, downwards only, and no circles.

cli → demo, calibration → {worker, validator, trainer, orchestrator} → runtime → chain | engines | storage → protocol →
the contracts' ABI. Rooms of one floor do not import one another. `attacks`, `benchmarks`, `tools` and `tests` may use
everything below the command line; nothing uses them.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FLOORS = (
    ("protocol",),
    ("chain", "engines", "storage"),
    ("runtime",),
    ("worker", "validator", "trainer", "orchestrator"),
    ("calibration", "demo"),
    ("cli",),
)
ROOMS = tuple(room for floor in FLOORS for room in floor)
OUTSIDE = ("attacks", "benchmarks", "tools", "tests")
Module = str


def allowed(room: str) -> set[str]:
    """What a room may import: itself and every room of a lower floor."""
    level = next(level for level, floor in enumerate(FLOORS) if room in floor)
    return {room} | {lower for floor in FLOORS[:level] for lower in floor}


def imports(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """(line, module, name) of every absolute import; the name is empty for `import module`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield from ((node.lineno, node.module, alias.name) for alias in node.names)


def breaches(root: Path) -> list[str]:
    """Every import in `root`'s rooms that the law forbids, as `file:line imports module`."""
    out = []
    for room in ROOMS:
        may = allowed(room)
        for path in sorted((root / room).rglob("*.py")):
            for line, module, _ in imports(ast.parse(path.read_text(), str(path))):
                head = module.split(".")[0]
                if head in (*ROOMS, *OUTSIDE) and head not in may:
                    out.append(f"{path.relative_to(root)}:{line} imports {module}")
    return out


def circles(root: Path) -> list[str]:
    """Import circles among the modules of all rooms, each as `a → b → a`; imports inside functions count too."""
    graph = _graph(root)
    found: list[str] = []
    for component in _components(graph):
        if len(component) > 1 or component[0] in graph[component[0]]:
            found.append(" → ".join([*component, component[0]]))
    return sorted(found)


def _graph(root: Path) -> dict[Module, set[Module]]:
    paths = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for room in (*ROOMS, *OUTSIDE)
        for path in (root / room).rglob("*.py")
    }
    graph: dict[Module, set[Module]] = {}
    for module, path in paths.items():
        targets = graph.setdefault(module, set())
        for _, source, name in imports(ast.parse(path.read_text(), str(path))):
            whole = f"{source}.{name}"
            targets |= {target for target in (whole if whole in paths else source,) if target in paths}
    return graph


def _components(graph: dict[Module, set[Module]]) -> Iterator[list[Module]]:
    """Strongly connected components (Tarjan's algorithm)."""
    order: dict[Module, int] = {}
    low: dict[Module, int] = {}
    stack: list[Module] = []
    done: list[list[Module]] = []

    def visit(module: Module) -> None:
        order[module] = low[module] = len(order)
        stack.append(module)
        for target in sorted(graph[module]):
            if target not in order:
                visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], order[target])
        if low[module] == order[module]:
            at = stack.index(module)
            done.append(stack[at:])
            del stack[at:]

    for module in sorted(graph):
        if module not in order:
            visit(module)
    yield from done


if __name__ == "__main__":
    found = [*breaches(ROOT), *circles(ROOT)]
    print("\n".join(found) or "import law: kept")
    sys.exit(1 if found else 0)
