"""The null model of honest measurement errors, and the evidence that a node's files add up to against it.

Each accumulator adds up a sum S and a count N for every problem of a file (or block of eight problems): problems are
independent draws, the samples of one are not. A bet (tilt λ, rate c, most b) pays exp(λ·min(S − c·N, b)). The null
model is the set of bets: it holds every distribution of errors under which each bet pays at most 1 on average.
`muster pool calibrate` finds the rates (calibration/null_model.py).

The evidence against a node is an e-process over its files. For each bet, wealth is a mixture over the file from which
on the bet is made, so that a node that begins to cheat late is found too: weight 1/(k(k+1)) starts at file k, the rest
waits. With A the wealth at work after n files and e what file n pays,

    A_n = (A_{n−1} + 1/(n(n+1)))·e_n,      M_n = A_n + 1/(n+1).

The total is the mean of M over accumulators and bets. It starts at 1 and is a supermartingale under the null model, so
by Ville's inequality it ever reaches 1/δ with probability at most δ.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Self

from pydantic import Field, model_validator

from protocol.encoding import Document
from protocol.evidence.figures import Blocks, RowFigures

BETS = 5
"""Bets of each accumulator, from small and patient to large and quick."""
FALSE_ACCUSATION = 1e-6
"""Probability that an honest node is ever accused: half for the bets' luck, half for the calibration's."""
LIMIT_NATS = math.log(2 / FALSE_ACCUSATION)
_Number = Annotated[float, Field(ge=-1e12, le=1e12)]
_Engine = Annotated[str, Field(max_length=200, pattern=r"^[ -~]*$")]
"""A pool's owner writes it, and validators and node operators read it in logs and terminals."""
Nats = Mapping[str, Sequence[float]]
"""Accumulator → ln of what a file pays each of its bets."""

ACCUMULATORS: Mapping[str, str] = {
    "mantissas": "mantissa differences, per chunk: other weights or arithmetic",
    "logprobs": "differences of ln p, per token: other weights or arithmetic",
    "unexplained": "tokens that neither the noise nor rounding picked, per token: tokens chosen by other means",
    "gaps": "score gaps of tokens that the noise did not pick, per token: tokens chosen by other means",
}
"""Name → what it adds up, and which cheat that finds."""
BLOCK_ACCUMULATORS: Mapping[str, str] = {
    "coherence": "differences of activations that agree between problems, per pair of problems: other weights"
}
"""The same for what is settled once for a block of problems (protocol/evidence/coherence.py)."""
NAMES = (*ACCUMULATORS, *BLOCK_ACCUMULATORS)


@dataclass(frozen=True)
class Sum:
    """S and N of one accumulator in one problem: in honest work S stays about a rate times N, or below."""

    total: float
    count: float


def problem_sums(rows: Sequence[RowFigures]) -> dict[str, Sum]:
    """Return the sums of the audited rows of one problem."""
    tokens = float(sum(row.tokens for row in rows))
    return {
        "mantissas": Sum(math.fsum(row.mantissas for row in rows), float(sum(row.chunks for row in rows))),
        "logprobs": Sum(math.fsum(row.errors for row in rows), tokens),
        "unexplained": Sum(math.fsum(row.unexplained for row in rows), tokens),
        "gaps": Sum(math.fsum(row.gaps for row in rows), tokens),
    }


def file_sums(rows: Sequence[RowFigures], samples: int) -> list[dict[str, Sum]]:
    """Return the sums of every problem of a file, in order; row r is of problem r // `samples`."""
    problems: dict[int, list[RowFigures]] = {}
    for row in rows:
        problems.setdefault(row.row // samples, []).append(row)
    return [problem_sums(group) for _, group in sorted(problems.items())]


def block_sums(blocks: Blocks) -> list[dict[str, Sum]]:
    """Return the sums of every block of a file."""
    return [{"coherence": Sum(total, float(pairs))} for total, pairs in blocks]


class Bet(Document):
    """A bet on one accumulator."""

    tilt: Annotated[float, Field(ge=0, le=1e12)] = Field(description="How steeply it pays; 0 is no bet.")
    rate: _Number = Field(description="Honest rate of the accumulator.")
    most: Annotated[float, Field(ge=0, le=1e12)] = Field(description="Most that one problem counts for.")

    def nats(self, units: Sequence[Sum]) -> float:
        """Return the logarithm of what a file pays; `units` are its problems or blocks."""
        if not self.tilt:
            return 0.0
        return self.tilt * math.fsum(min(one.total - self.rate * one.count, self.most) for one in units)


class PairNullModel(Document):
    """The bets against files of one worker engine as one verifier engine sees them."""

    worker: _Engine = Field(description="Engine that makes files, `name:dtype:device`.")
    verifier: _Engine = Field(description="Engine that checks them.")
    bets: dict[str, Annotated[tuple[Bet, ...], Field(min_length=BETS, max_length=BETS)]] = Field(
        description="Five bets on each accumulator."
    )

    @property
    def made(self) -> int:
        """Number of bets that the calibration had enough problems for."""
        return sum(bool(bet.tilt) for bets in self.bets.values() for bet in bets)

    @property
    def asked(self) -> int:
        return BETS * len(self.bets)

    def nats(
        self, problems: Sequence[Mapping[str, Sum]], blocks: Sequence[Mapping[str, Sum]] = ()
    ) -> dict[str, tuple[float, ...]]:
        """Return what a file pays in each bet of each accumulator, as logarithms."""
        return {
            name: tuple(bet.nats([one[name] for one in units]) for bet in self.bets[name])
            for names, units in ((ACCUMULATORS, problems), (BLOCK_ACCUMULATORS, blocks))
            for name in names
            if name in self.bets
        }


class EvidenceConfig(Document):
    """What a pool names for judging a node's history."""

    audit_rate: Annotated[int, Field(ge=1, le=65536)] = Field(
        description="Audit rate (of 65536) at which the null models were measured."
    )
    own_engine: bool = Field(
        False, description="A juror with another engine than the file's may convict in a node challenge, but not clear."
    )
    null_models: Annotated[tuple[PairNullModel, ...], Field(min_length=1, max_length=64)] = Field(
        description="One null model for each pair of engines."
    )

    def unseen_by_itself(self) -> str:
        """Return a worker's engine that no null model verifies by itself; empty if there is none."""
        own = {pair.worker for pair in self.null_models if pair.worker == pair.verifier}
        return min({pair.worker for pair in self.null_models} - own, default="")

    def refuses(self, engine: str) -> str:
        """Return why the pool takes no files of an engine: without a null model they add up to nothing. Empty if it
        takes them."""
        known = sorted({pair.worker for pair in self.null_models})
        if engine in known:
            return ""
        return f"the pool has no null model for files of {engine}, only for {', '.join(known)}"

    @model_validator(mode="after")
    def _one_model_per_pair(self) -> Self:
        if len({(pair.worker, pair.verifier) for pair in self.null_models}) < len(self.null_models):
            raise ValueError("two null models are of one pair of engines")
        if self.own_engine and (lacking := self.unseen_by_itself()):
            raise ValueError(f"`own_engine` needs a null model of {lacking} verified by itself")
        if unknown := {name for pair in self.null_models for name in pair.bets} - set(NAMES):
            raise ValueError(f"no accumulator is called {min(unknown)}")
        return self


def least(documents: Sequence[Nats]) -> dict[str, tuple[float, ...]]:
    """Return what several documents on one file agree that it pays at least, so that one honest document suffices. An
    accumulator that a document lacks counts as paying 1: a liar would leave out whatever speaks for the node."""
    names = dict.fromkeys(name for one in documents for name in one)
    nothing = (0.0,) * BETS
    return {name: tuple(map(min, zip(*(one.get(name, nothing) for one in documents), strict=True))) for name in names}


@dataclass
class NodeEvidence:
    """The evidence against one node. `wealth`: ln A of every bet of every accumulator. `peak`: the largest ln of the
    total so far."""

    files: int = 0
    peak: float = 0.0
    wealth: dict[str, list[float]] = field(default_factory=lambda: {name: [-math.inf] * BETS for name in NAMES})

    def add(self, nats: Nats) -> None:
        """Settle one more file, in the chain's order. Accumulators missing in `nats` pay 1."""
        self.files += 1
        start = -math.log(self.files * (self.files + 1))
        for name, own in self.wealth.items():
            paid = nats.get(name, (0.0,) * BETS)
            own[:] = [_plus(one, start) + more for one, more in zip(own, paid, strict=True)]
        self.peak = max(self.peak, self.total)

    def nats(self, name: str) -> float:
        """Return ln of an accumulator's wealth."""
        waiting = -math.log(self.files + 1)
        return _sum([_plus(one, waiting) for one in self.wealth[name]]) - math.log(BETS)

    @property
    def total(self) -> float:
        """ln of the mean wealth over all accumulators."""
        return _sum([self.nats(name) for name in self.wealth]) - math.log(len(self.wealth))

    @property
    def accused(self) -> bool:
        """Whether the peak is beyond what an honest node reaches, except with probability FALSE_ACCUSATION."""
        return self.peak >= LIMIT_NATS


def _plus(a: float, b: float) -> float:
    high, low = max(a, b), min(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


def _sum(logs: Sequence[float]) -> float:
    high = max(logs)
    return high + math.log(math.fsum(math.exp(one - high) for one in logs))
