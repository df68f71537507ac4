"""Builds muster's wheel."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from chain.abi import CONTRACTS
from tools.setup import DASHBOARD_LIBRARIES
from tools.structure import ROOT, tracked

ARTIFACTS = {f"contracts/out/{name}.sol/{name}.json" for name in CONTRACTS}
ARTIFACTS |= {f"orchestrator/dashboard/static/vendor/{name}" for name in DASHBOARD_LIBRARIES}


def build_wheel(folder: Path, change: Callable[[Path], object] = lambda source: None) -> Path:
    """In `folder`, from a copy of the sources, after a `change` of it: setuptools leaves files where it builds."""
    for path in (*tracked(ROOT), *(ROOT / name for name in ARTIFACTS)):
        copy = folder / "source" / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    change(folder / "source")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "-w", str(folder), str(folder / "source")], check=True, timeout=200)
    (built,) = folder.glob("*.whl")
    return built
