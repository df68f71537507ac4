"""Problems and scores for text that has no tokens yet: what members of a swarm check one another by."""

from collections.abc import Sequence
from pathlib import Path

from environments.base import Problem
from environments.catalogue import load_environment
from environments.rewards import float32
from protocol.environments import EnvironmentConfig, drawn
from protocol.errors import ConfigError


class TextEnvironments:
    """The environments of a swarm's document: the same text gets the same score on every machine, whatever model and
    tokenizer it has. `data`: the folder of their files. Raises what loading them raises, and ConfigError for one of
    several turns, whose text alone does not say what was sampled."""

    def __init__(self, configs: Sequence[EnvironmentConfig], answer_after: str, data: Path | None = None) -> None:
        self._configs, self._answer_after = configs, answer_after
        self._environments = [load_environment(one, data) for one in configs]
        for config, one in zip(configs, self._environments, strict=True):
            if one.declared.turns.most > 1:
                raise ConfigError(
                    f"environment {config.called} has several turns", "a swarm takes environments of one turn"
                )

    def problem(self, problem_seed: int) -> Problem:
        """Raises ScoringUnavailable where this machine cannot make it."""
        found = drawn(self._configs, problem_seed)
        return self._environments[found.environment].problem(found.seed)

    def name(self, problem_seed: int) -> str:
        """What tells problems apart: environment and its own seed."""
        found = drawn(self._configs, problem_seed)
        return f"{self._configs[found.environment].called}/{found.seed}"

    def score(self, problem_seed: int, text: str) -> float:
        """The task reward of a completion's text, exactly a float32. Raises ScoringUnavailable where this machine
        cannot score it."""
        found = drawn(self._configs, problem_seed)
        environment = self._environments[found.environment]
        answer = text
        if self._answer_after:
            _, mark, answer = text.rpartition(self._answer_after)
            answer = answer if mark else ""
        return float32(environment.score(environment.problem(found.seed), answer))
