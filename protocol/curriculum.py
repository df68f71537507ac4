"""A curriculum masks problems that the models nearly always or hardly ever solve, until those tries are too old.

It follows from files that were accepted for good. Numbers are integers: nothing is rounded, so whoever has chain and
bucket finds the same.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from protocol.encoding import Document


class Difficulty(StrEnum):
    """What a problem is to the models that tried it."""

    FRESH = "fresh"
    HARD = "hard"
    FITTING = "fitting"
    EASY = "easy"


class Curriculum(Document):
    """Which problems are masked. Rates are thousandths of solved tries; both bounds are included in what is drawn."""

    tries: int = Field(8, ge=1, le=1 << 16, description="Tries before a problem can be masked.")
    lowest: int = Field(125, ge=0, le=1000, description="Mask as too hard below so many thousandths of solved tries.")
    highest: int = Field(875, ge=0, le=1000, description="Mask as too easy above so many thousandths of solved tries.")
    solved: float = Field(1.0, gt=0, le=1, description="Task reward from which on a try counts as solved.")
    window: int = Field(
        16,
        ge=1,
        le=1024,
        description="Policy steps whose final files count; a masked problem comes back after as many.",
    )
    most: int = Field(750, ge=1, le=900, description="Most thousandths of the problems that are masked at a time.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.lowest > self.highest:
            raise ValueError(f"`lowest` is {self.lowest}, above `highest`, {self.highest}")
        if self.lowest == 0 and self.highest == 1000:
            raise ValueError("`lowest` 0 and `highest` 1000 let every problem fit: leave `curriculum` out")
        return self


@dataclass(frozen=True)
class SolveRate:
    """Tries at one problem, and how many of them solved it."""

    tried: int = 0
    solved: int = 0

    def __add__(self, other: "SolveRate") -> "SolveRate":
        return SolveRate(self.tried + other.tried, self.solved + other.solved)

    def difficulty(self, curriculum: Curriculum) -> Difficulty:
        if self.tried < curriculum.tries:
            return Difficulty.FRESH
        if 1000 * self.solved < curriculum.lowest * self.tried:
            return Difficulty.HARD
        return Difficulty.EASY if 1000 * self.solved > curriculum.highest * self.tried else Difficulty.FITTING


@dataclass(frozen=True)
class ProblemTries:
    """The tries of one file at one problem: number `number` (protocol/environments.py) of the pool's environment with
    index `environment`."""

    environment: int
    number: int
    rate: SolveRate


def tries_to_json(tries: Iterable[ProblemTries]) -> list[list[int]]:
    """Encode tries for JSON: [environment, number, tried, solved] of each."""
    return [[one.environment, one.number, one.rate.tried, one.rate.solved] for one in tries]


def tries_from_json(rows: Iterable[Sequence[int]]) -> list[ProblemTries]:
    """Decode what `tries_to_json` encoded. Raises ValueError or TypeError for anything else."""
    return [ProblemTries(index, number, SolveRate(count, solved)) for index, number, count, solved in rows]


def total_rates(tries: Iterable[ProblemTries]) -> dict[tuple[int, int], SolveRate]:
    """Return (environment, number) → the rate over all these tries, whose order changes nothing."""
    found: dict[tuple[int, int], SolveRate] = {}
    for one in tries:
        key = (one.environment, one.number)
        found[key] = found.get(key, SolveRate()) + one.rate
    return found
