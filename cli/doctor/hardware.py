"""Disk and GPU: is there room, is it written fast enough, and does torch see the GPU that the profile names?"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from cli.doctor.base import Prerequisite, failed, note, ok
from cli.hardware import GIB, Gpu, existing

_MIB = 1 << 20
_PIECE, _PIECES = 4 * _MIB, 8
_SLOWEST = 20 * _MIB
_LEAST_FREE = 5 * GIB
_WRITE_SECONDS = 3.0
_TORCH_SECONDS = 120.0


def disk(folder: Path) -> Prerequisite:
    """Room and speed where a process keeps its data."""
    at = existing(folder)
    try:
        return judge_disk(at, shutil.disk_usage(at).free, write_speed(at))
    except OSError as error:
        return failed("disk", f"cannot write in {at}: {error.strerror}", "check its permissions and its room")


def write_speed(folder: Path) -> float:
    """Bytes a second, synced; 32 MiB or three seconds at most. Raises OSError."""
    data, written = os.urandom(_PIECE), 0
    with tempfile.TemporaryFile(dir=folder) as file:
        started = time.monotonic()
        while written < _PIECE * _PIECES and time.monotonic() - started < _WRITE_SECONDS:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            written += _PIECE
        return written / max(1e-6, time.monotonic() - started)


def judge_disk(folder: Path, free: int, speed: float) -> Prerequisite:
    """Bytes, and bytes a second."""
    what = f"{folder}: {free / GIB:.1f} GiB free, written at {speed / _MIB:.0f} MiB/s"
    if free < _LEAST_FREE:
        return failed("disk", what, f"free {_LEAST_FREE / GIB:.0f} GiB, or name another folder in the profile's `home`")
    if speed < _SLOWEST:
        return failed("disk", what, f"use a disk that takes {_SLOWEST / _MIB:.0f} MiB/s")
    return ok("disk", what)


def gpu(device: str, found: Sequence[Gpu]) -> Prerequisite:
    """`device`: what the profile computes on."""
    return judge_gpu(device, found, torch_devices() if found and device != "cpu" else 0)


def torch_devices() -> int:
    """How many GPUs torch can use: 0 also where it is built without CUDA, or is missing."""
    code = "import torch; print(torch.cuda.device_count() if torch.cuda.is_available() else 0)"
    order = [sys.executable, "-P", "-c", code]
    try:
        said = subprocess.run(order, capture_output=True, text=True, timeout=_TORCH_SECONDS, check=False)
        return int(said.stdout.strip() or 0)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return 0


def judge_gpu(device: str, found: Sequence[Gpu], usable: int) -> Prerequisite:
    """`usable`: the GPUs that torch can use."""
    names = ", ".join(f"{one.name} ({one.memory / GIB:.0f} GiB, driver {one.driver})" for one in found) or "none"
    if device == "cpu":
        return note("gpu", f"{names}; the profile computes on the CPU") if found else ok("gpu", "none, none is wanted")
    if not found:
        return failed("gpu", f"the profile wants {device}, no driver answers", "install NVIDIA's driver, or set cpu")
    if not usable:
        return failed("gpu", f"{names}; torch cannot use it", "install torch's build for CUDA that the driver supports")
    return ok("gpu", f"{names}; torch can use {usable}")
