"""What `benchmarks/resume.py` kills: a trainer on made-up rollouts, without chain and bucket.

Ranks, their commands, checkpoints, exports and records are the real ones.
"""

import logging
import multiprocessing
import os
import random
import sys
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from engines.loading import set_threads
from protocol.encoding import sha256_hex
from protocol.lifetime import die_with_parent
from protocol.models import save_byte_tokenizer
from protocol.training import OptimizerConfig, ScheduleConfig, TrainConfig
from trainer.batch import Group, TrainRollout
from trainer.config import MemoryConfig, ParallelConfig
from trainer.distributed import loopback_store, rendezvous_environment
from trainer.exits import EXIT_DONE, EXIT_LOST, RanksLostError
from trainer.learner import Learner, LearnerGroup
from trainer.model.sharding import make_placement
from trainer.records import Records
from trainer.tiny_model import PHRASES, tiny_qwen2
from trainer.train import TrainingProgress

STEPS, FILES = 16, 2
CONFIG = TrainConfig(steps=STEPS, minibatches=2, optimizer=OptimizerConfig(schedule=ScheduleConfig(warmup_updates=0)))
MEMORY = MemoryConfig(row_tokens=512)
TIMEOUT_SECONDS, RUN_SECONDS = 60.0, 900.0
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["benchmarks.resume_ranks", "transformers.models.qwen2.modeling_qwen2"])


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
        progress.save(asdict(metrics), entries, lambda: group.export(export_path(home, progress.learner.step)))
        records.write(asdict(metrics), entries)
    group.end(EXIT_DONE)


class RankProcesses:
    """A trainer's ranks, forked from a process that has torch imported: what the launcher does, without its seconds of
    start-up. `last`: the policy step to end at."""

    def __init__(self, home: Path, ranks: int, last: int = STEPS) -> None:
        self._store = loopback_store(timedelta(seconds=TIMEOUT_SECONDS))
        shared = rendezvous_environment(self._store) | {"WORLD_SIZE": str(ranks)}
        environments = [
            shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} if ranks > 1 else {} for rank in range(ranks)
        ]
        self.all = [_CONTEXT.Process(target=_rank, args=(home, last, one), daemon=True) for one in environments]
        for process in self.all:
            process.start()

    @property
    def running(self) -> bool:
        """Whether every rank is there."""
        return all(process.is_alive() for process in self.all)

    def end(self) -> None:
        """After the loss of a rank: the others notice it, or are ended too."""
        for process in self.all:
            process.join(10)
            process.kill()
            process.join()

    def finish(self) -> None:
        """Wait until the ranks have ended well. Raises RuntimeError if they do not."""
        for process in self.all:
            process.join(RUN_SECONDS)
        codes = [process.exitcode for process in self.all]
        self.end()
        if any(codes):
            raise RuntimeError(f"ranks that were left alone ended with exit codes {codes}")


def _rank(home: Path, last: int, environment: dict[str, str]) -> None:
    die_with_parent()
    os.environ |= environment
    set_threads(1)
    try:
        placement = make_placement(ParallelConfig(timeout_seconds=TIMEOUT_SECONDS), MEMORY, "cpu")
        base = home.parent / "base"
        group = LearnerGroup(placement.ranks, lambda: Learner(base, CONFIG, 1.0, placement=placement))
        if placement.ranks.rank:
            sys.exit(group.follow())
        lead(home, group, last)
    except RanksLostError as error:
        logging.getLogger("muster.trainer").info("%s", error)
        sys.exit(EXIT_LOST)
