"""The null model of honest measurement errors, and the evidence that a node's files add up to against it.

A bet (tilt λ, rate c, most b) on a figure pays exp(λ·min(S − c·N, b)) for each problem of a file (or block of eight).
The null model of a pair of engines is the set of its bets: it holds every distribution of errors under which each bet
pays a file at most 1 on average. It belongs to one policy step, whose weights it was learned with. The step's manifest
holds it, which the owner signs, and whose hash is on chain before the step's seed is known.

The evidence against a node is an e-process over its files. For each bet, wealth is a mixture over the file from which
on the bet is made, so that a node that begins to cheat late is found too: weight 1/(k(k+1)) starts at file k, the rest
waits. With A the wealth at work after n files and e what file n pays,

    A_n = (A_{n−1} + 1/(n(n+1)))·e_n,      M_n = A_n + 1/(n+1).

The total is the mean of M over figures and bets. It starts at 1 and is a supermartingale under the null model, so by
Ville's inequality it ever reaches 1/δ with probability at most δ.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Self

from pydantic import Field, model_validator

from protocol.encoding import Document
from protocol.evidence.figures import BETS, FIGURES, FileFigures, Nats, Sum

FALSE_ACCUSATION = 1e-6
"""Probability that an honest node is ever accused: half for the bets' luck, half for the calibrations'."""
LIMIT_NATS = math.log(2 / FALSE_ACCUSATION)
_Engine = Annotated[str, Field(max_length=200, pattern=r"^[ -~]*$")]
"""A pool's owner writes it, and validators and node operators read it in logs and terminals."""


class Bet(Document):
    """A bet on one figure."""

    tilt: Annotated[float, Field(ge=0, le=1e12)] = Field(description="How steeply it pays; 0 is no bet.")
    rate: Annotated[float, Field(ge=0, le=1e12)] = Field(description="Honest rate of the figure.")
    most: Annotated[float, Field(ge=0, le=1e12)] = Field(description="Most that one problem counts for.")

    def nats(self, units: Sequence[Sum]) -> float:
        """Return the logarithm of what a file pays; `units` are its problems or blocks."""
        if not self.tilt:
            return 0.0
        return self.tilt * math.fsum(min(unit.total - self.rate * unit.count, self.most) for unit in units)


class PairNullModel(Document):
    """The bets against files of one worker engine as one verifier engine sees them."""

    worker: _Engine = Field(description="Arithmetic label of the engine that makes files.")
    verifier: _Engine = Field(description="Arithmetic label of the engine that checks them.")
    bets: dict[str, Annotated[tuple[Bet, ...], Field(min_length=BETS, max_length=BETS)]] = Field(
        description="Two bets on each figure."
    )

    @property
    def made(self) -> int:
        """Number of bets that the calibration had enough problems for."""
        return sum(bool(bet.tilt) for bets in self.bets.values() for bet in bets)

    def nats(self, figures: FileFigures) -> dict[str, tuple[float, ...]]:
        """Return what a file pays in each bet on each figure, as logarithms."""
        return {name: tuple(bet.nats(figures[name]) for bet in bets) for name, bets in self.bets.items()}

    def honest(self) -> dict[str, float]:
        """Return the largest rate of each figure that a bet takes for honest."""
        return {name: max(bet.rate for bet in bets) for name, bets in self.bets.items()}


class StepNullModels(Document):
    """The null models of a policy step, at the audit rate (of 65536) at which they were measured."""

    audit_rate: Annotated[int, Field(ge=1, le=65536)]
    pairs: Annotated[tuple[PairNullModel, ...], Field(min_length=1, max_length=64)]

    @model_validator(mode="after")
    def _known(self) -> Self:
        if len({(pair.worker, pair.verifier) for pair in self.pairs}) < len(self.pairs):
            raise ValueError("two null models are of one pair of engines")
        if unknown := {name for pair in self.pairs for name in pair.bets} - FIGURES.keys():
            raise ValueError(f"no figure is called {min(unknown)}")
        return self

    def pair(self, worker: str, verifier: str) -> PairNullModel | None:
        return next((pair for pair in self.pairs if (pair.worker, pair.verifier) == (worker, verifier)), None)


class EvidenceConfig(Document):
    """How a pool judges a node's history. The null models stand in the manifests of its policy steps."""

    engines: Annotated[tuple[_Engine, ...], Field(min_length=1, max_length=64)] = Field(
        description="Arithmetic labels (`name:dtype:device[:attributes]`) whose files the pool takes: those that its "
        "judges can measure. One without attributes stands for all attributes."
    )
    own_engine: bool = Field(
        False, description="A juror with another engine than the file's may convict in a node challenge, but not clear."
    )

    def refuses(self, engine: str) -> str:
        """Return why the pool takes no files of an engine; empty if it takes them."""
        if any(engine == accepted or engine.startswith(f"{accepted}:") for accepted in self.engines):
            return ""
        return f"the pool's judges cannot measure files of {engine}, only of {', '.join(self.engines)}"


def least(documents: Sequence[Nats]) -> dict[str, tuple[float, ...]]:
    """Return what several documents on one file agree that it pays at least, so that one honest document suffices. A
    figure that a document lacks counts as paying 1: a liar would leave out whatever speaks for the node."""
    names = dict.fromkeys(name for document in documents for name in document)
    nothing = (0.0,) * BETS
    return {
        name: tuple(map(min, zip(*(document.get(name, nothing) for document in documents), strict=True)))
        for name in names
    }


@dataclass
class NodeEvidence:
    """The evidence against one node. `wealth`: ln A of every bet on every figure. `peak`: the largest ln of the total
    so far."""

    files: int = 0
    peak: float = 0.0
    wealth: dict[str, list[float]] = field(default_factory=lambda: {name: [-math.inf] * BETS for name in FIGURES})

    def add(self, nats: Nats) -> None:
        """Settle one more file, in the chain's order. Figures missing in `nats` pay 1."""
        self.files += 1
        start = -math.log(self.files * (self.files + 1))
        for name, own in self.wealth.items():
            paid = nats.get(name, (0.0,) * BETS)
            own[:] = [_sum((wealth, start)) + more for wealth, more in zip(own, paid, strict=True)]
        self.peak = max(self.peak, self.total)

    def nats(self, name: str) -> float:
        """Return ln of a figure's wealth."""
        waiting = -math.log(self.files + 1)
        return _sum([_sum((wealth, waiting)) for wealth in self.wealth[name]]) - math.log(BETS)

    @property
    def total(self) -> float:
        """ln of the mean wealth over all figures."""
        return _sum([self.nats(name) for name in self.wealth]) - math.log(len(self.wealth))

    @property
    def most(self) -> str:
        """The figure that shows most."""
        return max(self.wealth, key=self.nats)

    @property
    def accused(self) -> bool:
        """Whether the peak is beyond what an honest node reaches, except with probability FALSE_ACCUSATION."""
        return self.peak >= LIMIT_NATS


def files_until_accused(nats: Nats, most: int = 256) -> int | None:
    """Return after how many files like one that pays `nats` a node is accused; None if not after `most`."""
    evidence = NodeEvidence()
    while not evidence.accused and evidence.files < most:
        evidence.add(nats)
    return evidence.files if evidence.accused else None


def _sum(logs: Sequence[float]) -> float:
    """ln of the sum of numbers whose logarithms these are, of which one is finite."""
    high = max(logs)
    return high + math.log(math.fsum(math.exp(log - high) for log in logs))
