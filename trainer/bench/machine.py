"""What a device can do at most, and how much memory a step took on it."""

import contextlib
import re
import resource
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import torch

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def matrix_flops(
    device: torch.device, dtype: torch.dtype, size: int = 0, clock: Callable[[], float] = time.perf_counter
) -> float:
    """The best of a few products of square matrices, in operations a second of `clock`."""
    size = size or (8192 if device.type == "cuda" else 1024)
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    best = 0.0
    for _ in range(6):
        _wait(device)
        start = clock()
        left @ right
        _wait(device)
        best = max(best, 2.0 * size**3 / (clock() - start))
    return best


class PeakMemory:
    """The most memory in use since `reset`, in bytes: of a GPU what torch holds, else what the process has resident."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def reset(self) -> None:
        """Where the system cannot forget an earlier peak, it stays part of the next one."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            return
        with contextlib.suppress(OSError):
            _CLEAR.write_text("5")

    def read(self) -> int:
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        found = re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text()) if _STATUS.exists() else None
        kilobytes = int(found[1]) if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return kilobytes * 1024

    def limit(self) -> int:
        """What the device has for this process: all memory of a GPU, or what is free plus its own."""
        if self._device.type == "cuda":
            return int(torch.cuda.get_device_properties(self._device).total_memory)
        return int(psutil.virtual_memory().available + psutil.Process().memory_info().rss)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
