"""A member's own measure: what it earns on problems that no round has, the same ones for all members of the swarm.

The reward of its rounds says less: it is measured on other problems every time, and on fewer where fewer groups are its
own. One try at each problem, sampled at the member's temperature with noise of its own, so measuring changes nothing
that is trained.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from engines.base import Engine, Request, Sampling
from environments.pool import PoolEnvironments
from protocol.environments import EnvironmentConfig
from protocol.errors import ConfigError, MusterError
from protocol.swarm.seeds import heldout_noise, heldout_problem
from swarm.config import MeasuringConfig
from swarm.generation import MemberModel
from swarm.progress import SwarmRound

log = logging.getLogger("muster.swarm")


class HeldOut:
    """`problems` of them, as the model in `folder` is asked; `document`: the swarm document's digest. Raises
    ConfigError where an environment has no problems that rounds are not drawn from."""

    def __init__(self, document: bytes, model: MemberModel, folder: Path, problems: int) -> None:
        check_held_out(model.config.environments)
        self._environments = PoolEnvironments.of(model.config, folder, held_out=True)
        self._eos = model.eos
        self._tries = [(heldout_problem(document, index), heldout_noise(document, index)) for index in range(problems)]

    def reward(self, engine: Engine) -> float:
        """Mean reward of one try at each, with the weights that the engine has loaded. Raises ScoringUnavailable where
        this machine cannot score."""
        asking, work = self._environments, self._environments.config.work
        requests = [Request(asking.prompt(seed, 0), noise, work.max_new_tokens) for seed, noise in self._tries]
        done = engine.generate(requests, Sampling(work.temperature, self._eos, proven=False))
        scores = (asking.score(seed, 0, one.tokens) for (seed, _), one in zip(self._tries, done, strict=True))
        return math.fsum(score.task_reward for score in scores) / len(self._tries)


class Measuring:
    """Measures before the first round, after every `config.every` rounds and after the last of `rounds` (0: there is
    none)."""

    def __init__(self, config: MeasuringConfig, rounds: int, reward: Callable[[], float]) -> None:
        self._config, self._rounds, self._reward = config, rounds, reward

    def around(self, number: int, make: Callable[[int], SwarmRound]) -> SwarmRound:
        """Round `number`, with what was measured before and after it."""
        before = self._at(0) if number == 0 else ()
        done = make(number)
        return replace(done, held_out=before + self._at(number + 1))

    def _at(self, trained: int) -> tuple[tuple[int, float], ...]:
        """(rounds trained, reward) if it is due. What cannot be measured is left out: the round is trained already,
        and must not be tried again for it."""
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
    """Raises ConfigError where all rows of a data file are drawn for rounds."""
    for one in environments:
        if one.rows and not one.held_out:
            raise ConfigError(
                f"environment {one.called} holds no rows out, so nothing can be measured on it",
                "set `held_out` in the swarm's document, or evaluation.every to 0",
            )
