"""Following the chain: how fast a history is read, and whether faults ever leave a trace.

`python -m benchmarks indexer [--quick]`. Keys: `events` read over HTTP from another process, checked, stored, decoded
and applied to the state at `events_per_s` (`seconds` of wall time, `cpu_us` of processor time an event, `rss_mb` at the
end); `schedules` of faults tried (benchmarks/schedules.py), `differing`: those whose state differs from one rebuilt
from scratch; `faults`: how many of each kind they met; `load`: the machine's load average at the end.
"""

import os
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.made_up_chain import CHAIN_ID, deployment
from benchmarks.made_up_rpc import endpoint_process
from benchmarks.schedules import run_schedule
from chain.indexer.follower import Follower
from chain.indexer.projection import Projection
from chain.rpc import ChainReader, FailoverProvider

BLOCKS, QUICK_BLOCKS = 20_800, 1_000
FILES = 16
"""Files in a block, 48 events."""
SCHEDULES, QUICK_SCHEDULES = 200, 20


def run(quick: bool, progress: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Both parts; returns the keys of the module's docstring."""
    with tempfile.TemporaryDirectory() as folder:
        found = _back_fill(QUICK_BLOCKS if quick else BLOCKS, Path(folder), progress)
    faults, differing = Counter[str](), 0
    count = QUICK_SCHEDULES if quick else SCHEDULES
    for seed in range(count):
        with tempfile.TemporaryDirectory() as folder:
            same, met = run_schedule(seed, Path(folder))
        faults.update(met)
        differing += not same
        if seed % 20 == 19:
            progress(f"{seed + 1} of {count} schedules, {differing} differ")
    return found | {
        "schedules": count,
        "differing": differing,
        "faults": dict(sorted(faults.items())),
        "load": round(os.getloadavg()[0], 1),
    }


def _back_fill(blocks: int, folder: Path, progress: Callable[[str], None]) -> dict[str, Any]:
    with endpoint_process(blocks, FILES) as (url, events):
        progress(f"{events} events in {blocks} blocks")
        reader = ChainReader(FailoverProvider([url], CHAIN_ID, timeout=60))
        began, spent = time.monotonic(), time.process_time()
        follower = Follower(reader, deployment(), folder / "events.sqlite")
        projection = Projection(follower)
        while projection.state.head < blocks:
            projection.refresh()
        seconds, spent = time.monotonic() - began, time.process_time() - spent
        assert len(projection.state.submissions) == (blocks - 1) * FILES, "every file must be in the state"
        follower.close()
        reader.close()
    progress(f"read in {seconds:.0f} s")
    return {
        "events": events,
        "events_per_s": round(events / seconds),
        "seconds": round(seconds, 1),
        "cpu_us": round(spent / events * 1e6, 1),
        "rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
