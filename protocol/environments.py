"""Which environments a pool's work is drawn from, and which problem of which of them a problem seed stands for."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Self

from pydantic import Field, PositiveInt, model_validator

from protocol.curriculum import Curriculum
from protocol.encoding import Document, tagged_hash, words
from protocol.problems import ProblemFilter, candidate_seed, kept_candidate
from protocol.training import AdvantageName

MAX_ROWS = 1 << 22
MAX_ENVIRONMENTS = 64
MAX_FILE_BYTES = 1 << 28
MAX_ROW_BYTES = 4 << 20


class EnvironmentConfig(Document):
    """One environment; its `targets`, `length_alpha` and `advantage` replace the pool's."""

    name: str = Field(
        pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._/-]{0,199}$", description="Environment, such as reasoning_gym/chain_sum."
    )
    label: str = Field(
        "",
        pattern=r"^([a-zA-Z0-9][a-zA-Z0-9._/-]{0,63}|)$",
        description="Name in metrics and reports; not set: the environment's.",
    )
    weight: int = Field(
        1, ge=1, le=1 << 16, description="Share of the problems, relative to the other environments' weights."
    )
    params: dict[str, Any] = Field(default_factory=dict, description="The environment's own parameters.")
    content: str = Field(
        "",
        pattern=r"^([0-9a-f]{64}|)$",
        description="SHA-256 of the file that defines it; a machine with another file refuses to work.",
    )
    rows: int = Field(
        0, ge=0, le=MAX_ROWS, description="Problems in its data file; 0 where problems are made from seeds."
    )
    held_out: int = Field(0, ge=0, description="How many of these, the last ones, are kept for evaluation.")
    problems: ProblemFilter | None = Field(
        None, description="Draw from these problems only: those that a model solves sometimes (muster env filter)."
    )
    curriculum: Curriculum | None = Field(
        None, description="Mask problems that the run's models always or never solve; needs `rows` or `problems`."
    )
    targets: tuple[PositiveInt, ...] | None = Field(
        None, max_length=64, description="Answer lengths of this environment, instead of the pool's."
    )
    length_alpha: float | None = Field(
        None, ge=0, description="Reward lost for every token off the target, instead of the pool's."
    )
    advantage: AdvantageName | None = Field(None, description="How rewards become advantages, instead of the run's.")
    advantage_scale: float = Field(
        1.0, gt=0, le=100, description="Factor on the advantages of this environment's answers."
    )

    @model_validator(mode="after")
    def _rows_fit(self) -> Self:
        if self.held_out and self.held_out >= self.rows:
            raise ValueError(f"`held_out` is {self.held_out} of {self.rows} `rows`: nothing is left to work on")
        if self.rows and self.problems is not None and self.problems.candidates > self.drawn_rows:
            raise ValueError(f"`problems.candidates` are {self.problems.candidates}, of {self.drawn_rows} rows")
        if self.curriculum is not None and not self.numbered:
            raise ValueError(
                "`curriculum` needs problems that come again, and these are made from any seed: name a data file's "
                "`rows`, or `problems` (muster env filter)"
            )
        return self

    @property
    def called(self) -> str:
        """What people read."""
        return self.label or self.name

    @property
    def drawn_rows(self) -> int:
        """The rows that work is drawn from; 0 where a problem is made from any seed."""
        return self.rows - self.held_out

    @property
    def numbered(self) -> int:
        """How many numbers its problems have: rows that work is drawn from, or candidates of a filter, of which it is
        drawn from some; 0 where a problem is made from any seed."""
        return self.drawn_rows if self.problems is None else self.problems.candidates

    @property
    def kept(self) -> int:
        """How many of these work is drawn from."""
        return self.drawn_rows if self.problems is None else len(self.problems.places)

    def number(self, draw: int) -> int:
        """The number of the problem that the 64-bit number `draw` stands for in work; without numbers the draw."""
        if self.problems is not None:
            return kept_candidate(self.problems, draw)
        return draw % self.drawn_rows if self.rows else draw

    def candidate(self, number: int) -> int:
        """The environment's own seed of candidate `number` of an offline filter: a row, or a public hash."""
        return number if self.rows else candidate_seed(number)

    def own_seed(self, draw: int, held_out: bool = False) -> int:
        """Which of its problems the 64-bit number `draw` stands for: a row, a kept candidate, or the number itself.
        With `held_out`: of those that work is not drawn from."""
        if held_out and self.rows:
            return self.drawn_rows + draw % self.held_out if self.held_out else draw % self.rows
        if held_out:
            return draw
        return self.number(draw) if self.problems is None else self.candidate(self.number(draw))


@dataclass(frozen=True)
class Drawn:
    """A problem: the place of its environment in the pool's list, and the environment's own seed of it (a data file's
    row, counted from 0)."""

    environment: int
    seed: int


def chosen_environment(weights: Sequence[int], problem_seed: int) -> int:
    """The place of the environment that a problem seed falls to, by exact integers: each gets its weight's share of the
    2⁶⁴ values of a public hash, to within one part in 2⁴²."""
    if len(weights) == 1:
        return 0
    (number,) = words(tagged_hash("muster/environment/1", problem_seed), 1)
    number %= sum(weights)
    return next(place for place, bound in enumerate(accumulate(weights)) if number < bound)


def drawn(environments: Sequence[EnvironmentConfig], problem_seed: int, held_out: bool = False) -> Drawn:
    """The problem that a problem seed, 0 ≤ seed < 2⁶⁴, stands for."""
    place = chosen_environment([one.weight for one in environments], problem_seed)
    return Drawn(place, environments[place].own_seed(problem_seed, held_out))
