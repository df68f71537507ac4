"""Cheats that watch their own evidence: they cheat while their case leaves room below the bound, else they are honest.

However such a node decides, as long as it does before it sees the file's problems, let a cheated file pay a bet g nats
on average and an honest one −h. What it has paid in n files, k of them cheated, is a martingale plus g·k − h·(n − k),
and more than `ROOM` plus one file's payment it never is, or the node is accused. So the mean of k is at most

    (ROOM + m + n·h) / (g + h),     m: the most that a file pays the bet,

for each bet, and the least of these counts. Who makes a file both ways and hands in the cheated one where it shows
least has a smaller g than the mean over files.
"""

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.evidence_lives import Array, Table
from protocol.evidence.law import BETS
from protocol.evidence.process import LIMIT_NATS, NAMES, NodeCase

ROOM = LIMIT_NATS + math.log(len(NAMES) * BETS) + math.log(2)
"""Nats of one bet made from the first file on, beyond which the case is beyond the bound: it is a mean over all bets,
and half of each waits at the start."""


@dataclass(frozen=True)
class WatcherRun:
    """Of several nodes: files that each cheated in, and how many nodes were accused."""

    cheated: list[int]
    accused: int


def bound(cheat: Table, honest: Table, files: int) -> float:
    """How many of `files` files a node can cheat in, on average, without being accused; rows of both tables are whole
    files."""
    g, h = cheat.nats.mean(axis=0), -honest.nats.mean(axis=0)
    most = np.maximum(cheat.nats.max(axis=0), honest.nats.max(axis=0)).clip(min=0)
    caught = g + h > 0
    least = ((ROOM + most + files * np.maximum(h, 0))[caught] / (g + h)[caught]).min(initial=float(files))
    return min(float(files), float(least))


def watch(cheat: Table, honest: Table, margin: float, files: int, nodes: int, rng: np.random.Generator) -> WatcherRun:
    """Each of `nodes` nodes cheats in its next file whenever its case is `margin` nats or more below the bound."""
    counts, accused = [], 0
    for _ in range(nodes):
        case, cheated = NodeCase(), 0
        for _ in range(files):
            dares = case.total <= LIMIT_NATS - margin
            case.add(_paid(cheat if dares else honest, rng))
            cheated += dares
            if case.accused:
                accused += 1
                break
        counts.append(cheated)
    return WatcherRun(counts, accused)


def _paid(table: Table, rng: np.random.Generator) -> dict[str, tuple[float, ...]]:
    row: Array = table.nats[rng.integers(len(table.nats))]
    return {name: tuple(row[place].tolist()) for place, name in enumerate(NAMES)}
