"""The import rules: downwards only, and no circles.

cli → localnet | calibration | dataset → diloco | swarm → worker | validator | trainer | orchestrator → runtime →
chain | engines | storage | environments → sandbox → protocol → the contracts' ABI. Packages of one layer do not import
one another. `attacks` and `benchmarks` may use every package below `cli`, tests everything; nothing uses these.
"""

import ast
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import takewhile

from tools.sources import SourceFile

FLOORS = (
    {"protocol"},
    {"sandbox"},
    {"chain", "engines", "storage", "environments"},
    {"runtime"},
    {"worker", "validator", "trainer", "orchestrator"},
    {"diloco", "swarm"},
    {"calibration", "dataset", "localnet"},
)
BELOW_CLI = set[str]().union(*FLOORS)
BESIDE = {"cli": BELOW_CLI, "attacks": BELOW_CLI, "benchmarks": BELOW_CLI | {"attacks"}, "tools": set[str]()}
EVERYTHING = {*BELOW_CLI, *BESIDE, "tests"}


def allowed(room: str) -> set[str]:
    """What a room may import: itself and what lies below it."""
    if room == "tests":
        return EVERYTHING
    if room in BELOW_CLI:
        return {room}.union(*takewhile(lambda floor: room not in floor, FLOORS))
    return {room} | BESIDE.get(room, set())


def imports(source: SourceFile) -> Iterator[tuple[int, str, str]]:
    """(line, module, name) of every import, relative ones resolved; the name is empty for `import module`."""
    for node in source.nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                parents = source.package.split(".")
                module = ".".join([*parents[: len(parents) - node.level + 1], *([module] if module else [])])
            yield from ((node.lineno, module, alias.name) for alias in node.names)


def breaches(sources: Iterable[SourceFile]) -> list[str]:
    """Every import that the law forbids, as `file:line imports module`."""
    out = []
    for source in sources:
        may = allowed(source.module.split(".")[0])
        for line, module, _ in imports(source):
            if module.split(".")[0] in EVERYTHING - may:
                out.append(f"{source.where}:{line} imports {module}")
    return out


def circles(sources: Iterable[SourceFile]) -> list[str]:
    """Import circles, each as `a → b → a`; imports inside functions count too."""
    by_module = {source.module: source for source in sources}
    graph: dict[str, list[str]] = {}
    for module, source in by_module.items():
        targets = {f"{of}.{name}" if f"{of}.{name}" in by_module else of for _, of, name in imports(source)}
        graph[module] = sorted(targets & by_module.keys())
    found: list[str] = []
    while True:
        try:
            TopologicalSorter(graph).prepare()
            return found
        except CycleError as error:
            circle = error.args[1][::-1]
            found.append(" → ".join(circle))
            graph[circle[0]].remove(circle[1])
