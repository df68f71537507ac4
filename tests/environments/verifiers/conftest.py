"""Packages made of a source: as a process, and locked."""

from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from environments.registry import data_folder
from environments.verifiers.environment import VerifiersEnvironment, lock_package
from environments.verifiers.install import PackageLock, wheel_requirement
from environments.verifiers.process import PackageProcess
from tests.environments.verifiers.small import make_wheel, small_library, small_package

MakeProcess = Callable[..., PackageProcess]
Locking = Callable[..., PackageLock]


@pytest.fixture
def package(tmp_path: Path) -> Iterator[MakeProcess]:
    """Start the process of a package from its source and arguments; it ends with the test."""
    started: list[PackageProcess] = []

    def start(source: str, **arguments: object) -> PackageProcess:
        site = small_package(tmp_path / str(len(started)), source)
        started.append(PackageProcess("own", site, {"load": "own", "arguments": arguments, "split": "train"}))
        return started[-1]

    yield start
    for process in started:
        process.close()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def lock(tmp_path: Path, cache: Path) -> Locking:
    """Lock a package from its source and arguments."""

    def locked(source: str, **arguments: object) -> PackageLock:
        library = make_wheel(tmp_path, "verifiers", "0.2.1", small_library())
        own = make_wheel(tmp_path, "own", "0.1", {"own.py": dedent(source)}, "verifiers")
        return lock_package(data_folder(), wheel_requirement(own), arguments=arguments, wheels=(own, library))

    return locked


def load(lock: PackageLock, **params: object) -> VerifiersEnvironment:
    return VerifiersEnvironment(data_folder() / lock.content, lock.content, dict(params))
