"""What a node case should name: of a node's files the shortest run that is no honest node's. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocol.evidence.law import BETS
from protocol.evidence.process import LIMIT_NATS, NAMES, NodeCase
from protocol.verdict import Code
from validator.node_evidence import FileEvidence

SPARE_NATS = 2.0
"""Beyond the bound: a jury's draw names other rows, and these show a little more or less."""


@dataclass(frozen=True)
class NameableRun:
    """The numbers of its first and last file; how many accepted `files` it has, which a case names; `nats`: what they
    add up to."""

    first: int
    last: int
    files: int
    nats: float


def shortest_run(found: Sequence[FileEvidence], most: int, spare: float = SPARE_NATS) -> NameableRun | None:
    """The run of at most `most` accepted files that passes the bound by `spare` nats with the fewest of them, and of
    such the newest, whose bytes are the likeliest to be there; None without one. `found`: all decided files of the node
    in order, from its first."""
    best: tuple[int, int, int] | None = None  # accepted files, minus the first's place, the last's place
    runs = _OpenRuns()
    for place, one in enumerate(found):
        ends = _accepted(one)
        runs.add(place, one, ends)
        runs.keep(runs.files <= (most if best is None else min(most, best[0])))
        # A case ends with a file that it names; others in a run only add what is known of their delivery.
        if ends:
            passed = runs.peak >= LIMIT_NATS + spare
            shown = zip(runs.files[passed].tolist(), (-runs.first[passed]).tolist(), strict=True)
            ended = [(files, first, place) for files, first in shown]
            best = min(ended if best is None else [best, *ended], default=None)
            runs.keep(~passed)
    return None if best is None else _run(found, -best[1], best[2], best[0])


class _OpenRuns:
    """All runs that end with the last file added, side by side: one NodeCase for each file that may begin one. What
    begins with a file of number k weighs the same in each of them."""

    def __init__(self) -> None:
        self.first = np.zeros(0, np.int64)
        self.files = np.zeros(0, np.int64)
        self.peak = np.zeros(0)
        self._wealth = np.zeros((0, len(NAMES) * BETS))

    def add(self, place: int, one: FileEvidence, accepted: bool) -> None:
        """Settle the file at a place of the node's life in every run; if it was accepted, it begins one too."""
        if accepted:
            self.first = np.append(self.first, place)
            self.files = np.append(self.files, 0) + 1
            self.peak = np.append(self.peak, 0.0)
            self._wealth = np.vstack([self._wealth, np.full(len(NAMES) * BETS, -math.inf)])
        number = place + 1
        paid = np.concatenate([one.nats.get(name, (0.0,) * BETS) for name in NAMES])
        self._wealth = np.logaddexp(self._wealth, -math.log(number * (number + 1))) + paid
        total = np.logaddexp.reduce(np.logaddexp(self._wealth, -math.log(number + 1)), axis=1)
        self.peak = np.maximum(self.peak, total - math.log(len(NAMES) * BETS))

    def keep(self, which: NDArray[np.bool_]) -> None:
        """Drop all other runs."""
        self.first, self.files, self.peak = self.first[which], self.files[which], self.peak[which]
        self._wealth = self._wealth[which]


def _run(found: Sequence[FileEvidence], first: int, last: int, files: int) -> NameableRun:
    case = NodeCase(files=first)
    for one in found[first : last + 1]:
        case.add(one.nats)
    return NameableRun(found[first].submission.sequence, found[last].submission.sequence, files, case.peak)


def _accepted(one: FileEvidence) -> bool:
    return Code(one.submission.code).is_accept
