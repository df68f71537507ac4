"""`python -m tools.wheelhouse`: what lies beside muster's wheel, so that it installs without a checkout or a compiler.

`versions.txt` pins every package as tested, `overrides.txt` loosens vLLM's own pins, and packages that the index has as
source only become wheels, for every supported Python that this machine has.
"""

import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from tools.setup import ROOT, SUPPORTED

FOLDER = ROOT / "build" / "wheel"
PYTHONS = tuple(f"{major}.{minor}" for major, minor in SUPPORTED)
_UV = str(ROOT / ".venv" / "bin" / "uv")


def pinned() -> str:
    """Return the requirements that the tests ran with, a line each, of every extra but `cpu`."""
    asked = ["export", "--frozen", "--quiet", "--no-hashes", "--no-emit-project", "--no-dev", "--no-annotate"]
    asked += ["--extra", "cuda", "--extra", "localnet"]
    return subprocess.run([_UV, *asked], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def source_only(requirements: str) -> list[str]:
    """Return those of the requirements, as NAME==VERSION, that have no wheel on the index."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    bare = {
        f"{package['name']}=={package['version']}"
        for package in packages
        if "sdist" in package and "wheels" not in package
    }
    return sorted(bare & {line.partition(" ;")[0] for line in requirements.splitlines()})


def build(folder: Path, pythons: Sequence[str] = PYTHONS) -> None:
    """Lay all of it into `folder`, for each of `pythons` (versions or paths) that is here. Raises CalledProcessError
    where a package cannot be fetched or built."""
    requirements, sources = pinned(), folder / "sources"
    (folder / "versions.txt").write_text(requirements)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (folder / "overrides.txt").write_text("\n".join([*project["tool"]["uv"]["override-dependencies"], ""]))
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "-d", str(sources)]
    subprocess.run([*pip, *source_only(requirements)], check=True)
    for path in sorted(sources.glob("*.tar.gz")):
        for python in pythons:
            interpreter = subprocess.run([_UV, "python", "find", "--no-python-downloads", python], capture_output=True)
            if interpreter.returncode == 0:
                subprocess.run([_UV, "build", "--quiet", "--wheel", "--python", python, "-o", folder, path], check=True)


if __name__ == "__main__":
    build(FOLDER)
