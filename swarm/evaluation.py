"""A member's measure of itself: its reward on held-out problems, the same ones for all members of the swarm.

The rewards of its rounds say less, since each round has other problems. A measurement samples one try per problem with
its own noise, so it changes nothing that is trained.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from engines.base import Engine, Request, Sampling
from environments.pool import PoolEnvironments
from protocol.config import EnvironmentConfig
from protocol.errors import ConfigError, MusterError
from swarm.config import MeasuringConfig
from swarm.envelope import heldout_noise, heldout_problem
from swarm.generation import MemberModel
from swarm.state import SwarmRound

log = logging.getLogger("muster.swarm")


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
        scores = (
            asking.score(seed, 0, completion.tokens)
            for (seed, _), completion in zip(self._tries, completions, strict=True)
        )
        return math.fsum(score.task_reward for score in scores) / len(self._tries)


class Measuring:
    """Measures when `config` says so; `rounds` is the number of the last round (0: none)."""

    def __init__(self, config: MeasuringConfig, rounds: int, reward: Callable[[], float]) -> None:
        self._config, self._rounds, self._reward = config, rounds, reward

    def around(self, number: int, make: Callable[[int], SwarmRound]) -> SwarmRound:
        """Make round `number` and return it with the measurements before and after it."""
        before = self._measure(0) if number == 0 else ()
        result = make(number)
        return replace(result, held_out=before + self._measure(number + 1))

    def _measure(self, trained: int) -> tuple[tuple[int, float], ...]:
        """(rounds trained, reward) if it is due. A failure is left out: the round is trained already and must not be
        tried again for it."""
        if not self._config.due(trained, self._rounds):
            return ()
        try:
            reward = self._reward()
        except MusterError as error:
            log.warning("not measured after %d rounds: %s", trained, error)
            return ()
        log.info("held-out reward after %d rounds: %.3f of %d problems", trained, reward, self._config.problems)
        return ((trained, reward),)


def check_held_out(environments: Sequence[EnvironmentConfig]) -> None:
    """Raise ConfigError if an environment draws all rows of its data file for rounds."""
    for environment in environments:
        if environment.rows and not environment.held_out:
            raise ConfigError(
                f"environment {environment.called} holds no rows out, so nothing can be measured on it",
                "set `held_out` in the swarm's document, or evaluation.every to 0",
            )
