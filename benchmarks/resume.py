"""Kills of ranks, and resumes on another number of them.

`python -m benchmarks resume [--quick] [--count KILLS]`. A trainer on two ranks of gloo is killed (kill -9 of a random
rank at a random moment: starting, training, writing a checkpoint) and started again until it is done; its last
policy must equal that of an uninterrupted run to the bit, and no file may have been trained on twice. Then half a run
on some ranks is continued on others and compared with one process. Keys: kills, bit_equal (runs whose weights were
equal, of `runs`), repeated (files trained twice), ranks {"2->1": largest difference of a weight, …}.
"""

import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from benchmarks.resume_ranks import STEPS, RankProcesses, export_path, make_base
from protocol.files import file_digests
from trainer.records import Records, read_records

Progress = Callable[[str], None]
CHANGES = ((2, 1), (2, 4), (1, 2), (4, 2))
KILLS_PER_RUN = 5
MOMENT_SECONDS = 0.6


def run(quick: bool, progress: Progress, count: int = 0) -> dict[str, Any]:
    """`count`: kills; 20, or two in a quick run."""
    wanted = count or (2 if quick else 20)
    with tempfile.TemporaryDirectory(prefix="muster-resume-") as name:
        home = Path(name)
        make_base(home / "base")
        steady = home / "steady"
        RankProcesses(steady, 2).finish()
        progress(f"an uninterrupted run of {STEPS} steps is done")
        found = kill_all(home, steady, wanted, progress)
        alone = home / "alone"
        RankProcesses(alone, 1).finish()
        changes = CHANGES[:1] if quick else CHANGES
        errors = {f"{first}->{second}": resumed_error(home, alone, first, second) for first, second in changes}
        progress(f"largest difference of a weight from one process: {errors}")
    return {**found, "steps": STEPS, "ranks": errors}


def kill_all(home: Path, steady: Path, wanted: int, progress: Progress) -> dict[str, Any]:
    """Runs with up to five kills each, until `wanted` ranks were killed."""
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
    """One run, killed up to `quota` times while it is on its way; returns how often."""
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
    """Let a trainer start, or take one to three more steps, and then go on for a part of another; False if it has
    finished."""
    goal = len(Records(home).metrics()) + dice.randint(0, 3)
    while ranks.running:
        if len(Records(home).metrics()) >= goal:
            time.sleep(dice.uniform(0.0, MOMENT_SECONDS))
            return ranks.running
        time.sleep(0.01)
    return False


def resumed_error(home: Path, alone: Path, first: int, second: int) -> float:
    """Half a run on `first` ranks, the other half on `second`: the largest difference of a weight from one process."""
    mixed = home / f"{first}-then-{second}"
    RankProcesses(mixed, first, STEPS // 2).finish()
    RankProcesses(mixed, second).finish()
    one, other = (load_file(export_path(path, STEPS) / "model.safetensors") for path in (alone, mixed))
    shutil.rmtree(mixed)
    return max(float((one[name] - other[name]).abs().max()) for name in one)
