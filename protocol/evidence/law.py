"""The envelope of honest work, as bets that no law within it can win on average.

A bet (tilt λ, rate c, most b) on an accumulator pays exp(λ·min(S − c·N, b)) for each problem, or block of them. The
envelope is defined by its bets: it holds every law under which each of them pays at most 1 on average. Calibration
finds rates for which the pool's honest work is inside (calibration/envelope.py); docs/evidence.md has the argument.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from protocol.encoding import Document
from protocol.evidence.sums import ACCUMULATORS, ALL, BLOCK_ACCUMULATORS, Sum

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
