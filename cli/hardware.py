"""What this machine can contribute: processors, memory, disk, accelerators, inference engines."""

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from protocol.errors import MusterError

GIB = 1 << 30


@dataclass(frozen=True)
class Gpu:
    name: str
    memory: int
    driver: str


@dataclass(frozen=True)
class Hardware:
    """Memory and disk in bytes; `disk_free` of the folder that was asked about; `engines` by name; `imprecise`: why
    products in float32 are not what they should be, one line each."""

    system: str
    cpu: str
    cores: int
    memory: int
    memory_free: int
    disk_free: int
    gpus: tuple[Gpu, ...]
    engines: dict[str, bool]
    imprecise: tuple[str, ...]

    def problems(self) -> list[str]:
        """What keeps this machine from being a node, one line each; empty when nothing does."""
        out = []
        if not any(self.engines.values()):
            out.append("no inference engine is installed; run `make setup`")
        if self.memory < 2 * GIB:
            out.append(f"{self.memory / GIB:.1f} GiB of memory is too little; at least 2 GiB are needed")
        if self.disk_free < 2 * GIB:
            out.append(f"{self.disk_free / GIB:.1f} GiB of free disk is too little; at least 2 GiB are needed")
        return out + [f"no work in float32 pools: {line}" for line in self.imprecise]


def survey(folder: Path) -> Hardware:
    """Look at this machine; `folder` is where a node would keep its data."""
    import psutil

    from engines.runtime import vllm_installed

    memory = psutil.virtual_memory()
    transformers = bool(find_spec("torch") and find_spec("transformers"))
    return Hardware(
        system=f"{platform.system()} {platform.machine()}",
        cpu=_cpu_name(),
        cores=len(os.sched_getaffinity(0)),
        memory=memory.total,
        memory_free=memory.available,
        disk_free=shutil.disk_usage(existing(folder)).free,
        gpus=gpus(),
        engines={
            "transformers": transformers,
            "vllm": vllm_installed(),
        },
        imprecise=imprecise() if transformers else (),
    )


def existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(one for one in (folder, *folder.absolute().parents) if one.exists())


def gpus() -> tuple[Gpu, ...]:
    """NVIDIA devices as their driver reports them; none when there is no driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    query = [program, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    rows = [[cell.strip() for cell in line.split(",")] for line in said.stdout.splitlines()]
    return tuple(Gpu(r[0], int(r[1]) << 20, r[2]) for r in rows if len(r) == 3 and r[1].isdigit())


def imprecise() -> tuple[str, ...]:
    """What keeps each device of torch from multiplying in float32."""
    import torch

    from engines.precision import require_full_precision

    found = []
    for device in ("cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))):
        try:
            require_full_precision("float32", device)
        except MusterError as error:
            found.append(str(error))
    return tuple(dict.fromkeys(found))


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"
