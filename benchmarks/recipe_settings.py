"""What the recipe is tried with: every setting changes the demo's training in one respect."""

from dataclasses import dataclass
from typing import Any

from benchmarks.learning import demo_config
from localnet.plan import DEMO_ENVIRONMENT
from protocol.config import PoolConfig, WorkConfig
from protocol.training import TrainConfig

SEEDS = (7, 1, 42)
ASYNCHRONY = (0, 1, 2, 4, 8)
BUDGETS = (4, 17)
"""Tokens: what the base model spends on a sum of three terms without and with a thought."""
THREE_TERMS = {"max_terms": 3}
"""A thought about four terms takes nine tokens more than one about three: no target would suit both."""
LENGTH_ALPHA = 0.1
"""High enough that a right answer of the wrong length is worth less than a guess of the right one."""


@dataclass(frozen=True)
class Setting:
    """A pool's configuration by the name of what it tries. `measure`: what its first and last figures are."""

    name: str
    config: PoolConfig
    measure: str = "reward"


def settings(quick: bool) -> list[Setting]:
    """All of them, the most wanted first, so that a run that is cut short has them."""
    steps = 2 if quick else 30
    made = [Setting(f"asynchrony {level}", _trained(steps, max_off_policy_steps=level)) for level in (0, 2, 8, 1, 4)]
    # Several updates a step, or no ratio leaves 1 and every loss is the same policy gradient.
    made += [
        Setting(f"loss {name}", _trained(steps, minibatches=8, algorithm=algorithm))
        for name, algorithm in _LOSSES.items()
    ]
    made.append(Setting("filter on", _trained(steps, filter={"groups": 32, "max_files": 8})))
    # Stale rollouts taken at face value, and steps large enough to leave the trust region.
    stale = {
        "max_off_policy_steps": 4,
        "minibatches": 8,
        "optimizer": {"method": {"name": "adamw", "learning_rate": 1e-3}},
    }
    made += [
        Setting(f"clip {name}", _trained(steps, **stale, algorithm={"loss": loss, "importance_cap": 0}))
        for name, loss in {"two-sided": {"name": "grpo"}, "one-sided": {"name": "grpo", "delta": None}}.items()
    ]
    longer = _trained(2 if quick else 40)
    environment = DEMO_ENVIRONMENT.model_copy(update={"params": DEMO_ENVIRONMENT.params | THREE_TERMS})
    work = WorkConfig(targets=BUDGETS, length_alpha=LENGTH_ALPHA)
    budgets = longer.model_copy(update={"environments": (environment,), "work": work})
    made.append(Setting("budgets", budgets, measure="length_error"))
    return made


_LOSSES: dict[str, dict[str, Any]] = {
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


def _trained(steps: int, **changes: Any) -> PoolConfig:
    config = demo_config(steps)
    train = TrainConfig.model_validate(config.train.model_dump() | changes)
    return config.model_copy(update={"train": train})
