"""What this machine can compute with: NVIDIA devices, and what torch makes of them."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
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
    uuid: str = ""


def gpus() -> tuple[Gpu, ...]:
    """Return NVIDIA devices as their driver reports them, of which CUDA_VISIBLE_DEVICES leaves us some; none when
    there is no driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    query = [program, "--query-gpu=name,memory.total,driver_version,uuid", "--format=csv,noheader,nounits"]
    try:
        output = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    rows = [[cell.strip() for cell in line.split(",")] for line in output.splitlines()]
    found = tuple(Gpu(r[0], int(r[1]) << 20, r[2], r[3]) for r in rows if len(r) == 4 and r[1].isdigit())
    return visible(found, os.environ.get("CUDA_VISIBLE_DEVICES"))


def visible(cards: Sequence[Gpu], names: str | None) -> tuple[Gpu, ...]:
    """Return the cards that CUDA_VISIBLE_DEVICES names by number or UUID, in its order: like CUDA, up to the first name
    that no card has. None: all."""
    if names is None:
        return tuple(cards)
    out: list[Gpu] = []
    for name in map(str.strip, names.split(",")):
        numbered = cards[int(name) : int(name) + 1] if name.isdecimal() else ()
        named = numbered or [card for card in cards if name and card.uuid.startswith(name)]
        if len(named) != 1:
            break
        out += named
    return tuple(out)


def device_files() -> tuple[str, ...]:
    """Return the files of NVIDIA cards, which are there where a card is, whatever else is installed."""
    return tuple(sorted(str(path) for path in Path("/dev").glob("nvidia[0-9]*")))


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
build = torch.version.cuda or ""
print(json.dumps({"gpus": count, "imprecise": sorted(set(wrong)), "build": f"{torch.__version__} {build}".strip()}))
"""


def torch_devices() -> dict[str, Any]:
    """Return how many `gpus` torch can use, what is `imprecise` in float32 and torch's `build` (its version, and that
    of CUDA if it has one), by a process that imports it."""
    order = [sys.executable, "-P", "-c", _TORCH_PROBE]
    try:
        done = subprocess.run(order, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
        return {"gpus": 0, "imprecise": [], "build": ""}
    return found


def existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    return next(one for one in (folder, *folder.absolute().parents) if one.exists())
