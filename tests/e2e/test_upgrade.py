"""`muster upgrade` in environments of its own: to a version that starts, to one that does not, killed in the middle."""

import os
import re
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol import VERSION
from tests.e2e.building import build_wheel

NEW, BROKEN = "90.1.0", "90.2.0"


def changed(version: str, broken: bool) -> Callable[[Path], None]:
    """Another version of the sources, which asks for no package: the test's environment sees this one's."""

    def change(source: Path) -> None:
        project, package = source / "pyproject.toml", source / "protocol" / "__init__.py"
        text = re.sub(r"(?ms)^dependencies = \[.*?^\]", "dependencies = []", project.read_text())
        text = re.sub(r"(?ms)^\[project.optional-dependencies\].*?(?=^\[)", "", text)
        project.write_text(text.replace(f'version = "{VERSION}"', f'version = "{version}"'))
        package.write_text(package.read_text().replace(f'"{VERSION}"', f'"{version}"'))
        if broken:
            (source / "worker" / "main.py").write_text("raise ImportError('no such kernel')")

    return change


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of `make wheel` with three versions."""
    folder = tmp_path_factory.mktemp("release")
    for version in (VERSION, NEW, BROKEN):
        wheel = build_wheel(tmp_path_factory.mktemp("built"), changed(version, version == BROKEN))
        wheel.rename(folder / wheel.name)
    for name in ("versions.txt", "overrides.txt"):
        (folder / name).write_text("")
    return folder


class Installed:
    """A virtual environment with muster, and with the packages that this one sees."""

    def __init__(self, folder: Path, release: Path) -> None:
        self.root, self.release = folder / "venv", release
        venv.create(self.root, symlinks=True)
        self.python = self.root / "bin" / "python"
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install"]
        pip += ["--quiet", "--no-deps", "--no-index"]
        subprocess.run([*pip, *release.glob(f"muster-{VERSION}-*.whl")], check=True, timeout=100)
        (site,) = self.root.glob("lib/python*/site-packages")
        (site / "locked.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
        uv = str(Path(sys.executable).parent)
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self.env = env | {"HOME": str(folder), "UV_OFFLINE": "1", "PATH": f"{uv}{os.pathsep}{env['PATH']}"}

    def start(self, *words: str) -> "subprocess.Popen[str]":
        argv = [str(self.root / "bin" / "muster"), *words]
        return subprocess.Popen(argv, env=self.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, *words: str) -> tuple[int, str]:
        process = self.start(*words)
        said, _ = process.communicate(timeout=300)
        return process.returncode, said

    def version(self) -> str:
        """What the program that a user types says it is."""
        code, said = self.run("--version")
        assert code == 0, said
        return said.split()[-1]

    def to(self, version: str) -> tuple[str, ...]:
        return "upgrade", "--to", version, "--from", str(self.release), "--yes"


@pytest.fixture
def installed(tmp_path: Path, release: Path) -> Installed:
    return Installed(tmp_path, release)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_upgrade_changes_the_version_in_place_and_goes_back(installed: Installed) -> None:
    assert installed.version() == VERSION
    code, said = installed.run(*installed.to(BROKEN))
    assert code == 2
    assert "the new version does not start: ImportError: no such kernel; nothing was changed" in said
    assert installed.version() == VERSION
    code, said = installed.run(*installed.to("91.0.0"))
    assert code == 2
    assert "cannot be installed" in said
    code, said = installed.run(*installed.to(NEW))
    assert (code, installed.version()) == (0, NEW), said
    argv = [str(installed.python), "-P", "-c", "import cli; print(cli.__file__)"]
    found = subprocess.run(argv, env=installed.env, capture_output=True, text=True, check=True)
    assert str(installed.root) in found.stdout
    code, said = installed.run("upgrade", "--back", "--yes")
    assert (code, installed.version()) == (0, VERSION), said
    assert installed.run("upgrade", "--to", VERSION)[0] == 0, "nothing to do"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_upgrade_killed_at_any_moment_leaves_the_old_version_or_the_new_one(installed: Installed) -> None:
    begun = time.monotonic()
    assert installed.run(*installed.to(NEW))[0] == 0
    whole = time.monotonic() - begun
    seen = set()
    for part in (0.3, 0.6, 0.9):
        wanted = VERSION if installed.version() == NEW else NEW
        before, process = installed.version(), installed.start(*installed.to(wanted))
        time.sleep(part * whole)
        process.kill()
        process.communicate()
        assert installed.version() in (before, wanted)
        seen.add(process.returncode)
    assert -9 in seen, "some were killed"
    wanted = VERSION if installed.version() == NEW else NEW
    assert (installed.run(*installed.to(wanted))[0], installed.version()) == (0, wanted), "what is left is cleaned up"
