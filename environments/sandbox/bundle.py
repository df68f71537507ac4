"""What an image imports before it is kept: the standard library's usual modules, and packages of pure Python."""

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from environments.errors import ScoringUnavailable

_LEFT_OUT = {"tests", "benchmarks", "testing"}


@dataclass(frozen=True)
class ImageRecipe:
    """`packages`: taken from this machine's Python, with all modules; `own`: module name → a file of this package.
    `imports`: of these, what is imported beforehand; `warm`: Python that fills caches. `sha256`: of the result;
    `sources`: of what it is made from (image.py: `sources`), which tells in a moment that the result is another."""

    name: str
    sha256: str
    sources: str = ""
    packages: tuple[str, ...] = ()
    own: tuple[tuple[str, str], ...] = ()
    imports: tuple[str, ...] = ()
    warm: str = ""


RECIPES = (
    ImageRecipe(
        "python",
        "501b939f5be16e40bd463945445ed0c11510d58e057fc03424d0988bd0b16b08",
        "1d2d64236bdc2da421e78044f581c970351576c356c047bf8c417b44be11095a",
    ),
    ImageRecipe(
        "mathematics",
        "d04ee7131e65f13cf6df18c4e03cd8925d8b4b72ba2b5ab76b19c9131a93de9e",
        "c6e39031777da725619be9585d76c4dab1d4d4587cffe7b9ff198e0f4797a840",
        packages=("mpmath", "sympy", "antlr4", "latex2sympy2_extended", "math_verify"),
        own=(
            ("ctypes", "scorers/ctypes_guest.py"),
            ("muster_mathematics", "scorers/mathematics_guest.py"),
            ("muster_versions", "scorers/versions_guest.py"),
        ),
        imports=("muster_versions", "muster_mathematics"),
        warm="import muster_mathematics\nmuster_mathematics.warm()\n",
    ),
)


def recipe(name: str) -> ImageRecipe:
    """By its name; KeyError for an unknown one."""
    return {one.name: one for one in RECIPES}[name]


def bundled(wanted: ImageRecipe) -> bytes:
    """What the interpreter reads while an image is made: a document, then the modules' sources. Raises
    ScoringUnavailable where a package is missing."""
    modules = [one for package in wanted.packages for one in _modules(package)]
    root = Path(__file__).resolve().parent.parent
    modules += [(name, False, (root / path).read_bytes()) for name, path in wanted.own]
    about = [(name, is_package, len(text)) for name, is_package, text in modules]
    head = json.dumps({"modules": about, "imports": wanted.imports, "warm": wanted.warm}).encode()
    return b"%8d" % len(head) + head + b"".join(text for _, _, text in modules)


def _modules(package: str) -> Iterator[tuple[str, bool, bytes]]:
    """(name, whether it is a package, source) in the order of their names, tests left out."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ScoringUnavailable(f"`{package}` is not installed", "run `make setup`")
    (folder,) = map(Path, found.submodule_search_locations)
    names = []
    for path in folder.rglob("*.py"):
        parts = (package, *path.relative_to(folder).with_suffix("").parts)
        if not _LEFT_OUT & set(parts):
            is_package = parts[-1] == "__init__"
            names.append((".".join(parts[:-1] if is_package else parts), is_package, path))
    for name, is_package, path in sorted(names):
        yield name, is_package, path.read_bytes()
