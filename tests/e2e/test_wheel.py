"""muster as a wheel, without a checkout: it holds all that its code reads, and runs the whole network."""

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from chain.abi import CONTRACTS
from engines.torch_process import intel_openmp
from tests.e2e.building import ARTIFACTS, build_wheel
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


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Path:
    """The programs' folder of a virtual environment with the wheel and with the packages that this one sees."""
    home = tmp_path / "venv"
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True, timeout=100)
    packages = [path for path in sys.path if path.endswith("site-packages")]
    (site,) = home.glob("lib/python*/site-packages")
    (site / "locked.pth").write_text("\n".join(packages))
    if library := intel_openmp():
        (home / "lib" / library.name).symlink_to(library)
    return home / "bin"


def outside_the_checkout(arguments: list[str], folder: Path, timeout: float) -> "subprocess.CompletedProcess[str]":
    """In a new folder that has nothing but folders of somebody else's named like ours."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PATH"] = f"{ROOT / 'node_modules' / '.bin'}:{environment['PATH']}"
    (folder / "contracts" / "abi").mkdir(parents=True)
    (folder / "cli").mkdir()
    (folder / "cli" / "main.py").write_text("raise SystemExit('this is not muster')")
    return subprocess.run(
        arguments, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_the_installed_wheel_runs_the_whole_network_without_a_checkout(installed: Path, tmp_path: Path) -> None:
    code = f"import {', '.join(sorted(PACKAGED))}; print({', '.join(f'{name}.__file__' for name in sorted(PACKAGED))})"
    found = outside_the_checkout([str(installed / "python"), "-P", "-c", code], tmp_path / "empty", 60)
    assert all(str(installed.parent) in path for path in found.stdout.split()), found.stdout
    assert len(found.stdout.split()) == len(PACKAGED), found.stderr

    checked = outside_the_checkout([str(installed / "muster"), "doctor"], tmp_path / "doctor", 60)
    assert checked.returncode == 0, checked.stdout
    assert "make setup" not in checked.stdout

    done = outside_the_checkout(
        [str(installed / "muster"), "demo", "--seed", "1", "--steps", "2"], tmp_path / "run", 800
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = (tmp_path / "run" / "runs" / "latest").resolve()
    summary = json.loads((run / "summary.json").read_text())
    assert summary["steps"] == 2
    assert summary["ledger_matches_chain"]
    assert {path.stem for path in (run / "deployment" / "verify").glob("*.json")} == set(CONTRACTS)
