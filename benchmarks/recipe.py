"""The training recipe on the demo's model, in one process without chain or storage.

`python -m benchmarks recipe [--only TEXT] [--quick]`. Work is assigned as on chain, with stand-ins for block hashes and
nodes; rollouts of step k come from the weights of step k − max_off_policy_steps. Key: runs, [{setting, seed, measure,
first, last, series, files, seconds}]. first and last are held-out task reward, or the mean length error in tokens where
`measure` says so; series is the task reward of each step's rollouts. About a minute of one core a run."""

import itertools
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.hf import TransformersEngine
from engines.loading import set_threads
from localnet.plan import DEMO_ENVIRONMENT, training
from protocol.config import PoolConfig, TrainConfig, WorkConfig
from protocol.encoding import tagged_hash
from protocol.files import user_cache
from protocol.identity import PoolId, WorkId
from protocol.rollout_file.rows import Rollout
from protocol.seeds import Work
from trainer.data.batch import Group, TrainRollout
from trainer.learner import Learner
from trainer.model.base_model import Recipe, base_model, warmed_up
from trainer.model.tiny_model import tiny_model_config
from trainer.reports.evaluate import evaluate
from worker.produce import Producer

SEEDS = (7, 1, 42)
NODES = ("0x" + "11" * 20, "0x" + "22" * 20)
LOSSES: dict[str, dict[str, Any]] = {
    "grpo": {},
    "gspo": {"loss": {"name": "gspo"}, "normaliser": "sequences"},
    "cispo": {"loss": {"name": "cispo"}},
    "dppo": {"loss": {"name": "dppo"}},
    "grpo as published": {
        "loss": {"name": "grpo", "delta": None},
        "advantage": "normalised",
        "normaliser": "sequences",
    },
}


@dataclass(frozen=True)
class Setting:
    """A pool's configuration by the name of what it tries. `measure`: what its first and last values are."""

    name: str
    config: PoolConfig
    measure: str = "reward"


def run(quick: bool, progress: Callable[[str], None], only: str = "") -> dict[str, Any]:
    chosen = [setting for setting in settings(quick) if only in setting.name]
    runs = []
    for seed in SEEDS[:1] if quick else SEEDS:
        for setting in chosen:
            progress(f"{setting.name}, seed {seed}")
            runs.append({"setting": setting.name, "seed": seed} | learn(seed, setting, None, progress))
    return {"runs": runs}


def settings(quick: bool) -> list[Setting]:
    """Return all settings; each changes the demo's training in one respect."""
    steps = 2 if quick else 30
    levels = (0, 1, 2, 4, 8)
    settings = [Setting(f"off-policy {level}", _trained(steps, max_off_policy_steps=level)) for level in levels]
    # Several updates a step, or no ratio leaves 1 and every loss is the same policy gradient.
    for name, algorithm in LOSSES.items():
        settings.append(Setting(f"loss {name}", _trained(steps, minibatches=8, algorithm=algorithm)))
    # From a model that always works its sums out, and no rewards.
    distilled = {"advantage": "none", "kl": {"coefficient": 1.0, "teacher": "worked"}}
    settings.append(Setting("distillation", _trained(steps, algorithm=distilled)))
    settings.append(Setting("filter on", _trained(steps, filter={"groups": 32, "max_files": 8})))
    # Stale rollouts taken at face value, and steps large enough to leave the trust region.
    optimizer = {"method": {"name": "adamw", "learning_rate": 1e-3}}
    stale: dict[str, Any] = {"max_off_policy_steps": 4, "minibatches": 8, "optimizer": optimizer}
    for name, loss in {"two-sided": {"name": "grpo"}, "one-sided": {"name": "grpo", "delta": None}}.items():
        algorithm = {"loss": loss, "importance_cap": 0}
        settings.append(Setting(f"clip {name}", _trained(steps, **stale, algorithm=algorithm)))
    # What the base model spends on a sum of three terms without and with a thought. A right answer of the wrong length
    # is worth less than a guess of the right one.
    environment = DEMO_ENVIRONMENT.model_copy(update={"params": DEMO_ENVIRONMENT.params | {"max_terms": 3}})
    changes = {"environments": (environment,), "work": WorkConfig(targets=(4, 17), length_alpha=0.1)}
    targets = _trained(2 if quick else 40).model_copy(update=changes)
    return [*settings, Setting("length targets", targets, measure="length_error")]


def demo_config(steps: int = 30) -> PoolConfig:
    """Return the demo's model, task and training."""
    return PoolConfig(name="demo", model=tiny_model_config(), environments=(DEMO_ENVIRONMENT,), train=training(steps))


def _trained(steps: int, **changes: Any) -> PoolConfig:
    config = demo_config(steps)
    return config.model_copy(update={"train": TrainConfig.model_validate(config.train.model_dump() | changes)})


class OfflineWork:
    """Files as workers make them, of a pool that no chain has. `load` chooses the policy."""

    def __init__(self, config: PoolConfig) -> None:
        self.config = config
        self.engine = TransformersEngine(max_batch=128)
        self.producer = Producer(config, self.engine)

    def load(self, folder: Path) -> None:
        self.producer.load(folder)

    def rows(self, step: int, policy_step: int, file: int) -> tuple[Rollout, ...]:
        """Return the rollouts of a file for training step `step` under the loaded policy, that of `policy_step`."""
        seed_of_step = tagged_hash("muster/offline/1", 0, step)
        work = Work(WorkId(PoolId(0, NODES[0], 0), NODES[file % 2], policy_step, file), seed_of_step, bytes(32))
        return self.producer.make(work).rollouts

    def length_error(self, folder: Path, step: int) -> float | None:
        """Return the mean tokens off the target over a step's worth of fresh files; None without targets."""
        self.load(folder)
        rows = [row for file in range(self.config.train.files_per_step) for row in self.rows(step, step, file)]
        errors = [abs(len(row.output_tokens) - row.target_length) for row in rows if row.target_length]
        return sum(errors) / len(errors) if errors else None


def groups_of(rows: Sequence[Rollout]) -> list[Group]:
    return [
        tuple(TrainRollout(r.prompt_tokens, r.output_tokens, r.reward, r.task_reward, r.logprobs) for r in members)
        for _, members in itertools.groupby(rows, key=lambda row: row.slot)
    ]


def batch_of(work: OfflineWork, step: int, policy_step: int) -> tuple[list[Group], int]:
    """Return the groups of a training step, and from how many files: as many as the pool's filter takes, if any."""
    train = work.config.train
    groups: list[Group] = []
    for file in range(train.max_files):
        groups += groups_of(work.rows(step, policy_step, file))
        if (
            train.filter
            and sum(len({rollout.reward for rollout in group}) > 1 for group in groups) >= train.filter.groups
        ):
            return groups, file + 1
    return groups, train.max_files


def learn(seed: int, setting: Setting, cache: Path | None, say: Callable[[str], None]) -> dict[str, Any]:
    """Train for `train.steps` steps from the base model of `seed`."""
    set_threads(1)
    config, start = setting.config, time.monotonic()
    base = base_model(config.model, config.environments[0], seed, cache, say)
    if config.train.algorithm.kl.teacher:
        worked = Recipe(worked_share=1.0)
        teacher = warmed_up(config.environments[0], seed, cache or user_cache("models"), say, worked)
        train = config.train.model_dump()
        train["algorithm"]["kl"]["teacher"] = str(teacher)
        config = config.model_copy(update={"train": TrainConfig.model_validate(train)})
        say(f"the teacher's reward: {evaluate(TransformersEngine(), config, teacher, 0)[0].average}")
    learner = Learner(base, config.train, config.work.temperature, config.model.dtype, seed=seed)
    work = OfflineWork(config)

    def measured(folder: Path, step: int) -> float | None:
        if setting.measure == "length_error":
            return work.length_error(folder, step)
        return evaluate(work.engine, config, folder, step)[0].average

    first, series, files = measured(base, 0), [], 0
    with tempfile.TemporaryDirectory(prefix="muster-offline-") as temporary:
        policies = [base]
        for step in range(config.train.steps):
            stale = max(0, step - config.train.max_off_policy_steps)
            work.load(policies[stale])
            groups, count = batch_of(work, step, stale)
            metrics = learner.train_step(groups)
            policies.append(learner.policy.export(Path(temporary) / f"step-{step + 1}"))
            series.append(round(metrics.task_reward_mean, 4))
            files += count
            say(f"step {metrics.step}: reward {metrics.reward_mean:.3f}, entropy {metrics.entropy:.3f}")
        last = measured(policies[-1], config.train.steps)
    seconds = round(time.monotonic() - start, 1)
    return {
        "measure": setting.measure, "first": first, "last": last, "series": series, "files": files, "seconds": seconds,
    }  # fmt: skip
