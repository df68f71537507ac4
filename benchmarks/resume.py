"""Kills of ranks, and resumes on another number of them.

`python -m benchmarks resume [--quick] [--count KILLS]`. A trainer on two ranks of gloo is killed (kill -9 of a random
rank at a random moment: starting, training, writing a checkpoint) and started again until it is done; its last
policy must equal that of an uninterrupted run to the bit, and no file may have been trained on twice. Then half a run
on some ranks is continued on others and compared with one process. Keys: kills, bit_equal (runs whose weights were
equal, of `runs`), repeated (files trained twice), ranks {"2->1": largest difference of a weight, …}.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from safetensors.torch import load_file

from benchmarks.resume_ranks import STEPS, export_path, make_base
from protocol.folders import file_digests
from trainer.exits import EXIT_DONE
from trainer.state.records import Records

Progress = Callable[[str], None]
CHANGES = ((2, 1), (2, 4), (1, 2), (4, 2))
KILLS_PER_RUN = 5
RUN_SECONDS = 900.0
MOMENT_SECONDS = 2.0


def run(quick: bool, progress: Progress, count: int = 0) -> dict[str, Any]:
    """`count`: kills; 20, or two in a quick run."""
    wanted = count or (2 if quick else 20)
    with tempfile.TemporaryDirectory(prefix="muster-resume-") as name:
        home = Path(name)
        make_base(home / "base")
        steady = home / "steady"
        seconds = finish(start(steady, 2))
        progress(f"an uninterrupted run of {STEPS} steps took {seconds:.0f} s")
        found = kill_all(home, steady, wanted, progress)
        alone = home / "alone"
        finish(start(alone, 1))
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
        trained = Counter(entry["sha256"] for entry in Records(killed).trained())
        repeated += sum(times - 1 for times in trained.values())
        whole = trained.keys() == {entry["sha256"] for entry in Records(steady).trained()}
        progress(
            f"run {runs}: {done} kills, weights {'equal' if same else 'DIFFER'}, {'all' if whole else 'NOT ALL'} files"
        )
    return {"kills": kills, "runs": runs, "bit_equal": equal == runs, "repeated": repeated}


def killed_run(home: Path, quota: int, dice: random.Random, progress: Progress) -> int:
    """One run, killed up to `quota` times while it is on its way; returns how often."""
    done = 0
    while done < quota:
        process = start(home, 2)
        victims = wait_for_a_moment(process, home, dice)
        if not victims:
            break
        os.kill(dice.choice(victims).pid, signal.SIGKILL)
        done += 1
        process.wait(RUN_SECONDS)
        progress(f"{home.name}: kill {done} after {len(Records(home).metrics())} steps")
    finish(start(home, 2))
    return done


def wait_for_a_moment(process: "subprocess.Popen[bytes]", home: Path, dice: random.Random) -> list[psutil.Process]:
    """Let a trainer start, or take one to three more steps, and then go on for a part of another; its ranks, none if it
    has finished."""
    goal = len(Records(home).metrics()) + dice.randint(0, 3)
    launcher, deadline = psutil.Process(process.pid), time.monotonic() + RUN_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if len(launcher.children()) == 2 and len(Records(home).metrics()) >= goal:
            time.sleep(dice.uniform(0.0, MOMENT_SECONDS))
            return [] if process.poll() is not None else launcher.children()
        time.sleep(0.02)
    return []


def resumed_error(home: Path, alone: Path, first: int, second: int) -> float:
    """Half a run on `first` ranks, the other half on `second`: the largest difference of a weight from one process."""
    mixed = home / f"{first}-then-{second}"
    finish(start(mixed, first, STEPS // 2))
    finish(start(mixed, second))
    one, other = (load_file(export_path(path, STEPS) / "model.safetensors") for path in (alone, mixed))
    shutil.rmtree(mixed)
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def start(home: Path, ranks: int, last: int = STEPS) -> "subprocess.Popen[bytes]":
    """The trainer's process; its output goes to a log beside `home`."""
    home.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.resume_ranks", str(home), str(ranks), str(last)]
    with home.with_suffix(".log").open("ab") as output:
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)


def finish(process: "subprocess.Popen[bytes]") -> float:
    """Wait for a run to end well; returns how many seconds it took from now on."""
    begun = time.monotonic()
    code = process.wait(RUN_SECONDS)
    if code != EXIT_DONE:
        raise RuntimeError(f"a run that was left alone ended with exit code {code}")
    return time.monotonic() - begun
