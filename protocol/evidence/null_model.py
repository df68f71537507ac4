"""What each accumulator adds up: a sum S and a count N for every problem of a file.

Problems of a file are independent draws, the samples of one are not: a bet is settled once per problem. Each
accumulator looks at what another kind of cheat moves.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from protocol.documents import Document
from protocol.evidence.figures import Blocks, RowFigures


@dataclass(frozen=True)
class Sum:
    """S and N of one accumulator in one problem: in honest work S stays about a rate times N, or below."""

    total: float
    count: float


ACCUMULATORS: Mapping[str, str] = {
    "mantissas": "mantissa differences, per chunk: other weights or arithmetic",
    "logprobs": "differences of ln p, per token: other weights or arithmetic",
    "misses": "tokens that the noise did not pick, per token: tokens chosen by other means",
    "unexplained": "such tokens whose ln p differs too little for rounding to have picked them, per token: the same",
    "gaps": "score gaps of such tokens, per token: tokens chosen as far off as the file's threshold allows",
    "steering": "rewards of rows with such tokens above those of the problem's other rows: tokens chosen for reward",
    "surprise": "chosen tokens less probable than samples are, per token: text of another model",
    "dullness": "chosen tokens more probable than samples are, per token: text without the noise's luck",
}
"""Name → what it adds up, and whom that finds."""
BLOCK_ACCUMULATORS: Mapping[str, str] = {
    "coherence": "differences of activations that agree between problems, per pair of these: other weights",
}
"""The same of what is settled once for a block of problems (protocol/evidence/coherence.py)."""
ALL = (*ACCUMULATORS, *BLOCK_ACCUMULATORS)


def problem_sums(rows: Sequence[RowFigures]) -> dict[str, Sum]:
    """The sums of the audited rows of one problem."""
    tokens = float(sum(row.tokens for row in rows))
    return {
        "mantissas": Sum(math.fsum(row.mantissas for row in rows), float(sum(row.chunks for row in rows))),
        "logprobs": Sum(math.fsum(row.errors for row in rows), tokens),
        "misses": Sum(float(sum(row.misses for row in rows)), tokens),
        "unexplained": _unexplained(rows, tokens),
        "gaps": Sum(math.fsum(row.gaps for row in rows), tokens),
        "steering": _steering(rows),
        "surprise": Sum(math.fsum(row.surprise for row in rows), tokens),
        "dullness": Sum(math.fsum(row.dullness for row in rows), tokens),
    }


def file_sums(rows: Sequence[RowFigures], samples: int) -> list[dict[str, Sum]]:
    """The sums of every problem of a file, in order; row r is of problem r // `samples`."""
    problems: dict[int, list[RowFigures]] = {}
    for row in rows:
        problems.setdefault(row.row // samples, []).append(row)
    return [problem_sums(group) for _, group in sorted(problems.items())]


def block_sums(blocks: Blocks) -> list[dict[str, Sum]]:
    """The sums of every block of a file."""
    return [{"coherence": Sum(total, float(pairs))} for total, pairs in blocks]


def _unexplained(rows: Sequence[RowFigures], tokens: float) -> Sum:
    """Older documents do not say: nothing is counted, so that every bet pays 1."""
    known = [row.unexplained for row in rows if row.unexplained is not None]
    return Sum(math.fsum(known), tokens) if len(known) == len(rows) else Sum(0.0, 0.0)


def _steering(rows: Sequence[RowFigures]) -> Sum:
    """Reward of each row with a miss, less the mean of the others: rounding knows nothing of rewards, so that in honest
    work a miss gains as often as it loses, up to what else rows with misses have in common (their length), which
    calibration sees too."""
    everything = math.fsum(row.reward for row in rows)
    missed = [row for row in rows if row.misses]
    if len(rows) < 2:
        return Sum(0.0, 0.0)
    return Sum(math.fsum(row.reward - (everything - row.reward) / (len(rows) - 1) for row in missed), len(missed))


# ~ The envelope of honest work, as bets that no law within it can win on average.
# ~
# ~ A bet (tilt λ, rate c, most b) on an accumulator pays exp(λ·min(S − c·N, b)) for each problem, or block of them. The
# ~ envelope is defined by its bets: it holds every law under which each of them pays at most 1 on average. Calibration
# ~ finds rates for which the pool's honest work is inside (calibration/null_model.py); docs/evidence.md has the argument.


BETS = 5
"""Bets of each accumulator, from small and patient to large and quick."""
_Number = Annotated[float, Field(ge=-1e12, le=1e12)]
_Engine = Annotated[str, Field(max_length=200, pattern=r"^[ -~]*$")]
"""A pool's owner writes it, and validators and node operators read it in logs and terminals."""


class Bet(Document):
    """`tilt` 0 is no bet: it pays 1 whatever happens."""

    tilt: Annotated[float, Field(ge=0, le=1e12)]
    rate: _Number
    most: Annotated[float, Field(ge=0, le=1e12)]

    def nats(self, problems: Sequence[Sum]) -> float:
        """The logarithm of what a file pays."""
        if not self.tilt:
            return 0.0
        return self.tilt * math.fsum(min(one.total - self.rate * one.count, self.most) for one in problems)


class PairLaw(Document):
    """The bets against files of one worker engine as one verifier engine sees them (`name:dtype:device`)."""

    worker: _Engine
    verifier: _Engine
    bets: dict[str, Annotated[tuple[Bet, ...], Field(min_length=BETS, max_length=BETS)]]

    @property
    def made(self) -> int:
        """Bets that the calibration had enough problems for."""
        return sum(bool(bet.tilt) for bets in self.bets.values() for bet in bets)

    @property
    def asked(self) -> int:
        return BETS * len(self.bets)

    def nats(
        self, problems: Sequence[Mapping[str, Sum]], blocks: Sequence[Mapping[str, Sum]] | None = None
    ) -> dict[str, tuple[float, ...]]:
        """What a file pays in each bet of each accumulator, as logarithms; without `blocks` in those of problems."""
        settled = [(ACCUMULATORS, problems), *([(BLOCK_ACCUMULATORS, blocks)] if blocks is not None else [])]
        return {
            name: tuple(bet.nats([one[name] for one in units]) for bet in self.bets[name])
            for names, units in settled
            for name in names
            if name in self.bets
        }


class EvidenceConfig(Document):
    """What a pool names for adding up a node's files: laws that were learned at this audit rate (of 65536).
    `own_engine`: of a node case, who measures a file with another engine than its worker's may convict, but not clear.
    """

    audit_rate: Annotated[int, Field(ge=1, le=65536)]
    own_engine: bool = False
    laws: Annotated[tuple[PairLaw, ...], Field(min_length=1, max_length=64)]

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """As pools wrote it before there was `own_engine`, where that is not set: their configuration's hash stays."""
        out: dict[str, Any] = write(self)
        return out if self.own_engine else {name: value for name, value in out.items() if name != "own_engine"}

    def unseen_by_itself(self) -> str:
        """A worker's engine that no law has as its own verifier; empty if each has one."""
        own = {law.worker for law in self.laws if law.worker == law.verifier}
        return min({law.worker for law in self.laws} - own, default="")

    def refuses(self, engine: str) -> str:
        """Why files of an engine (`name:dtype:device`) cannot be taken: they could add up to nothing. Empty if they
        can."""
        known = sorted({law.worker for law in self.laws})
        return (
            ""
            if engine in known
            else f"the pool's law of evidence knows no files of {engine}, only of {', '.join(known)}"
        )

    @model_validator(mode="after")
    def _one_law_a_pair(self) -> Self:
        if len({(law.worker, law.verifier) for law in self.laws}) < len(self.laws):
            raise ValueError("two laws are of one pair of engines")
        if self.own_engine and (lacking := self.unseen_by_itself()):
            raise ValueError(f"`own_engine` wants a law of {lacking} seen by itself")
        if unknown := {name for law in self.laws for name in law.bets} - set(ALL):
            raise ValueError(f"no accumulator is called {min(unknown)}")
        return self


def least(documents: Sequence[Mapping[str, tuple[float, ...]]]) -> dict[str, tuple[float, ...]]:
    """What several documents on one file agree that it pays at least. One honest document among them suffices: the
    least pays no more than that one does. In an accumulator that a document lacks it says that the file pays 1: were
    that left out with what the others say, a liar would lack whatever speaks for the node."""
    names = dict.fromkeys(name for one in documents for name in one)
    nothing = (0.0,) * BETS
    return {name: tuple(map(min, zip(*(one.get(name, nothing) for one in documents), strict=True))) for name in names}


# ~ A node's evidence over its files: an e-process, a wealth that honest work multiplies on average by at most 1.
# ~
# ~ For each bet of each accumulator, wealth is a mixture over the file from which on the bet is made, so that a node that
# ~ begins to cheat late is found too: weight 1/(k(k+1)) starts at file k, the rest waits. With A the wealth at work after
# ~ n files and e what file n pays,
# ~
# ~     A_n = (A_{n−1} + 1/(n(n+1)))·e_n,      M_n = A_n + 1/(n+1).
# ~
# ~ The case is the mean of M over accumulators and bets. It starts at 1 and is a supermartingale under every honest law,
# ~ so by Ville's inequality it ever reaches 1/δ with probability at most δ.


FALSE_ACCUSATION = 1e-6
"""Of a whole life of a node: half for the bets' luck, half for the calibration's."""
LIMIT_NATS = math.log(2 / FALSE_ACCUSATION)
DELIVERIES = "deliveries"
"""The accumulator of drawn work that was not handed in; the chain alone says it."""
ALLOWED_UNDELIVERED = 0.1
"""The share of its drawn files that an honest node may fail to hand in, whatever came before."""
_STAKES = (0.5, 1.0, 2.0, 4.0, 8.0)
NAMES = (*ALL, DELIVERIES)


def delivery_nats(delivered: bool) -> tuple[float, ...]:
    """What one drawn file pays in the bets against refusing: 1 + η(x − allowed), x = 1 for one not handed in."""
    off = (0.0 if delivered else 1.0) - ALLOWED_UNDELIVERED
    return tuple(math.log1p(stake * off) for stake in _STAKES)


@dataclass
class NodeCase:
    """The case against one node. `wealth`: ln A of every bet of every accumulator; `files` that were added; `peak`: the
    largest ln of the case there ever was."""

    files: int = 0
    peak: float = 0.0
    wealth: dict[str, list[float]] = field(default_factory=lambda: {name: [-math.inf] * BETS for name in NAMES})

    def add(self, nats: Mapping[str, Sequence[float]]) -> None:
        """Settle one more file, in the chain's order. What accumulators are missing in `nats` pay 1."""
        self.files += 1
        start = -math.log(self.files * (self.files + 1))
        for name, own in self.wealth.items():
            paid = nats.get(name, (0.0,) * BETS)
            own[:] = [_plus(one, start) + more for one, more in zip(own, paid, strict=True)]
        self.peak = max(self.peak, self.total)

    def nats(self, name: str) -> float:
        """ln of an accumulator's wealth."""
        waiting = -math.log(self.files + 1)
        return _sum([_plus(one, waiting) for one in self.wealth[name]]) - math.log(BETS)

    @property
    def total(self) -> float:
        """ln of the case."""
        return _sum([self.nats(name) for name in self.wealth]) - math.log(len(self.wealth))

    @property
    def accused(self) -> bool:
        """Whether it ever was beyond what an honest node reaches, but with probability FALSE_ACCUSATION."""
        return self.peak >= LIMIT_NATS


def _plus(a: float, b: float) -> float:
    high, low = max(a, b), min(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


def _sum(logs: Sequence[float]) -> float:
    high = max(logs)
    return high + math.log(math.fsum(math.exp(one - high) for one in logs))
