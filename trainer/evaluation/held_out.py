"""Held-out evaluation: the sets of a pool's configuration, tried with the weights of a policy step.

Anyone can repeat it: problems follow from the configuration, sampling noise from configuration and step.
"""

import math
import time
from pathlib import Path

from engines.base import Engine
from environments.pool import PoolEnvironments
from protocol.api.work import SetResult
from protocol.budgets import all_targets
from protocol.config import EvaluationSet, PoolConfig
from protocol.seeds import heldout_noise_key, heldout_problem
from trainer.evaluation.attempts import Attempt, ScoredAttempt, score_attempts
from trainer.evaluation.estimators import average, pass_at, reported_ks, standard_error

BATCH = 64


def evaluate(engine: Engine, config: PoolConfig, folder: Path, step: int, batch: int = BATCH) -> list[SetResult]:
    """The results of every set with the weights in `folder`, those of policy step `step`. Raises ConfigError for an
    unknown environment, IntegrityError if the folder is not a usable model."""
    engine.load(folder)
    sets = range(len(config.evaluation.sets))
    return [_measure(engine, config, folder, step, number, batch) for number in sets]


def held_out_reward(engine: Engine, config: PoolConfig, folder: Path, step: int) -> float:
    """The average of the pool's first held-out set."""
    engine.load(folder)
    return _measure(engine, config, folder, step, 0, BATCH).average


def _measure(engine: Engine, config: PoolConfig, folder: Path, step: int, number: int, batch: int) -> SetResult:
    asked, started = config.evaluation.sets[number], time.monotonic()
    own = config.model_copy(update={"environments": (asked.environment,)}) if asked.environment else config
    environments = PoolEnvironments.of(own, folder, held_out=True)
    attempts = _attempts(config, environments, asked, step, number)
    done = list(score_attempts(engine, environments, attempts, batch, asked.temperature))
    names = [environments.settings(one.problem_seed).called for one in attempts[:: asked.samples]]
    return _result(asked, done, names, time.monotonic() - started)


def _attempts(
    config: PoolConfig, environments: PoolEnvironments, asked: EvaluationSet, step: int, number: int
) -> list[Attempt]:
    """Problem by problem; problems take the target lengths of their environment in turn."""
    out = []
    for index in range(asked.problems):
        problem = heldout_problem(config.digest, number, index)
        targets = all_targets(config.work, environments.settings(problem)) or (0,)
        for sample in range(asked.samples):
            noise = heldout_noise_key(config.digest, step, number, index, sample)
            out.append(Attempt(problem, targets[index % len(targets)], noise))
    return out


def _result(asked: EvaluationSet, done: list[ScoredAttempt], names: list[str], seconds: float) -> SetResult:
    """`names`: of the environments of the problems."""
    k = asked.samples
    rewards = [[one.score.task_reward for one in done[start : start + k]] for start in range(0, len(done), k)]
    by_name: dict[str, list[list[float]]] = {}
    for name, tries in zip(names, rewards, strict=True):
        by_name.setdefault(name, []).append(tries)
    solved = [sum(reward >= asked.solved for reward in tries) for tries in rewards]
    return SetResult(
        name=asked.name,
        problems=asked.problems,
        samples=k,
        average=average(rewards),
        error=standard_error(rewards),
        by_environment={name: average(tries) for name, tries in sorted(by_name.items())} if len(by_name) > 1 else {},
        passed={str(few): pass_at(few, k, solved) for few in reported_ks(k)},
        length=math.fsum(one.length for one in done) / len(done),
        seconds=round(seconds, 3),
    )
