"""Warm-up, generation and training in one process, without chain or storage: shows that the recipe learns.

`python -m benchmarks learning [--seed S] [--quick]`. Work is assigned as on chain, with stand-ins for block hashes and
nodes; rollouts of step k come from the weights of step k − max_off_policy_steps. Keys: seed, steps, seconds,
reward_first and reward_last (held-out task reward before and after), length_error_first and length_error_last (tokens
off the target where the pool has targets, else null), rewards (of each step), files (that each step generated). A quick
run has two steps."""

import itertools
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engines.factory import make_engine
from engines.loading import set_threads
from localnet.plan import DEMO_ENVIRONMENT, training
from protocol.config import PoolConfig
from protocol.encoding import tagged_hash
from protocol.identity import PoolId, WorkId
from protocol.rollout_file.rows import Rollout
from protocol.seeds import Work
from trainer.base_model import base_model
from trainer.batch import Group, TrainRollout
from trainer.evaluate import evaluate
from trainer.learner import Learner
from trainer.tiny_model import tiny_model_config
from worker.produce import Producer

NODES = ("0x" + "11" * 20, "0x" + "22" * 20)


def run(quick: bool, progress: Callable[[str], None], seed: int = 7) -> dict[str, Any]:
    return learn(seed, demo_config(2 if quick else 30), None, progress)


def demo_config(steps: int = 30) -> PoolConfig:
    """The demo's model, task and training."""
    return PoolConfig(name="demo", model=tiny_model_config(), environments=(DEMO_ENVIRONMENT,), train=training(steps))


class OfflineWork:
    """Files as workers make them, of a pool that no chain has. `load` chooses the policy."""

    def __init__(self, config: PoolConfig) -> None:
        self.config = config
        self.producer = Producer(config, make_engine("transformers", max_batch=128))

    def load(self, folder: Path) -> None:
        self.producer.load(folder)

    def rows(self, step: int, policy_step: int, file: int) -> tuple[Rollout, ...]:
        """The rollouts of a file for training step `step` under the loaded policy, which is that of `policy_step`."""
        seed_of_step = tagged_hash("muster/offline/1", 0, step)
        work = Work(WorkId(PoolId(0, NODES[0], 0), NODES[file % 2], policy_step, file), seed_of_step, bytes(32))
        return self.producer.make(work).rollouts

    def length_error(self, folder: Path, step: int) -> float | None:
        """Mean tokens off the target over a step's worth of fresh files; None without targets."""
        self.load(folder)
        rows = [row for file in range(self.config.train.files_per_step) for row in self.rows(step, step, file)]
        errors = [abs(len(row.output_tokens) - row.target_length) for row in rows if row.target_length]
        return sum(errors) / len(errors) if errors else None


def groups_of(rows: Sequence[Rollout]) -> list[Group]:
    groups = []
    for _, members in itertools.groupby(rows, key=lambda row: row.slot):
        made = (TrainRollout(r.prompt_tokens, r.output_tokens, r.reward, r.task_reward, r.logprobs) for r in members)
        groups.append(tuple(made))
    return groups


def batch_of(work: OfflineWork, step: int, policy_step: int) -> tuple[list[Group], int]:
    """The groups of a training step, and how many files they came from: `files_per_step`, or as many as the pool's
    filter takes until it has enough groups with signal."""
    train = work.config.train
    groups: list[Group] = []
    for file in range(train.max_files):
        groups += groups_of(work.rows(step, policy_step, file))
        if train.filter and sum(len({one.reward for one in group}) > 1 for group in groups) >= train.filter.groups:
            return groups, file + 1
    return groups, train.max_files


def learn(seed: int, config: PoolConfig, cache: Path | None, say: Callable[[str], None]) -> dict[str, Any]:
    """Train for `config.train.steps` steps from the base model of `seed`."""
    set_threads(1)
    start = time.monotonic()
    base = base_model(config.model, config.environments[0], seed, cache, say)
    learner = Learner(base, config.train, config.work.temperature, config.model.dtype, seed=seed)
    work = OfflineWork(config)
    engine = work.producer.engine
    first, error_first = evaluate(engine, config, base, 0)[0].average, work.length_error(base, 0)
    say(f"held-out task reward before: {first:.3f}")
    rewards, files = [], []
    with tempfile.TemporaryDirectory(prefix="muster-offline-") as temporary:
        steps = [base]
        for step in range(config.train.steps):
            stale = max(0, step - config.train.max_off_policy_steps)
            begun = time.monotonic()
            work.load(steps[stale])
            groups, count = batch_of(work, step, stale)
            generated = time.monotonic() - begun
            metrics = learner.train_step(groups)
            steps.append(learner.policy.export(Path(temporary) / f"step-{step + 1}"))
            rewards.append(metrics.task_reward_mean)
            files.append(count)
            say(
                f"step {metrics.step}: reward {metrics.reward_mean:.3f}, entropy {metrics.entropy:.3f}, gradient "
                f"{metrics.grad_norm:.3f}, groups {metrics.groups_used}, tokens {metrics.tokens}, "
                f"generated in {generated:.2f} s, trained in {metrics.seconds:.2f} s"
            )
        last = evaluate(engine, config, steps[-1], config.train.steps)[0].average
        error_last = work.length_error(steps[-1], config.train.steps)
    say(f"held-out task reward after: {last:.3f}")
    return {
        "seed": seed,
        "steps": config.train.steps,
        "reward_first": first,
        "reward_last": last,
        "length_error_first": error_first,
        "length_error_last": error_last,
        "rewards": rewards,
        "files": files,
        "seconds": round(time.monotonic() - start, 1),
    }
