"""Kills of ranks, and resumes on another number of them.

`python -m benchmarks resume [--quick] [--count KILLS]`. A trainer on two ranks of gloo, on made-up rollouts, without
chain and bucket, is killed (kill -9 of a random rank at a random moment) and started again until it is done; its last
policy must equal that of an uninterrupted run to the bit, and no file may have been trained on twice. Then half a run
on some ranks is continued on others and compared with one process. Keys: kills, bit_equal (all `runs`), repeated (files
trained twice), ranks {"2->1": largest difference of a weight, …}.
"""

import logging
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from benchmarks.support.rollouts import save_random_demo
from engines.loading import set_threads
from protocol.config import OptimizerConfig, ScheduleConfig, TrainConfig
from protocol.encoding import sha256_hex
from protocol.files import die_with_parent, file_digests
from trainer.config import MemoryConfig, ParallelConfig
from trainer.data.batch import Group, TrainRollout
from trainer.distributed import loopback_store, rendezvous_environment
from trainer.exits import EXIT_DONE, EXIT_LOST, RanksLostError
from trainer.learner import Learner, LearnerGroup
from trainer.model.sharding import make_placement
from trainer.model.tiny_model import PHRASES
from trainer.reports.records import Records, read_records
from trainer.train import TrainingProgress

STEPS, FILES = 16, 2
CONFIG = TrainConfig(steps=STEPS, minibatches=2, optimizer=OptimizerConfig(schedule=ScheduleConfig(warmup_updates=0)))
MEMORY = MemoryConfig(row_tokens=512)
TIMEOUT_SECONDS, RUN_SECONDS = 60.0, 900.0
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["benchmarks.resume", "transformers.models.qwen2.modeling_qwen2"])


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
    while progress.step < last:
        step = progress.step + 1
        numbers = [FILES * (step - 1) + index for index in range(FILES)]
        names = {number: sha256_hex(str(number).encode()) for number in numbers}
        assert progress.consumed.isdisjoint(names.values()), f"step {step} would train a file twice"
        metrics = group.train_step([prepared for number in numbers for prepared in file_groups(number)])
        progress.consumed |= set(names.values())
        entries = [{"step": step, "sequence": number, "sha256": name} for number, name in names.items()]
        progress.document, progress.files = asdict(metrics), entries
        progress.begin()
        group.gather()(export_path(home, progress.step))
        progress.finish()
        records.write(asdict(metrics), entries)
    group.end(EXIT_DONE)


class RankProcesses:
    """A trainer's ranks, forked from a process that has torch imported: the launcher without its seconds of start-up.
    `last`: the policy step to end at."""

    def __init__(self, home: Path, ranks: int, last: int = STEPS) -> None:
        self._store = loopback_store(timedelta(seconds=TIMEOUT_SECONDS))
        shared = rendezvous_environment(self._store) | {"WORLD_SIZE": str(ranks)}
        environments = [
            shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} if ranks > 1 else {} for rank in range(ranks)
        ]
        self.all = [
            _CONTEXT.Process(target=_rank, args=(home, last, environment), daemon=True) for environment in environments
        ]
        for process in self.all:
            process.start()

    @property
    def running(self) -> bool:
        """Return whether every rank is there."""
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


Progress = Callable[[str], None]
CHANGES = ((2, 1), (2, 4), (1, 2), (4, 2))
KILLS_PER_RUN = 5
MOMENT_SECONDS = 0.6


def run(quick: bool, progress: Progress, count: int = 0) -> dict[str, Any]:
    """`count`: kills; 20, or two in a quick run."""
    wanted = count or (2 if quick else 20)
    with tempfile.TemporaryDirectory(prefix="muster-resume-") as name:
        home = Path(name)
        save_random_demo(home / "base", PHRASES, 0)
        steady = home / "steady"
        RankProcesses(steady, 2).finish()
        progress(f"an uninterrupted run of {STEPS} steps is done")
        counts = kill_all(home, steady, wanted, progress)
        alone = home / "alone"
        RankProcesses(alone, 1).finish()
        changes = CHANGES[:1] if quick else CHANGES
        errors = {f"{first}->{second}": resumed_error(home, alone, first, second) for first, second in changes}
        progress(f"largest difference of a weight from one process: {errors}")
    return {**counts, "steps": STEPS, "ranks": errors}


def kill_all(home: Path, steady: Path, wanted: int, progress: Progress) -> dict[str, Any]:
    """Make runs with up to five kills each, until `wanted` ranks were killed."""
    dice, kills, runs, equal, repeated = random.Random(1), 0, 0, 0, 0
    while kills < wanted:
        killed = home / f"killed-{runs}"
        quota = min(KILLS_PER_RUN, wanted - kills)
        done = killed_run(killed, quota, dice, progress)
        kills, runs = kills + done, runs + 1
        same = file_digests(export_path(killed, STEPS)) == file_digests(export_path(steady, STEPS))
        equal += same
        trained = Counter(entry["sha256"] for entry in read_records(Records(killed).trained_path))
        repeated += sum(times - 1 for times in trained.values())
        whole = trained.keys() == {entry["sha256"] for entry in read_records(Records(steady).trained_path)}
        progress(
            f"run {runs}: {done} kills, weights {'equal' if same else 'DIFFER'}, {'all' if whole else 'NOT ALL'} files"
        )
    return {"kills": kills, "runs": runs, "bit_equal": equal == runs, "repeated": repeated}


def killed_run(home: Path, quota: int, dice: random.Random, progress: Progress) -> int:
    """Make one run, killed up to `quota` times while it is on its way; return how often."""
    done = 0
    while done < quota:
        ranks = RankProcesses(home, 2)
        if not wait_for_a_moment(ranks, home, dice):
            break
        dice.choice(ranks.all).kill()
        done += 1
        ranks.end()
        progress(f"{home.name}: kill {done} after {len(Records(home).metrics())} steps")
    RankProcesses(home, 2).finish()
    return done


def wait_for_a_moment(ranks: RankProcesses, home: Path, dice: random.Random) -> bool:
    """Let a trainer take up to three more steps and a part of another; return False if it has finished."""
    goal = len(Records(home).metrics()) + dice.randint(0, 3)
    while ranks.running:
        if len(Records(home).metrics()) >= goal:
            time.sleep(dice.uniform(0.0, MOMENT_SECONDS))
            return ranks.running
        time.sleep(0.01)
    return False


def resumed_error(home: Path, alone: Path, first: int, second: int) -> float:
    """Make half a run on `first` ranks, half on `second`; return a weight's largest difference from one process."""
    mixed = home / f"{first}-then-{second}"
    RankProcesses(mixed, first, STEPS // 2).finish()
    RankProcesses(mixed, second).finish()
    weights, other = (load_file(export_path(path, STEPS) / "model.safetensors") for path in (alone, mixed))
    shutil.rmtree(mixed)
    return max(float((weights[name] - other[name]).abs().max()) for name in weights)
