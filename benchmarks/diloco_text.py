"""Real text for `python -m benchmarks diloco`: the docstrings of three packages that the lock pins, as bytes.

Each document, a docstring of LEAST bytes or more, is dealt to one site by the protocol's rule (`dealt_to`); every
HELD_OUT-th is kept for the evaluation. What a site trains on at a step is drawn from its documents by seed, site and
step alone: the place in the data is the step's number.
"""

import ast
import hashlib
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protocol.files import write_atomic
from protocol.sites.dealing import dealt_to

PACKAGES = ("networkx", "numpy", "sympy")
LEAST, HELD_OUT = 200, 50
END = 0
"""The byte behind every document."""
Tokens = NDArray[np.uint8]
_NAMED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class PackageText:
    """`source`: packages with their versions."""

    source: str
    documents: tuple[bytes, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of all documents, each with its end."""
        return hashlib.sha256(b"".join(one + bytes([END]) for one in self.documents)).hexdigest()


def package_text(folder: Path, packages: Sequence[str] = PACKAGES) -> PackageText:
    """The text of the installed packages; `folder` keeps it, since reading it takes some seconds."""
    source = " ".join(f"{name} {distribution(name).version}" for name in packages)
    path = folder / (source.replace(" ", "-") + ".txt")
    if not path.exists():
        found = dict.fromkeys(one for name in packages for one in _docstrings(name))
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(path, b"".join(one + bytes([END]) for one in found))
    return PackageText(source, tuple(path.read_bytes().split(bytes([END]))[:-1]))


def _docstrings(package: str) -> Iterator[bytes]:
    """In the order of files and places, tests' left out."""
    installed = distribution(package)
    for name in sorted(map(str, installed.files or ())):
        if not name.endswith(".py") or "/tests/" in name:
            continue
        tree = ast.parse(Path(str(installed.locate_file(name))).read_bytes())
        for node in ast.walk(tree):
            text = ast.get_docstring(node, clean=False) if isinstance(node, _NAMED) else None
            data = inspect.cleandoc(text or "").encode("utf-8", "replace")
            if len(data) >= LEAST and END not in data:
                yield data


class SiteStreams:
    """What each of `sites` trains on, and what is held out, in rows of `length` + 1 bytes. `dealt`: each site's
    documents; `kept`: those of the evaluation."""

    def __init__(self, text: PackageText, sites: Sequence[str], seed: int, length: int) -> None:
        self._seed, self._length = seed, length
        dealt: dict[str, list[bytes]] = {site: [] for site in sites}
        dealing = hashlib.sha256(b"diloco %d" % seed).digest()
        for number, document in enumerate(text.documents):
            if number % HELD_OUT:
                dealt[dealt_to(dealing, number.to_bytes(32, "big"), sites)].append(document)
        self.dealt = [_joined(dealt[site]) for site in sites]
        self.kept = _joined(text.documents[::HELD_OUT])

    def batch(self, site: int, step: int, rows: int) -> NDArray[np.int64]:
        """[rows, length + 1], from places drawn by seed, site and step."""
        dice = np.random.default_rng([self._seed, site, step])
        return self._rows(self.dealt[site], dice.integers(0, self.dealt[site].size - self._length, rows))

    def held_out(self, rows: int) -> NDArray[np.int64]:
        """[rows, length + 1], evenly spread over what is held out: the same for all seeds."""
        return self._rows(self.kept, np.linspace(0, self.kept.size - self._length - 1, rows).astype(np.int64))

    def _rows(self, data: Tokens, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        rows: NDArray[np.int64] = data[starts[:, None] + np.arange(self._length + 1)].astype(np.int64)
        return rows


def _joined(documents: Sequence[bytes]) -> Tokens:
    return np.frombuffer(b"".join(one + bytes([END]) for one in documents), np.uint8)
