"""Python files of installed packages, as they are read: what they import, what they define. None is imported."""

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path

_ELSEWHERE = {"np": "import numpy as np", "nx": "import networkx as nx"}
"""What documentation takes for granted."""


@dataclass(frozen=True)
class PackageFile:
    """`path` within its distribution."""

    path: str
    tree: ast.Module

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @cached_property
    def imports(self) -> dict[str, str]:
        """Name → the line that imports it."""
        found = dict[str, str]()
        for node in self.tree.body:
            if isinstance(node, ast.Import):
                found |= {one.asname or one.name: f"import {one.name}" + _as(one) for one in node.names}
            elif isinstance(node, ast.ImportFrom) and (origin := self._origin(node)):
                found |= {one.asname or one.name: f"from {origin} import {one.name}" + _as(one) for one in node.names}
        return found

    def _origin(self, node: ast.ImportFrom) -> str:
        """The module that is imported from, absolute; empty where there is none."""
        if not node.level:
            return node.module or ""
        parts = self.path.removesuffix(".py").split("/")[: -node.level]
        return ".".join([*parts, *([node.module] if node.module else [])])

    @cached_property
    def defined(self) -> dict[str, ast.stmt]:
        """Name → the last statement of the file that makes it."""
        found: dict[str, ast.stmt] = {}
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found[node.name] = node
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                found |= dict.fromkeys(stored(node), node)
        return found

    def line_for(self, name: str) -> str:
        """The line that brings a name of this file into another program; empty where nothing does."""
        if name in self.defined:
            return f"from {self.module} import {name}"
        return self.imports.get(name) or _ELSEWHERE.get(name, "")


def source_files(about: metadata.Distribution) -> Iterator[PackageFile]:
    """Those with documented or tested examples, in the order of their names."""
    for file in sorted(about.files or (), key=str):
        if file.suffix != ".py":
            continue
        text = Path(str(file.locate())).read_text(encoding="utf-8", errors="replace")
        if ">>>" not in text and "assert " not in text:
            continue
        try:
            with warnings.catch_warnings(action="ignore"):
                yield PackageFile(str(file), ast.parse(text))
        except (SyntaxError, ValueError):
            continue


def read(node: ast.AST) -> set[str]:
    """The names that it needs; not what a comprehension or lambda in it makes itself."""
    found = list(ast.walk(node))
    loaded = {one.id for one in found if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
    return loaded - stored(node) - {one.arg for one in found if isinstance(one, ast.arg)}


def stored(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def _as(name: ast.alias) -> str:
    return f" as {name.asname}" if name.asname else ""
