"""A member's measure of itself: its reward on held-out problems, the same ones for all members of the swarm.

The rewards of its rounds say less, since each round has other problems. A measurement samples one try per problem with
its own noise, so it changes nothing that is trained.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from engines.base import Engine, Request, Sampling
from environments.pool import PoolEnvironments
from protocol.config import EnvironmentConfig
from protocol.errors import ConfigError
from swarm.envelope import heldout_noise, heldout_problem
from swarm.generation import MemberModel


class HeldOut:
    """`problems` held-out problems, as the model in `folder` is asked; `document` is the swarm document's digest.
    Raises ConfigError if an environment draws all its rows for rounds."""

    def __init__(self, document: bytes, model: MemberModel, folder: Path, problems: int) -> None:
        check_held_out(model.config.environments)
        self._environments = PoolEnvironments.of(model.config, folder, held_out=True)
        self._eos = model.eos
        self._tries = [(heldout_problem(document, index), heldout_noise(document, index)) for index in range(problems)]

    def reward(self, engine: Engine) -> float:
        """Return the mean reward of one try each, with the weights that the engine has loaded. Raise ScoringUnavailable
        if this machine cannot score."""
        asking, work = self._environments, self._environments.config.work
        requests = [Request(asking.prompt(seed, 0), noise, work.max_new_tokens) for seed, noise in self._tries]
        completions = engine.generate(requests, Sampling(work.temperature, self._eos, proven=False))
        tries = zip(self._tries, completions, strict=True)
        scores = (asking.score(seed, 0, completion.tokens) for (seed, _), completion in tries)
        return math.fsum(score.task_reward for score in scores) / len(self._tries)


def check_held_out(environments: Sequence[EnvironmentConfig]) -> None:
    """Raise ConfigError if an environment draws all rows of its data file for rounds."""
    for environment in environments:
        if environment.rows and not environment.held_out:
            raise ConfigError(
                f"environment {environment.called} holds no rows out, so nothing can be measured on it",
                "set `held_out` in the swarm's document, or evaluation.every to 0",
            )
