"""How long a policy step takes to thousands of nodes: the scheduling code on a virtual network.

`python -m benchmarks spread [--quick] [--only TEXT] [--count PEERS] [--seconds S] [--resume]`. A small case is
measured, a real download from nine real sources, and simulated: `measured_small`, `simulated_small` are seconds
{honest, hostile: three of the nine}.
There are two large ones. *step*: the delta of a 7B model's step at a learning rate of 1e-6, 95 MB in shards of 1 MiB
(its 14 GB in full would take 37 minutes through such lines), to 10,000 honest `peers` with 50 Mb/s up and 200 Mb/s
down. *full*: 62 GB to 1,000 with 1 Gb/s both ways, in shards of 32 MiB, as full weights are. A bucket of 10 Gb/s has
them at first. `tree`: everybody asks eight of 64 relays of 10 Gb/s. `peers`: everybody serves and knows 64 others.
`both`: 16 relays, and everybody serves. `hostile_share` of all relays are hostile, and so many peers beside the honest
ones: they send wrong bytes, a byte a second, nothing, or half a shard of wrong bytes. `seconds`: until the last honest
node has everything; `cases` tells more. `--count`: so many peers instead of 10,000, relays and the bucket's line in
proportion; `--quick`: 200.
"""

import json
import math
import pickle
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.broadcast import RATE, SHARD, SHARDS, against, made
from benchmarks.flows import Lines
from benchmarks.spread_network import Simulation
from benchmarks.spread_parts import NodeCrowd, NodeKind
from protocol.files import write_atomic
from runtime.pool_sources import AT_ONCE
from storage.sources import place

MEGABIT = 1e6 / 8
HOSTILE_SHARE = 1 / 3
SORTS = (NodeKind.POISON, NodeKind.DRIP, NodeKind.SILENT, NodeKind.BREAK)
RELAYS_KNOWN, PEERS_KNOWN = 8, AT_ONCE
SMALL_SOURCES = 9
"""Of the small case, three of them hostile: each kind that both the virtual network and the real one have."""
LONGEST, KEEP_SECONDS = 7200.0, 60.0
KEPT = Path(__file__).parent.parent / "build" / "spread"
IMAGE = Path(__file__).parent.parent / "docs" / "images" / "spread.png"


@dataclass(frozen=True)
class SpreadCase:
    """`bytes` in shards of `shard` to so many honest `peers`; lines in Mb/s."""

    name: str
    bytes: int
    shard: int
    peers: int
    up: float
    down: float
    relays: int
    serve: bool
    relay_line: float = 10_000.0
    bucket_line: float = 10_000.0
    slice_seconds: float = 0.1
    seed: int = 1


_STEP = SpreadCase("step", 95 * 10**6, 1 << 20, 10_000, 50.0, 200.0, 64, False)
_FULL = SpreadCase("full", 62 * 10**9, 32 << 20, 1_000, 1_000.0, 1_000.0, 64, False, slice_seconds=0.5)
CASES = tuple(
    replace(case, name=f"{case.name} {mode}", relays=relays, serve=mode != "tree")
    for case in (_STEP, _FULL)
    for mode, relays in (("tree", case.relays), ("peers", 0), ("both", case.relays // 4))
)


def scaled(case: SpreadCase, share: float) -> SpreadCase:
    """With so many times the peers, and what the others can send in proportion."""
    relays = max(3, round(case.relays * share)) if case.relays else 0
    line = case.relay_line * case.relays * share / relays if relays else 0.0
    bucket = case.bucket_line * share
    return replace(case, peers=round(case.peers * share), relays=relays, relay_line=line, bucket_line=bucket)


def network(case: SpreadCase) -> NodeCrowd:
    """Node 0 is the bucket, then the relays, then the peers, the honest and the hostile in any order."""
    dice, serving = random.Random(case.seed), case.peers if case.serve else 0
    relays = _mixed(dice, case.relays - round(case.relays * HOSTILE_SHARE), round(case.relays * HOSTILE_SHARE))
    peers = _mixed(dice, case.peers, round(serving * HOSTILE_SHARE / (1 - HOSTILE_SHARE)))
    kinds = [NodeKind.HONEST, *relays, *peers]
    first, count = 1 + len(relays), -(-case.bytes // case.shard)
    lines = [
        np.array([bucket, *[relay] * len(relays), *[peer] * len(peers)]) * MEGABIT
        for bucket, relay, peer in (
            (case.bucket_line, case.relay_line, case.up),
            (case.bucket_line, case.relay_line, case.down),
        )
    ]
    keys = [f"shards/{number}" for number in range(count)]
    ranks = [[0.0] + [_rank(key, node) for node in range(1, len(kinds))] for key in keys]
    for row in ranks:
        row[1:first] = [one / 1e6 for one in row[1:first]]
    return NodeCrowd(
        kinds,
        [_sources(dice, case, node, first, len(kinds)) for node in range(len(kinds))],
        [list(range(count)) if node >= first and kind is NodeKind.HONEST else [] for node, kind in enumerate(kinds)],
        Lines(*lines),
        count,
        case.shard,
        ranks=ranks,
        relays=len(relays),
    )


def _mixed(dice: random.Random, honest: int, hostile: int) -> list[NodeKind]:
    kinds = [NodeKind.HONEST] * honest + [SORTS[number % len(SORTS)] for number in range(hostile)]
    dice.shuffle(kinds)
    return kinds


def _rank(key: str, node: int) -> float:
    return int.from_bytes(place(key, f"http://{node}/v1/objects")[:6], "big") / 2**48


def _sources(dice: random.Random, case: SpreadCase, node: int, first: int, nodes: int) -> list[int]:
    """What `runtime.pool_sources` makes of the service's list: a few others, in a drawn order, and the bucket, which
    relays ask first and everybody else last."""
    others = [one for one in dice.sample(range(1, first), min(RELAYS_KNOWN, first - 1)) if one != node]
    if node == 0:
        return []
    if node < first:
        return [0, *others]
    if case.serve:
        others += [one for one in dice.sample(range(first, nodes), min(PEERS_KNOWN, nodes - first)) if one != node]
    dice.shuffle(others)
    return [*others, 0]


def simulated(case: SpreadCase, progress: Callable[[str], None], state: Path | None = None,
              end: float = math.inf) -> dict[str, Any] | None:  # fmt: skip
    """`curve`: every so many seconds, the share of all shards that are where they are wanted. What has been simulated
    lies in `state` now and then; None: not done when the monotonic clock stood at `end`, to be gone on with."""
    here = (
        Progress(case, Simulation(network(case), case.slice_seconds)) if state is None else kept_progress(case, state)
    )
    run, last = here.run, time.monotonic()
    while run.unserved and run.now < LONGEST:
        now = time.monotonic()
        if state is not None and (now >= end or now - last >= KEEP_SECONDS):
            write_atomic(state, pickle.dumps(here))
            last = now
            if now >= end:
                return None
        if run.now >= here.next_word:
            here.curve.append((round(run.now, 1), round(run.share(), 4)))
            progress(f"{case.name}: {run.now:.0f} s, {100 * run.share():.1f}%, {run.unserved} nodes are not done")
            here.next_word += 20 * case.slice_seconds * (1 if len(here.curve) < 60 else 5)
        run.advance()
    done, copies = np.sort(run.seconds[np.isfinite(run.seconds)]), run.sent / case.bytes
    return {
        "seconds": round(run.now, 1) if not run.unserved else None,
        "median_seconds": round(float(np.median(done)), 1) if len(done) else None,
        "bucket_copies": round(float(copies[0]), 1),
        "sent_per_copy": round(float(copies.sum()) / case.peers, 3),
        "peers": case.peers,
        "curve": [*here.curve, (round(run.now, 1), round(run.share(), 4))],
    }


@dataclass
class Progress:
    """How far a case has been simulated."""

    case: SpreadCase
    run: Simulation
    curve: list[tuple[float, float]] = field(default_factory=list)
    next_word: float = 0.0


def kept_progress(case: SpreadCase, state: Path) -> Progress:
    """What a former process left of this very case, or its beginning."""
    if state.exists():
        found = pickle.loads(state.read_bytes())
        if isinstance(found, Progress) and found.case == case:
            return found
    return Progress(case, Simulation(network(case), case.slice_seconds))


def small(hostile: bool) -> float:
    """Seconds that a download like that of `benchmarks.broadcast` takes on the virtual network."""
    kinds = [NodeKind.HONEST] * SMALL_SOURCES
    if hostile:
        kinds[:3] = NodeKind.POISON, NodeKind.DRIP, NodeKind.BREAK
    random.Random(SHARDS).shuffle(kinds)
    nodes = [NodeKind.HONEST, *kinds, NodeKind.HONEST]
    names = list(range(1, SMALL_SOURCES + 1))
    lines = Lines(np.full(len(nodes), float(RATE)), np.full(len(nodes), 1e12))
    sources: list[list[int]] = [[] for _ in nodes]
    orders: list[list[int]] = [[] for _ in nodes]
    sources[-1], orders[-1] = names, list(range(SHARDS))
    holders = frozenset(name for name in names if nodes[name] is NodeKind.HONEST)
    run = Simulation(
        NodeCrowd(nodes, sources, orders, lines, SHARDS, SHARD, holders, parallel=SMALL_SOURCES, latency=0.0)
    )
    run.run(LONGEST)
    return round(run.now, 2)


def run(
    quick: bool,
    progress: Callable[[str], None],
    only: str = "",
    resume: bool = False,
    count: int = 0,
    seconds: int | None = None,
) -> dict[str, Any]:
    """See the module. `seconds`: of the simulations, which `resume` goes on with; a case that is not done by then is
    left out."""
    found, end = dict[str, dict[str, Any]](), time.monotonic() + (seconds or math.inf)
    for case in CASES:
        if only not in case.name:
            continue
        case = scaled(case, (200 if quick else count or _STEP.peers) / _STEP.peers)
        kept = KEPT / f"{case.name.replace(' ', '-')}-{case.peers}.json"
        state = kept.with_suffix(".state")
        kept.parent.mkdir(parents=True, exist_ok=True)
        if not resume:
            kept.unlink(missing_ok=True)
            state.unlink(missing_ok=True)
        if not kept.exists():
            done = simulated(case, progress, state, end) if time.monotonic() < end else None
            if done is None:
                continue
            write_atomic(kept, json.dumps(done).encode())
            state.unlink(missing_ok=True)
        found[case.name] = json.loads(kept.read_bytes())
        progress(f"{case.name}: {found[case.name]['seconds']} s")
    if not (quick or only or count) and len(found) == len(CASES):
        draw(found, IMAGE)
    objects = made(SHARDS)
    hostile = ["poison", "drip", "break"] + ["honest"] * (SMALL_SOURCES - 3)
    measured = {"honest": against(objects, ["honest"] * SMALL_SOURCES)[0], "hostile": against(objects, hostile)[0]}
    return {
        "peers": {name: one["peers"] for name, one in found.items()},
        "seconds": {name: one["seconds"] for name, one in found.items()},
        "hostile_share": round(HOSTILE_SHARE, 3),
        "measured_small": {name: round(value, 2) for name, value in measured.items()},
        "simulated_small": {"honest": small(False), "hostile": small(True)},
        "cases": {name: {key: value for key, value in one.items() if key != "curve"} for name, one in found.items()},
    }


def draw(found: dict[str, dict[str, Any]], path: Path) -> None:
    """A panel for each size, a line for each arrangement."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    titles = {"step": "7B step, 95 MB, {:,} peers at 50 Mb/s up", "full": "62 GB in full, {:,} clients at 1 Gb/s"}
    for axes, (start, title) in zip(figure.subplots(1, 2), titles.items(), strict=True):
        cases = {name.removeprefix(start).strip(): one for name, one in found.items() if name.startswith(start)}
        for name, one in cases.items():
            times, shares = zip(*one["curve"], strict=True)
            axes.plot(times, [100 * share for share in shares], label=name)
        peers = max(one["peers"] for one in cases.values())
        axes.set(
            title=title.format(peers), xlabel="simulated seconds", ylabel="% of all shards delivered", ylim=(0, 102)
        )
        axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)
