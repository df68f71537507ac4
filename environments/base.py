"""What an environment is: problems drawn from a seed, and a scorer that anyone can run again with the same result."""

from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Problem:
    """A question with its reference answer; `metadata` is what the environment's own scorer needs besides.

    `fault`: why the environment has no problem for this seed, on every machine alike; what stands in its place is then
    asked, and every answer to it is worth 0.
    """

    question: str
    answer: str
    metadata: dict[str, Any] = field(default_factory=dict)
    fault: str = ""


@dataclass(frozen=True)
class Declaration:
    """What an environment says of itself. `content`: hex SHA-256 of what defines its problems and scores; `licence` of
    that. Longer answers than `answer_chars` are worth nothing; no score takes more than `seconds`."""

    name: str
    version: str
    content: str
    licence: str
    answer_chars: int
    seconds: float


class Environment(Protocol):
    """Deterministic: the same seed gives the same problem in every process, the same text the same score."""

    @property
    def declared(self) -> Declaration: ...

    @property
    def rows(self) -> int:
        """How many problems there are; 0 where one is made from any seed."""
        ...

    def problem(self, seed: int) -> Problem:
        """The problem of a seed, 0 ≤ seed < 2⁶⁴, or of a row. Raises ValueError outside that range, ScoringUnavailable
        where this machine cannot make it."""
        ...

    def score(self, problem: Problem, answer_text: str) -> float:
        """Between 0 and 1, whatever the text; bounded in time. Raises ScoringUnavailable where this machine cannot
        score it, and nothing else."""
        ...
