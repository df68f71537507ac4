"""What this machine can compute with: NVIDIA devices, and what torch makes of them."""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cli

ROOT = Path(cli.__file__).parents[1]


@dataclass(frozen=True)
class Gpu:
    name: str
    memory: int
    driver: str


def gpus() -> tuple[Gpu, ...]:
    """Return NVIDIA devices as their driver reports them; none when there is no driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    query = [program, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"]
    try:
        output = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    rows = [[cell.strip() for cell in line.split(",")] for line in output.splitlines()]
    return tuple(Gpu(r[0], int(r[1]) << 20, r[2]) for r in rows if len(r) == 3 and r[1].isdigit())


_TORCH_PROBE = """
import json, torch
from engines.precision import require_full_precision
from protocol.errors import MusterError
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
wrong = []
for device in ("cpu", *(f"cuda:{number}" for number in range(count))):
    try:
        require_full_precision("float32", device)
    except MusterError as error:
        wrong.append(str(error))
print(json.dumps({"gpus": count, "imprecise": sorted(set(wrong))}))
"""


def torch_devices() -> dict[str, Any]:
    """Return how many `gpus` torch can use and what is `imprecise` in float32, by a process that imports it."""
    order = [sys.executable, "-P", "-c", _TORCH_PROBE]
    try:
        done = subprocess.run(order, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
        return {"gpus": 0, "imprecise": []}
    return found


def existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    return next(one for one in (folder, *folder.absolute().parents) if one.exists())
