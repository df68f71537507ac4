"""From a package's name and version to its lock: resolved, installed and loaded once, on the pool owner's machine."""

import importlib.metadata
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from environments.verifiers.environment import data_hash
from environments.verifiers.install import installed, resolve
from environments.verifiers.lock import LockedWheel, PackageLock, this_machine, this_python
from environments.verifiers.process import PackageProcess
from protocol.errors import ConfigError
from protocol.files import write_atomic

_PINNED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(\[[A-Za-z0-9,._-]+\])?==([A-Za-z0-9][A-Za-z0-9.!+_-]*)")
_DIGEST = 16
Split = Literal["train", "eval"]


@dataclass(frozen=True)
class AskedPackage:
    """`requirement`: NAME==VERSION, extras allowed. `load`: a module or `module:callable`; empty for the package's own
    name. `wheels`: files that no index has. `build`: packages without a wheel are built here."""

    requirement: str
    load: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    split: Split = "train"
    wheels: Sequence[Path] = ()
    build: bool = False


def lock_package(asked: AskedPackage, keep: Path) -> PackageLock:
    """Puts the lock, and wheels that no index has, into `keep` by their hashes. Raises ConfigError for a package that
    cannot be resolved or is refused, ScoringUnavailable where it cannot be installed or loaded."""
    name = pinned_name(asked.requirement)
    wheels = resolve(asked.requirement, asked.wheels, asked.build, keep)
    if not any(one.name == "verifiers" for one in wheels):
        raise ConfigError(f"{asked.requirement} does not need verifiers", "name a package of the verifiers library")
    draft = _draft(asked, name, wheels)
    site = installed(draft, keep)
    process = PackageProcess(
        asked.requirement, site, {"load": draft.load, "arguments": draft.arguments, "split": draft.split}
    )
    try:
        loaded = process.load()
        rows = len(bytes.fromhex(str(loaded["rows"]))) // _DIGEST
        for row in sorted({0, rows - 1}):  # does it ask what a worker can sample an answer to
            process.reply(row, [])
    finally:
        process.close()
    found = {
        "library": str(loaded["library"]),
        "licence": _licence(name, site),
        "rows": rows,
        "data": data_hash(loaded),
    }
    lock = PackageLock.model_validate(draft.model_dump() | found)
    write_atomic(keep / lock.content, lock.document)
    return lock


def pinned_name(requirement: str) -> str:
    """NAME of NAME==VERSION. Raises ConfigError for anything else."""
    match = _PINNED.fullmatch(requirement)
    if match is None:
        raise ConfigError(f"`{requirement[:80]}` is not NAME==VERSION", "name the version, e.g. reverse-text==0.1.0")
    return match[1]


def _draft(asked: AskedPackage, name: str, wheels: tuple[LockedWheel, ...]) -> PackageLock:
    """Without what only the loaded package can say."""
    return PackageLock(
        package=asked.requirement,
        load=asked.load or re.sub(r"[-.]", "_", name),
        arguments=asked.arguments,
        split=asked.split,
        library="0",
        python=this_python(),
        machine=this_machine(),
        wheels=tuple(sorted(wheels, key=lambda one: one.name.lower())),
        rows=1,
        data="0" * 64,
    )


def _licence(name: str, site: Path) -> str:
    """As the package says; `unknown` if it does not."""
    for found in importlib.metadata.distributions(name=name, path=[str(site)]):
        about = found.metadata
        said = next((about[one] for one in ("License-Expression", "License") if one in about), "")
        line = str(said).strip().splitlines()[:1]
        return line[0][:100] if line else "unknown"
    return "unknown"
