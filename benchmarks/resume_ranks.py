"""What `benchmarks/resume.py` kills: a trainer on made-up rollouts, without chain and bucket.

`python -m benchmarks.resume_ranks HOME RANKS STEP`: train up to a policy step on so many ranks; started again, it
resumes. Ranks, launcher, checkpoints, exports and records are the real ones.
"""

import random
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from engines.loading import set_threads
from protocol.encoding import sha256_hex
from protocol.models.tokenizer import save_byte_tokenizer
from protocol.training import OptimizerConfig, ScheduleConfig, TrainConfig
from runtime.logs import start_logging
from runtime.process import die_with_parent
from trainer.commands import LearnerGroup
from trainer.config import MemoryConfig, ParallelConfig
from trainer.exits import EXIT_DONE, EXIT_LOST
from trainer.launch import Launcher, launched
from trainer.learner import Learner
from trainer.model.sharding import make_placement
from trainer.ranks import RanksLostError
from trainer.rollouts import Group, TrainRollout
from trainer.state.progress import TrainingProgress
from trainer.state.records import Records
from trainer.tiny_model import PHRASES, tiny_qwen2

STEPS, FILES = 16, 2
CONFIG = TrainConfig(steps=STEPS, minibatches=2, optimizer=OptimizerConfig(schedule=ScheduleConfig(warmup_updates=0)))
MEMORY = MemoryConfig(row_tokens=512)
TIMEOUT_SECONDS = 60.0


def make_base(folder: Path) -> None:
    """The demo's model with random weights."""
    from transformers import Qwen2ForCausalLM

    folder.mkdir(parents=True)
    size = save_byte_tokenizer(folder, PHRASES)
    make: Any = Qwen2ForCausalLM
    torch.manual_seed(0)
    make(tiny_qwen2(size, size - 2, size - 1)).save_pretrained(str(folder))


def export_path(home: Path, step: int) -> Path:
    return home / "policies" / f"step-{step:06d}"


def file_groups(number: int) -> list[Group]:
    """Four groups of eight rollouts, of 8 to 100 tokens: what file `number` holds."""
    dice = random.Random(number)

    def tokens(least: int, most: int) -> tuple[int, ...]:
        return tuple(dice.randrange(256) for _ in range(dice.randint(least, most)))

    def rollout(prompt: tuple[int, ...], reward: float) -> TrainRollout:
        output = tokens(4, 80)
        return TrainRollout(prompt, output, reward, reward, tuple(-dice.random() for _ in output))

    prompts = [tokens(4, 20) for _ in range(4)]
    return [tuple(rollout(prompt, float(sample % 2)) for sample in range(8)) for prompt in prompts]


def lead(home: Path, group: LearnerGroup, last: int) -> None:
    """Rank 0: train every step up to `last`, two files each, none twice."""
    records = Records(home)
    progress = TrainingProgress(home / "checkpoints", group, records)
    while progress.learner.step < last:
        step = progress.learner.step + 1
        numbers = [FILES * (step - 1) + place for place in range(FILES)]
        names = {number: sha256_hex(str(number).encode()) for number in numbers}
        assert progress.consumed.isdisjoint(names.values()), f"step {step} would train a file twice"
        metrics = group.train_step([one for number in numbers for one in file_groups(number)])
        progress.consumed |= set(names.values())
        entries = [{"step": step, "sequence": number, "sha256": name} for number, name in names.items()]
        progress.keep(asdict(metrics), entries, lambda: group.export(export_path(home, progress.learner.step)))
        records.write(asdict(metrics), entries)
    group.end(EXIT_DONE)


def main(home: Path, ranks: int, last: int) -> int:
    """The launcher's part, or a rank's; returns the exit code."""
    parallel = ParallelConfig(ranks=ranks, timeout_seconds=TIMEOUT_SECONDS, max_restarts=0)
    if ranks > 1 and not launched():
        return Launcher(parallel, sys.orig_argv[1:]).run()
    set_threads(1)
    if launched():
        die_with_parent()
    try:
        placement = make_placement(parallel, MEMORY, "cpu")
        base = home.parent / "base"
        group = LearnerGroup(placement.ranks, lambda: Learner(base, CONFIG, 1.0, placement=placement))
        if placement.ranks.rank:
            return group.follow()
        lead(home, group, last)
    except RanksLostError as error:
        print(error, file=sys.stderr)
        return EXIT_LOST
    return EXIT_DONE


if __name__ == "__main__":
    start_logging()
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
