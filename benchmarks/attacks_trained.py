"""The most telling rows of the table of attacks on a policy that was trained, in files of the demo's size.

`python -m benchmarks attacks_trained [--quick] [--resume] [--count N]`. The demo's base model is trained for 16 steps
with the demo's recipe; training makes policies sharper, and means of log-prob errors duller. Every file has 128
rollouts, every one is audited. The trained policy and finished rows stay in build/attacks_trained; `--resume` goes on
from there. Keys: steps, reward_before, reward_after (of training files), attacks and honest (see `OfflinePool.row`).
"""

import json
from pathlib import Path
from typing import Any

from benchmarks.attack_rows import Spec
from benchmarks.attacks import table
from benchmarks.offline_pool import BFLOAT16, ENVIRONMENT, FLOAT32, FULL_WORK, Progress
from benchmarks.recipe import OfflineWork, batch_of
from engines.loading import set_threads
from localnet.plan import training
from protocol.config import PoolConfig
from protocol.files import write_atomic
from trainer.base_model import base_model
from trainer.learner import Learner
from trainer.tiny_model import tiny_model_config

BUILD = Path(__file__).parent.parent / "build" / "attacks_trained"
STEPS, QUICK_STEPS = 16, 2
COUNT, QUICK_COUNT = 20, 1
ROWS = {
    FLOAT32: (
        Spec("honest", FLOAT32, "honest", full=True),
        Spec("attacks", FLOAT32, "weights-noise", 0.0001, full=True),
        Spec("attacks", FLOAT32, "weights-noise", 0.001, full=True),
        Spec("attacks", FLOAT32, "weights-int8", full=True),
        Spec("attacks", FLOAT32, "compute-bf16", full=True),
        Spec("attacks", FLOAT32, "ghostwriter-int8", full=True),
        Spec("stale", FLOAT32, "weights-stale", 1, 1e-6, full=True),
        Spec("stale", FLOAT32, "weights-stale", 1, 1e-5, full=True),
    ),
    BFLOAT16: (
        Spec("honest", BFLOAT16, "honest", full=True),
        Spec("attacks", BFLOAT16, "weights-noise", 0.01, full=True),
        Spec("attacks", BFLOAT16, "weights-noise", 0.001, full=True),
        Spec("attacks", BFLOAT16, "weights-int8", full=True),
        Spec("attacks", BFLOAT16, "greedy", full=True),
        Spec("attacks", BFLOAT16, "other-lane", full=True),
        Spec("attacks", BFLOAT16, "ghostwriter-int8", full=True),
        Spec("stale", BFLOAT16, "weights-stale", 4, 1e-5, full=True),
        Spec("stale", BFLOAT16, "weights-stale", 1, 1e-4, full=True),
    ),
}


def run(quick: bool, progress: Progress, resume: bool = False, count: int = 0) -> dict[str, Any]:
    """See the module."""
    steps = QUICK_STEPS if quick else STEPS
    about, folder = trained(steps, progress)
    wanted = [spec for own in ROWS.values() for spec in (own[:2] if quick else own)]
    found = table(folder, wanted, count or (QUICK_COUNT if quick else COUNT), progress, resume, 1, BUILD)
    return about | {"attacks": found["attacks"], "honest": found["honest"]}


def trained(steps: int, progress: Progress) -> tuple[dict[str, Any], Path]:
    """What training did, and the folder of the policy after so many steps; made once."""
    folder = BUILD / f"policy-{steps}"
    record = folder.with_suffix(".json")
    if record.exists():
        return json.loads(record.read_text()), folder
    set_threads(1)
    config = PoolConfig(
        name="trained", model=tiny_model_config(), environments=(ENVIRONMENT,), work=FULL_WORK, train=training(steps)
    )
    base = base_model(config.model, ENVIRONMENT, 1, progress=progress)
    learner = Learner(base, config.train, config.work.temperature, config.model.dtype)
    work, rewards = OfflineWork(config), []
    work.load(base)
    for step in range(steps):
        groups, _ = batch_of(work, step, step)
        rewards.append(learner.train_step(groups).task_reward_mean)
        progress(f"step {step + 1} of {steps}: task reward {rewards[-1]:.3f}")
        work.load(learner.policy.export(BUILD / f"policy-{step + 1}"))
    about = {"steps": steps, "reward_before": round(rewards[0], 4), "reward_after": round(rewards[-1], 4)}
    write_atomic(record, json.dumps(about).encode())
    return about, folder
