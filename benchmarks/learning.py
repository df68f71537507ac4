"""Warm-up, generation and GRPO in one process, without chain or storage: shows that the recipe learns.

`python -m benchmarks learning [--seed S] [--quick]`. Work is assigned as on chain, with stand-ins for block hashes and
nodes; rollouts of step k come from the weights of step k − async_level. Keys: seed, steps, seconds, reward_first and
reward_last (held-out task reward before and after), rewards (of each step). A quick run has two steps.
"""

import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from demo.pool import DEMO_TASK
from engines.factory import make_engine
from engines.loading import set_threads
from protocol.config import PoolConfig
from protocol.encoding import tagged_hash
from protocol.identity import PoolId, WorkId
from protocol.seeds import Work
from protocol.training import TrainConfig
from trainer.basemodel import base_model
from trainer.evaluation.held_out import held_out_reward
from trainer.learner import Learner
from trainer.rollouts import Group, TrainRollout
from trainer.tiny_model import tiny_model_config
from worker.produce import Producer

NODES = ("0x" + "11" * 20, "0x" + "22" * 20)


def run(quick: bool, progress: Callable[[str], None], seed: int = 7) -> dict[str, Any]:
    return learn(seed, demo_config(2 if quick else 30), None, progress)


def demo_config(steps: int = 30) -> PoolConfig:
    """The demo's model, task and training, at the defaults of the pool's configuration."""
    return PoolConfig(name="demo", model=tiny_model_config(), task=DEMO_TASK, train=TrainConfig(steps=steps))


def file_groups(producer: Producer, work: Work) -> list[Group]:
    """The groups of one file, as a worker makes them."""
    groups = []
    for _, members in itertools.groupby(producer.make(work).rollouts, key=lambda row: row.slot):
        made = (TrainRollout(r.prompt_tokens, r.output_tokens, r.reward, r.task_reward, r.logprobs) for r in members)
        groups.append(tuple(made))
    return groups


def learn(seed: int, config: PoolConfig, cache: Path | None, say: Callable[[str], None]) -> dict[str, Any]:
    """Train for `config.train.steps` steps; returns first and last held-out reward and the rewards of each step."""
    set_threads(1)
    start = time.monotonic()
    base = base_model(config.model, config.task, seed, cache, say)
    learner = Learner(base, config.train, config.work.temperature, config.model.dtype, seed=seed)
    producer = Producer(config, make_engine("transformers", max_batch=128))
    first = held_out_reward(producer.engine, config, base, 0)
    say(f"held-out task reward before: {first:.3f}")
    rewards = []
    with tempfile.TemporaryDirectory(prefix="muster-offline-") as temporary:
        steps = [base]
        for step in range(config.train.steps):
            stale = max(0, step - config.train.async_level)
            begun = time.monotonic()
            groups: list[Group] = []
            producer.load(steps[stale])
            for file in range(config.train.files_per_step):
                seed_of_step = tagged_hash("muster/offline/1", 0, step)
                # Of a pool that no chain has.
                work = Work(WorkId(PoolId(0, NODES[0], 0), NODES[file % 2], stale, file), seed_of_step, bytes(32))
                groups += file_groups(producer, work)
            generated = time.monotonic() - begun
            metrics = learner.train_step(groups)
            steps.append(learner.policy.export(Path(temporary) / f"step-{step + 1}"))
            rewards.append(metrics.task_reward_mean)
            say(
                f"step {metrics.step}: reward {metrics.reward_mean:.3f}, entropy {metrics.entropy:.3f}, gradient "
                f"{metrics.grad_norm:.3f}, groups {metrics.groups_used}, tokens {metrics.tokens}, "
                f"generated in {generated:.2f} s, trained in {metrics.seconds:.2f} s"
            )
        last = held_out_reward(producer.engine, config, steps[-1], config.train.steps)
    say(f"held-out task reward after: {last:.3f}")
    return {
        "seed": seed,
        "steps": config.train.steps,
        "reward_first": first,
        "reward_last": last,
        "rewards": rewards,
        "seconds": round(time.monotonic() - start, 1),
    }
