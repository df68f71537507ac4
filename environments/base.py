"""What an environment is: problems drawn from a seed, and a scorer that anyone can run again with the same result."""

from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Problem:
    """A question with its reference answer; `metadata` is what the environment's own scorer needs besides."""

    question: str
    answer: str
    metadata: dict[str, Any] = field(default_factory=dict)


class Environment(Protocol):
    """Deterministic: the same seed gives the same problem in every process, the same text the same score."""

    def problem(self, seed: int) -> Problem:
        """The problem of a seed, 0 ≤ seed < 2⁶⁴. Raises ValueError outside that range."""
        ...

    def score(self, problem: Problem, answer_text: str) -> float:
        """Between 0 and 1; never raises, whatever the text; bounded in time."""
        ...
