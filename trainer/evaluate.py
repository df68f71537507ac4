"""Held-out evaluation: mean task reward on fresh problems that no worker is ever given."""

from pathlib import Path

from engines.base import Engine, Request, Sampling
from protocol.budgets import all_targets
from protocol.config import PoolConfig
from protocol.encoding import tagged_hash, words
from protocol.seeds import heldout_problem
from protocol.tasks.environment import Environment

BATCH = 64


def held_out_reward(engine: Engine, config: PoolConfig, folder: Path, step: int) -> float:
    """Complete `heldout_problems` problems once each at the pool's temperature with the weights in `folder`.

    Anyone can repeat it: noise follows from the pool's configuration and the policy step. Problems take the pool's
    target lengths in turn.
    """
    environment = Environment.of(config, folder)
    engine.load(folder)
    sampling, targets = Sampling(config.work.temperature, environment.eos_ids), all_targets(config.work) or (0,)
    rewards: list[float] = []
    for start in range(0, config.train.heldout_problems, BATCH):
        indices = range(start, min(start + BATCH, config.train.heldout_problems))
        problems = [(heldout_problem(config.digest, index), targets[index % len(targets)]) for index in indices]
        requests = [
            Request(environment.prompt(*problem), _noise_key(config, step, index), config.work.max_new_tokens)
            for index, problem in zip(indices, problems, strict=True)
        ]
        completions = engine.generate(requests, sampling)
        for problem, completion in zip(problems, completions, strict=True):
            rewards.append(environment.score(*problem, completion.tokens).task_reward)
    return sum(rewards) / len(rewards)


def _noise_key(config: PoolConfig, step: int, index: int) -> tuple[int, int, int]:
    k0, k1, k2 = words(tagged_hash("muster/heldout-noise/1", config.digest, step, index), 3)
    return k0, k1, k2
