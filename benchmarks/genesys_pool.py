"""A data pool on the local network, until it has bought what it wants or the time is over; then it goes on another day.

A slice ends with nothing on its way: workers stop first, and the committees judge what they handed in.
"""

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.journal import append, lines, resumed
from chain.indexer.records import Status
from localnet.demo import ResumableDemo, RunMonitor, kept_ports, make_ready
from localnet.plan import POOL, DemoPlan, NodeSpec, ValidatorSpec
from protocol.config import PoolConfig
from protocol.errors import MusterError

PATIENCE, DRAIN_SECONDS, LONGEST_SECONDS = 6, 600.0, 6 * 3600.0
_KEPT = "slices.jsonl"


@dataclass
class Slice:
    """One uninterrupted stretch of the network. `complete`: the pool has what it buys. `files`: accepted so far."""

    plan: DemoPlan
    complete: bool
    files: int
    rejected: int


@contextmanager
def selling(config: PoolConfig, base: Path, root: Path, progress: Callable[[str], None], end: float) -> Iterator[Slice]:
    """Two workers sell to the pool and a committee of eleven seats judges, until all is bought or the monotonic clock
    says `end`. The block runs while the network is still up. What it took is a line of `root`/slices.jsonl."""
    make_ready(root)
    nodes = (NodeSpec("ada", "transformers"), NodeSpec("bob", "transformers"))
    judges = (ValidatorSpec("xena", 11),)
    ports = kept_ports(root / "ports.json")
    plan = DemoPlan(root, 1, 1, *ports, nodes, judges, absentee="", patience=PATIENCE)
    demo, begin, used = ResumableDemo(plan, config, base), time.monotonic(), _cpu()
    found = Slice(plan, False, 0, 0)
    try:
        demo.bring_up()
        monitor = demo._new_monitor()
        found.complete = _until(demo, monitor, min(end, begin + LONGEST_SECONDS))
        if not found.complete:
            demo.network.supervisor.stop(only=lambda child: child.name.startswith("worker"))
            _drain(demo, monitor)
        count = _counted(monitor)
        found.files, found.rejected = count[Status.ACCEPTED], sum(count.values()) - count[Status.ACCEPTED]
        progress(monitor.standing())
        yield found
    finally:
        demo.network.supervisor.stop()
        seconds = round(time.monotonic() - begin)
        took = {"seconds": seconds, "cpu_seconds": round(_cpu() - used), "files": found.files, "largest_mb": _largest()}
        resumed(root / _KEPT)
        append(root / _KEPT, took)


def slices(root: Path) -> list[dict[str, Any]]:
    """What every slice took, in seconds on the clock and of all processes' cores."""
    return lines(root / _KEPT)


def _until(demo: ResumableDemo, monitor: RunMonitor, end: float) -> bool:
    """Whether the trainer, which closes the pool when it has everything, ends in time."""
    while time.monotonic() < end:
        demo.network.check()
        monitor.look()
        if demo.network.supervisor.children["trainer"].finished:
            monitor.look()
            return True
        time.sleep(1)
    return False


def _drain(demo: ResumableDemo, monitor: RunMonitor) -> None:
    end = time.monotonic() + DRAIN_SECONDS
    while _counted(monitor)[Status.PENDING]:
        if time.monotonic() > end:
            raise MusterError(f"files are not judged after {DRAIN_SECONDS:.0f} s", f"see {demo.plan.root / 'logs'}")
        demo.network.check()
        monitor.look()
        time.sleep(1)


def _counted(monitor: RunMonitor) -> dict[Status, int]:
    files = monitor.state.submissions_of(POOL)
    return {status: sum(one.status == status for one in files) for status in Status}


def _cpu() -> float:
    """Core seconds of all ended children and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _largest() -> int:
    """Megabytes of the largest ended child."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
