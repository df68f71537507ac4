"""What a run takes of its machine, sampled at every policy step: each process's resident memory, and disk."""

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import psutil

from chain.indexer.state import State
from localnet.plan import POOL
from runtime.supervisor import Supervisor
from trainer.reports.records import read_records

MIB = 1 << 20
SHORTEST = 40
"""Policy steps that a process must have lived for its memory to be judged."""


@dataclass(frozen=True)
class FootprintSample:
    """`memory`: process → (pid, MiB resident, with its descendants'); `disk`: MiB that the run's folder takes."""

    step: int
    memory: dict[str, tuple[int, float]]
    disk: float


@dataclass(frozen=True)
class Growth:
    """Median MiB of a process in the second and in the last quarter of its longest life, of `steps` policy steps."""

    process: str
    steps: int
    early: float
    late: float


class Footprint:
    """An onlooker of a run that appends a line to the log at `path` at every new policy step."""

    def __init__(self, supervisor: Supervisor, root: Path, path: Path) -> None:
        self._supervisor, self._root, self._path = supervisor, root, path
        self._step = max((one.step for one in read_samples(path)), default=0)

    def look(self, state: State) -> None:
        pool = state.pools.get(POOL)
        if pool is None or pool.step <= self._step:
            return
        self._step = pool.step
        children = self._supervisor.children.values()
        memory = {one.name: (one.pid, resident(one.pid)) for one in children if one.pid is not None}
        with self._path.open("a") as log:
            log.write(json.dumps(asdict(FootprintSample(pool.step, memory, disk(self._root)))) + "\n")


def read_samples(path: Path) -> list[FootprintSample]:
    """The samples of a log, oldest first; none where there is no log."""
    return [
        FootprintSample(line["step"], {name: (pid, mib) for name, (pid, mib) in line["memory"].items()}, line["disk"])
        for line in read_records(path)
    ]


def resident(pid: int) -> float:
    """MiB of a process and its descendants; 0 if it has just ended."""
    total = 0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            total += one.memory_info().rss
    return round(total / MIB, 1)


def disk(root: Path) -> float:
    """MiB that the files under a folder take."""
    total = 0
    for folder, _, names in os.walk(root):
        for name in names:
            with suppress(FileNotFoundError):  # deleted meanwhile
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return round(total / MIB, 1)


def growths(samples: Sequence[FootprintSample]) -> Iterator[Growth]:
    """How the memory of each process of the last sample has changed. A process that has not lived for `SHORTEST` steps
    is left out."""
    lives: dict[tuple[str, int], list[float]] = defaultdict(list)
    for sample in samples:
        for name, (pid, mib) in sample.memory.items():
            lives[name, pid].append(mib)
    for name in samples[-1].memory if samples else ():
        life = max((mibs for (other, _), mibs in lives.items() if other == name), key=len)
        quarter = len(life) // 4
        if len(life) >= SHORTEST:
            yield Growth(name, len(life), median(life[quarter : 2 * quarter]), median(life[-quarter:]))
