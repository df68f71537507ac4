"""SAPO's comparison at our scale: eight members with the demo's model, mixes of own and shared groups, equal compute.

`python -m benchmarks swarm [--quick] [--resume] [--seconds S] [--only MIX|hostile|thousand|mixed]`. Real members
(`swarm/`): real generation, signatures, inspection, sampling and training; a shelf in memory stands for the bucket.
Each member trains on `own` + `shared` groups of 8 completions a round, of nine kinds of sums. Keys: mixes (mix → for
each seed the cumulative reward: over all rounds the members' mean reward of their own completions), held_out (mix → for
each seed the last held-out reward), runs [{mix, seed, rounds, cumulative, held_out, last, spread, series, signal,
taken, seconds}]: `held_out` is [rounds trained, the members' mean reward on 256 problems that no round has, the same
for all], by which mixes can be compared: a round's reward is one of fewer completions where fewer groups are the
member's own; `last` is the mean reward of the last tenth of the rounds, `spread` the deviation of the round's reward
from its mean over ten rounds (how much it oscillates), `signal` the share of trained groups that had an advantage,
`seconds` processor time, held-out measuring left out. A finished run is a line of results/swarm_runs.jsonl at once, so
that a lost machine costs what was in progress; `--resume` repeats none, `--seconds` begins none after that time. Key
hostile {share, reward_ratio, attacks} is what `--only hostile` found.

`--only hostile`: the attacks of benchmarks/swarm_hostile.py instead, and `--only thousand`: the crowds of
benchmarks/swarm_thousand.py; key hostile {share, reward_ratio, attacks: [{name, success, success_undefended, without,
…}], rows}, key crowds [{name, keys, hostile, …}], and key earlier {rate, rounds, rows}: what four times the demo's
learning rate gave, without the ration of what is rare but where a row says so. `--only mixed`: the unlike models of
benchmarks/swarm_mixed.py.
"""

import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import swarm_hostile, swarm_hostile_table
from benchmarks.swarm_members import HeldOutMeasure, SwarmCase, make_members
from engines.loading import set_threads
from localnet.plan import DEMO_ENVIRONMENT
from protocol.files import write_atomic
from trainer.base_model import base_model
from trainer.tiny_model import tiny_model_config

KEPT = Path(__file__).parent / "results" / "swarm.json"
KEPT_RUNS = KEPT.with_name("swarm_runs.jsonl")
KEPT_HOSTILE = KEPT.with_name("swarm_hostile.json")
SEEDS = (7, 1, 42)
MIXES = ((8, 0), (4, 4), (6, 2), (2, 6))
SMOOTH = 10


def run(
    quick: bool, progress: Callable[[str], None], resume: bool = False, seconds: int | None = None, only: str = ""
) -> dict[str, Any]:
    set_threads(1)
    if quick:
        cases = [SwarmCase(1, 1, members=2, rounds=2)]
        return summary([one_run(case, SEEDS[0], progress) for case in cases])
    if only == "hostile":
        return _others(progress, resume, seconds)
    cases = [case for case in (SwarmCase(*mix) for mix in MIXES) if only in case.name]
    runs = kept(KEPT_RUNS) if resume else []
    if not resume:
        KEPT_RUNS.unlink(missing_ok=True)
    began = time.monotonic()
    # Seed by seed: what is there after an interruption compares all mixes.
    for seed in SEEDS:
        for case in cases:
            done = any((one["mix"], one["seed"], one["rounds"]) == (case.name, seed, case.rounds) for one in runs)
            if done or (seconds is not None and time.monotonic() - began > seconds):
                continue
            runs.append(one_run(case, seed, progress))
            append_run(KEPT_RUNS, runs[-1])
            _keep(KEPT, summary(runs) | _hostile())
    return summary(runs) | _hostile()


def _hostile() -> dict[str, Any]:
    """What `--only hostile` found, without its rows; nothing where it was not run."""
    found = _document(KEPT_HOSTILE).get("hostile")
    return {} if found is None else {"hostile": {key: value for key, value in found.items() if key != "rows"}}


def _others(progress: Callable[[str], None], resume: bool, seconds: int | None) -> dict[str, Any]:
    found = _document(KEPT_HOSTILE)
    rows = found.get("hostile", {}).get("rows", []) if resume else []
    base = base_model(tiny_model_config(), DEMO_ENVIRONMENT, SEEDS[0], progress=progress)
    for row in swarm_hostile.missing(tuple(rows), base, progress, seconds):
        rows.append(row)
        found["hostile"] = swarm_hostile_table.table(rows)
        _keep(KEPT_HOSTILE, found)
    return found


def _document(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    return found


def _keep(path: Path, document: dict[str, Any]) -> None:
    write_atomic(path, json.dumps(document, indent=1).encode() + b"\n")


def append_run(path: Path, run: dict[str, Any]) -> None:
    """A line of what was measured. What a kill cut off before it is a line of its own, which `kept` leaves out."""
    data = path.read_bytes() if path.is_file() else b""
    with path.open("ab") as file:
        file.write(b"\n" * (not data.endswith(b"\n") and bool(data)) + json.dumps(run).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def kept(path: Path) -> list[dict[str, Any]]:
    """The whole runs of former calls, in the order of the comparison."""
    runs = []
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        try:
            runs.append(json.loads(line))
        except ValueError:
            continue
    names = [SwarmCase(*mix).name for mix in MIXES]
    return sorted(runs, key=lambda one: (SEEDS.index(one["seed"]), names.index(one["mix"])))


def summary(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    mixes: dict[str, list[float]] = {}
    for one in runs:
        mixes.setdefault(one["mix"], []).append(one["cumulative"])
    held_out: dict[str, list[float]] = {}
    for one in runs:
        held_out.setdefault(one["mix"], []).append(one["held_out"][-1][1])
    return {"mixes": mixes, "held_out": held_out, "runs": list(runs)}


def one_run(case: SwarmCase, seed: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """All rounds of one swarm. Members take a round in turn, so what is shared in it reaches who comes later at once,
    as in a network without a common beat."""
    base = base_model(tiny_model_config(), DEMO_ENVIRONMENT, seed, progress=progress)
    series: list[float] = []
    spent, signal, groups, taken = 0.0, 0, 0, 0
    with tempfile.TemporaryDirectory(prefix="muster-swarm-") as temporary:
        members = make_members(case, base, seed, Path(temporary))
        measure = HeldOutMeasure(case, base, Path(temporary))
        held_out = [(0, measure())]
        for number in range(case.rounds):
            began = time.process_time()
            done = [member.round(number) for member in members]
            series.append(statistics.fmean(one.reward for one in done))
            taken += sum(len(one.shared) for one in done)
            signal += sum(one.signal for one in done)
            groups += sum(one.own + len(one.shared) for one in done)
            spent += time.process_time() - began
            if number % SMOOTH == SMOOTH - 1 or number == case.rounds - 1:
                held_out.append((number + 1, measure()))
                shown = f"reward {series[-1]:.3f}, held-out {held_out[-1][1]:.3f}"
                progress(f"{case.name}, seed {seed}: round {number + 1}, {shown}")
    return {
        "mix": case.name,
        "seed": seed,
        "rounds": case.rounds,
        "cumulative": round(sum(series), 3),
        "held_out": held_out,
        "last": round(statistics.fmean(series[-max(1, case.rounds // 10) :]), 4),
        "spread": round(spread(series), 4),
        "series": [round(value, 4) for value in series],
        "signal": round(signal / max(1, groups), 4),
        "taken": taken,
        "seconds": round(spent, 1),
    }


def spread(series: Sequence[float]) -> float:
    """Root mean square of what a moving mean of ten rounds leaves of it."""
    means = [statistics.fmean(series[max(0, at - SMOOTH + 1) : at + 1]) for at in range(len(series))]
    return math.sqrt(statistics.fmean((value - mean) ** 2 for value, mean in zip(series, means, strict=True)))
