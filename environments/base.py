"""What an environment is: problems drawn from a seed, and a scorer that anyone can run again with the same result."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

NO_PROBLEM = "There is no problem here. Any answer is worth nothing."
"""Asked where an environment has no problem, or one that is longer than the pool's prompts may be."""


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
class Turns:
    """What an environment of several turns says of them: `most` turns of a rollout, and `reply_tokens` of a reply with
    what the chat template puts around it (a longer one ends the rollout). `role`: whose turn a reply is in the chat
    template, "tool" or "user". `tools`: JSON schemas of functions that the chat template is told of."""

    most: int = 1
    reply_tokens: int = 256
    role: str = "user"
    tools: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Declaration:
    """What an environment says of itself. `content`: hex SHA-256 of what defines its problems and scores; `licence` of
    that. Longer answers than `answer_chars` are worth nothing; no score takes more than `seconds`. `turns`: of more
    than one only an `InTurns` has."""

    name: str
    version: str
    content: str
    licence: str
    answer_chars: int
    seconds: float
    turns: Turns = Turns()


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


@runtime_checkable
class InTurns(Environment, Protocol):
    """An environment that replies: a game, a tool, somebody who asks back. `said`: the model's turns so far as text,
    each without its EOS. The same turns at the same problem get the same reply and score in every process."""

    def reply(self, problem: Problem, said: Sequence[str]) -> str | None:
        """What comes after these turns; None where they are the end. Bounded in time. Raises ScoringUnavailable where
        this machine cannot say, and nothing else."""
        ...

    def score_turns(self, problem: Problem, said: Sequence[str]) -> float:
        """As `score`, of a whole rollout; of the last turn only what stands after the pool's `answer_after`."""
        ...
