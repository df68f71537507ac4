"""`python -m benchmarks.joiner_role ROLE CONFIG …`: what benchmarks/joiner.py measures, a process for each figure.

`download`: the last snapshot's full shards, through a worker's own client. `engine`: from the start of the process to
an engine that holds the weights of a folder (a second argument). `worker`: a worker that writes down when it had its
first token. Each writes a line of JSON, `seconds` and the process's own `cpu` seconds; the worker a file, again and
again.
"""

import json
import os
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engines.pace import PACE
from protocol.encoding import load_document
from protocol.files import write_atomic
from runtime.process import start
from worker.config import WorkerConfig

if TYPE_CHECKING:
    from worker.daemon import Worker

TIMELINE = "timeline.json"
_LOOK, _WRITE = 0.005, 0.25
_FIRST = {"transformers": 2, "vllm": 1}
"""Steps of an engine's pace after which a token is there: transformers' prompts and the choice after them are two."""


def since_began() -> float:
    """Seconds since this process was started, interpreter and all."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def download(config: WorkerConfig, step: int) -> dict[str, float]:
    """A policy step into an empty cache."""
    from runtime.pool_client import PoolClient

    client = PoolClient(config, None)
    client.refresh()
    began, spent = time.monotonic(), time.process_time()
    client.step_weights(step)
    taken = {"seconds": time.monotonic() - began, "cpu": time.process_time() - spent}
    client.close()
    return taken


def engine(config: WorkerConfig, folder: Path) -> dict[str, float]:
    """From the process's beginning until the engine could generate."""
    config.engine.make().load(folder)
    return {"seconds": since_began(), "cpu": time.process_time()}


def watch(worker: "Worker", home: Path, steps: int) -> None:
    """Write down the time of the first token, which is there after so many steps, and from then on what the worker says
    of itself."""
    while PACE.steps < steps:
        time.sleep(_LOOK)
    first, cpu = since_began(), time.process_time()
    while True:
        said = {"seconds": first, "cpu": cpu, "metrics": worker._heartbeat().metrics}
        write_atomic(home / TIMELINE, json.dumps(said).encode())
        time.sleep(_WRITE)


def watched(config: WorkerConfig) -> "Worker":
    from worker.collaborators import WorkerCollaborators
    from worker.daemon import Worker

    worker = Worker(config, WorkerCollaborators.connect(config))
    threading.Thread(target=partial(watch, worker, config.home, _FIRST[config.engine.name]), daemon=True).start()
    return worker


def main(what: str, path: Path, more: str = "") -> None:
    if what == "worker":
        start(path, WorkerConfig, watched)
    config = load_document(path, WorkerConfig)
    found = download(config, int(more)) if what == "download" else engine(config, Path(more))
    print(json.dumps(found), flush=True)
    os._exit(0)  # an engine takes its process apart for many seconds


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
