"""The repository's own source files, each read and parsed once."""

import ast
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class SourceFile:
    """A file and its path relative to the repository's root."""

    where: str
    text: str

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @cached_property
    def tree(self) -> ast.Module:
        """Of Python code. Raises SyntaxError naming the file."""
        return ast.parse(self.text, self.where)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    @property
    def module(self) -> str:
        return self.where.removesuffix(".py").replace("/", ".").removesuffix(".__init__")

    @property
    def package(self) -> str:
        """What a relative import of this module starts from."""
        return self.module if self.where.endswith("__init__.py") else self.module.rpartition(".")[0]


def read_sources(root: Path, suffix: str = ".py") -> list[SourceFile]:
    """The tracked files that end in `suffix`."""
    return [
        SourceFile(str(path.relative_to(root)), path.read_text()) for path in tracked(root) if path.suffix == suffix
    ]


def tracked(root: Path) -> list[Path]:
    """The files that are or could be under version control, in order; all files where there is none."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    paths = [root / name for name in listed.stdout.splitlines()] if listed.returncode == 0 else root.rglob("*")
    return sorted(filter(Path.is_file, paths))
