"""The one law of dependencies: cli → {worker, validator, trainer, orchestrator} → protocol → the contracts' ABI."""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROLES = {"worker", "validator", "trainer", "orchestrator"}
OURS = ROLES | {"protocol", "cli", "attacks", "benchmarks", "tests", "tools"}
MAY_IMPORT = {"protocol": {"protocol"}, "cli": ROLES | {"protocol", "cli"}}
MAY_IMPORT |= {role: {role, "protocol"} for role in ROLES}


def imports(tree: ast.AST) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.append((node.lineno, node.module))
    return found


def breaches(root: Path) -> list[str]:
    """Every import in `root`'s packages that the law forbids, as `file:line imports module`."""
    out = []
    for package, allowed in MAY_IMPORT.items():
        for path in sorted((root / package).rglob("*.py")):
            for line, module in imports(ast.parse(path.read_text(), str(path))):
                head = module.split(".")[0]
                if head in OURS and head not in allowed:
                    out.append(f"{path.relative_to(root)}:{line} imports {module}")
    return out


if __name__ == "__main__":
    found = breaches(ROOT)
    print("\n".join(found) or "import law: kept")
    sys.exit(1 if found else 0)
