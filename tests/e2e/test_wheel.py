"""muster as a wheel, without a checkout: it holds all that its code reads, and an operator earns with it."""

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from benchmarks import journeys
from localnet.services.chain import find_anvil
from tests.e2e.building import ARTIFACTS, build_wheel
from tools import wheelhouse
from tools.structure import BELOW_CLI, ROOT, tracked

PACKAGED = {*BELOW_CLI, "cli", "attacks"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_every_file_of_the_rooms_the_compiled_contracts_and_the_pages_libraries(wheel: Path) -> None:
    names = [path.relative_to(ROOT) for path in tracked(ROOT)]
    wanted = {str(name) for name in names if name.parts[0] in PACKAGED or name.parts[:2] == ("contracts", "abi")}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == wanted | ARTIFACTS


PYTHONS = [*sorted((Path.home() / ".pyenv" / "versions").glob("3.1[123].*/bin/python3")), Path("/usr/bin/python3")]


def install(wheel: Path, python: Path, folder: Path) -> Path:
    """Install as operations.md says, where no compiler and no Node is; return the folder of the programs."""
    release, bare, tools = folder / "release", folder / "bare", folder / "tools"
    for path in (release, bare):
        path.mkdir()
    shutil.copy(wheel, release)
    wheelhouse.build(release, [str(python)])
    (bare / "sh").symlink_to("/bin/sh")
    machine = {name: value for name, value in os.environ.items() if name == "HOME" or name.startswith(("SSL_", "UV_"))}
    env = machine | {"PATH": str(bare), "UV_TOOL_DIR": str(tools), "UV_TOOL_BIN_DIR": str(folder)}
    argv = [str(ROOT / ".venv" / "bin" / "uv"), "tool", "install", "--quiet", "--python", str(python)]
    argv += ["--find-links", str(release), "-c", str(release / "versions.txt")]
    argv += ["--overrides", str(release / "overrides.txt"), "muster[localnet]"]
    done = subprocess.run(argv, env=env, cwd=folder, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    return tools / "muster" / "bin"


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.parts[-3] if len(path.parts) > 4 else "system")
def test_an_operator_with_nothing_but_the_wheel_is_paid_after_three_commands(
    wheel: Path, python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = install(wheel, python, tmp_path)
    (tmp_path / "bare" / "anvil").symlink_to(find_anvil())
    monkeypatch.setenv("PATH", str(tmp_path / "bare"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    code = f"import {', '.join(sorted(PACKAGED))}; print({', '.join(f'{name}.__file__' for name in sorted(PACKAGED))})"
    found = subprocess.run([installed / "python", "-P", "-c", code], capture_output=True, text=True, check=False)
    assert found.stdout.count(str(installed.parent)) == len(PACKAGED), found.stdout + found.stderr
    checked = subprocess.run([installed / "muster", "doctor"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    monkeypatch.setattr(journeys, "_EXECUTABLES", installed)
    paid = journeys.run(quick=True)["operator"]
    assert paid["commands"] <= 3
