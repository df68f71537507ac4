"""How soon a machine that joins late generates, and for how long a change of weights stops it.

`python -m benchmarks joiner [--size MB] [--only ENGINE]`. A local network (chain, S3 server, service) with a pool of 50
policy steps, published by the trainer's code with deltas and snapshots, of a random model of SmolLM2-135M's shape (269
MB in bf16; `--size 988`: Qwen2.5-0.5B's). A worker's process starts with nothing. Of each engine, in seconds:
`first_token`, from the start of its process to its first generated token; `download`, one full download from the same
service into an empty cache; `engine_start`, a process that does nothing but start the engine on weights that are here;
`beyond`, what is left of the first after the two others (at most 5); each with `_cpu` in CPU seconds of the process,
which other work on the machine does not lengthen. Further steps are published while it makes files:
`swaps`, changes of weights; `swap_pause`, for how long at most they stopped the making besides the engine's own reload
(at most 0.2), and that reload, `swap_reload`; `overlap`, the share of the fetching that lay beside the making. `load`:
of the machine.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.joiner_network import SHAPES, JoinerNetwork
from benchmarks.joiner_role import TIMELINE
from engines.runtime import torch_environment, vllm_installed
from protocol.errors import ConfigError, MusterError
from runtime.supervisor import Child

ROOT = Path(__file__).parent.parent
STEPS, SWAPS, QUICK_SWAPS = 51, 4, 2
"""Steps that are published before anybody joins, which are 0 to 50."""
_SNAPSHOT = 48
_SECONDS = 1200.0


def run(quick: bool, progress: Callable[[str], None], size: int = 0, only: str = "") -> dict[str, Any]:
    """See the module."""
    size = size or (1 if quick else 269)
    if size not in SHAPES:
        raise ConfigError(f"no model of {size} MB", f"choose one of {', '.join(map(str, SHAPES))}")
    engines = ["transformers", *(["vllm"] if vllm_installed() else [])]
    joiners = [(f"joiner-{engine}", engine) for engine in engines if only in engine]
    with tempfile.TemporaryDirectory(prefix="muster-joiner-") as folder:
        network = JoinerNetwork(Path(folder), size, joiners)
        try:
            network.up()
            network.publish(STEPS, progress)
            found = {engine: joined(network, name, engine, QUICK_SWAPS if quick else SWAPS, progress)
                     for name, engine in joiners}  # fmt: skip
        finally:
            network.down()
    return {"megabytes": size, "steps": STEPS, **found}


def joined(
    network: JoinerNetwork, name: str, engine: str, swaps: int, progress: Callable[[str], None]
) -> dict[str, Any]:
    load = os.getloadavg()[0]
    fresh = network.worker_config(name, engine, f"download-{engine}")
    parts = {
        "download": _role(network, "download", fresh, str(_SNAPSHOT)),
        "engine_start": _role(network, "engine", fresh, str(network.newest)),
    }
    progress(f"{engine}: {parts}")
    config = network.worker_config(name, engine, name)
    argv = [sys.executable, "-P", "-m", "benchmarks.joiner_role", "worker", str(config)]
    worker = network.network.supervisor.start(
        Child(name, argv, network.plan.log(name), _environment(), max_restarts=0, stage=2)
    )
    timeline = network.plan.home(name) / TIMELINE
    said = _until(network, worker, timeline, _swapped(0))
    parts = {"first_token": said, **parts}
    progress(f"{engine}: the first token after {said['seconds']:.1f} s")
    for number in range(1, swaps + 1):
        network.publish(1, progress)
        said = _until(network, worker, timeline, _swapped(number))
    network.network.supervisor.stop(only=lambda child: child is worker)
    metrics = said["metrics"]
    return {
        **_beyond(parts, "seconds", ""),
        **_beyond(parts, "cpu", "_cpu"),
        "swaps": int(metrics["swaps"]),
        "swap_pause": round(metrics["swap_pause"], 3),
        "swap_reload": round(metrics["swap_reload"], 3),
        "overlap": round(metrics["weights_overlapped"] / max(metrics["weights_fetched"], 1e-9), 3),
        "load": round(load, 1),
    }


def _swapped(times: int) -> Callable[[dict[str, Any]], bool]:
    """Whether a worker says that it changed its weights so often."""
    return lambda said: bool(said["metrics"]["swaps"] >= times)


def _beyond(parts: dict[str, dict[str, Any]], unit: str, suffix: str) -> dict[str, float]:
    """Each part in this unit, and what is left of the first after the others."""
    found = {name: one[unit] for name, one in parts.items()}
    found["beyond"] = 2 * found["first_token"] - sum(found.values())
    return {name + suffix: round(value, 2) for name, value in found.items()}


def _environment() -> dict[str, str]:
    """Where processes find this package too, which is not installed with the others."""
    return {**os.environ, **torch_environment(), "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}


def _role(network: JoinerNetwork, *arguments: object) -> dict[str, float]:
    """What a role of one figure says."""
    argv = [sys.executable, "-P", "-m", "benchmarks.joiner_role", *map(str, arguments)]
    done = subprocess.run(argv, env=_environment(), capture_output=True, timeout=_SECONDS, check=False)
    if done.returncode:
        raise MusterError(f"{arguments[0]} failed: {done.stderr.decode(errors='replace')[-1000:]}", "see above")
    network.network.check()
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _until(
    network: JoinerNetwork, worker: Child, timeline: Path, reached: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """What the worker wrote down last, once it is so."""
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        network.network.check()
        said: dict[str, Any] = json.loads(timeline.read_bytes()) if timeline.exists() else {}
        if said and reached(said):
            return said
        time.sleep(0.2)
    raise MusterError(f"{worker.name}: not within {_SECONDS:.0f} s: {worker.tail(5)}", f"see {worker.log_path}")
