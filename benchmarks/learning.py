"""Warm-up, generation and GRPO in one process, without chain or storage: shows that the recipe learns.

    python -m benchmarks.learning --seed 7 --steps 30

Work is assigned as on chain, with stand-ins for block hashes and nodes; rollouts of step k come from the weights of
step k − async_level. Prints one line a step and one JSON object at the end.
"""

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from demo.pool import DEMO_TASK
from engines.factory import make_engine
from engines.loading import set_threads
from protocol.config import PoolConfig, TrainConfig
from protocol.encoding import tagged_hash
from protocol.identity import PoolId, WorkId
from protocol.seeds import Work
from trainer.basemodel import base_model
from trainer.evaluate import held_out_reward
from trainer.learner import Learner
from trainer.rollouts import Group, TrainRollout
from trainer.tiny_model import tiny_model_config
from worker.produce import Producer

NODES = ("0x" + "11" * 20, "0x" + "22" * 20)


def demo_config(steps: int = 30) -> PoolConfig:
    """The demo's model, task and training, at the defaults of the pool's configuration."""
    return PoolConfig(name="demo", model=tiny_model_config(), task=DEMO_TASK, train=TrainConfig(steps=steps))


def file_groups(producer: Producer, work: Work) -> list[Group]:
    """The groups of one file, as a worker makes them."""
    plan = producer.plan(work)
    rows = producer.score(plan, producer.complete(work, plan))
    groups = []
    for _, members in itertools.groupby(rows, key=lambda row: row.slot):
        made = (TrainRollout(r.prompt_tokens, r.output_tokens, r.reward, r.task_reward, r.logprobs) for r in members)
        groups.append(tuple(made))
    return groups


def run(
    seed: int, config: PoolConfig, cache: Path | None = None, say: Callable[[str], None] = print, luck: int = 0
) -> dict[str, object]:
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
                seed_of_step = tagged_hash("muster/offline/1", luck, step)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--luck", type=int, default=0, help="stands in for the chain's randomness")
    parser.add_argument("--config", type=Path, help="a pool configuration instead of the demo's")
    options = parser.parse_args()
    config = PoolConfig.load(options.config) if options.config else demo_config(options.steps)
    print(json.dumps(run(options.seed, config, luck=options.luck)))


if __name__ == "__main__":
    main()
