"""`python -m benchmarks codec`: the delta codec on real training steps, on made-up tensors and on damaged deltas.

Six runs of 200 consecutive steps of a 25.7M model by our trainer on real tasks: AdamW and Muon at three learning rates.
Each delta is measured as it is made (benchmarks/codec_slices.py), so the disk holds a checkpoint of each run and no
weights besides. All runs reach FIRST steps before any goes on; `--seconds S` ends after so long. `--resume` goes on,
from the whole runs in results/codec_runs too: a lost machine loses only what was under way.
Ratios are of the whole delta, hashes included, to the bf16 weights: the mean over steps of full ÷ delta, and beside it
that of PULSE's format and that of an ideal coder of single elements (`entropy`), on the same steps. Speeds are in
gigabytes of base per second of processor time of one thread, without and with the SHA-256 of the result; every tenth
step is timed, and the median counts. `steps`: of each run, measured so far; `seconds`: of processor time that all of
them took.
"""

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.codec_cases import is_accepted, is_restored, made_case, tensor_pair
from benchmarks.codec_slices import JOURNAL
from protocol.errors import MusterError
from trainer.records import read_records, write_records

RATES, METHODS = ("1e-6", "1e-5", "1e-4"), ("adamw", "muon")
STEPS, QUICK_STEPS, MADE_UP, QUICK_MADE_UP = 200, 3, 10_000, 300
FIRST = 20
FOLDER = Path(__file__).parent.parent / "build" / "codec"
KEPT = Path(__file__).parent / "results" / "codec_runs"
_AT_ONCE = 500


def run(
    quick: bool, progress: Callable[[str], None], resume: bool = False, seconds: int | None = None
) -> dict[str, Any]:
    """See the module. `seconds`: after which nothing further is begun."""
    steps, made_up = (QUICK_STEPS, QUICK_MADE_UP) if quick else (STEPS, MADE_UP)
    folder, end = FOLDER / ("quick" if quick else "full"), time.monotonic() + (seconds or float("inf"))
    if not resume:
        shutil.rmtree(folder, ignore_errors=True)
    names = [f"{method}-{rate}" for rate in (RATES[:1] if quick else RATES) for method in METHODS]
    if resume and not quick:
        _bring_back(folder, names)
    for stage in (min(FIRST, steps), steps):
        for name in names:
            _train(folder / name, stage, end)
            if not quick:
                _keep(folder / name, steps)
            progress(f"{name}: {figures(read_records(folder / name / JOURNAL))}")
    found = {name: figures(read_records(folder / name / JOURNAL)) for name in names}
    cases = _cases(folder / "cases.jsonl", made_up, end, progress)
    return {"wanted": steps, **summary(found), **cases, "runs": found}


def _keep(folder: Path, steps: int) -> None:
    """Leave the journal of a whole run where it outlives this machine."""
    if len(lines := read_records(folder / JOURNAL)) >= steps:
        KEPT.mkdir(exist_ok=True)
        write_records(KEPT / f"{folder.name}.jsonl", lines)


def _bring_back(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        lines = read_records(KEPT / f"{name}.jsonl")
        if len(lines) > len(read_records(folder / name / JOURNAL)):
            (folder / name).mkdir(parents=True, exist_ok=True)
            write_records(folder / name / JOURNAL, lines)


def _train(folder: Path, last: int, end: float) -> None:
    """A slice of a recording, in a process of its own, up to step `last`. One that is whole needs no checkpoint."""
    if len(read_records(folder / JOURNAL)) >= last or time.monotonic() >= end:
        return
    method, _, rate = folder.name.partition("-")
    left = str(end - time.monotonic())
    command = [sys.executable, "-m", "benchmarks.codec_slices", str(folder), method, rate, str(last), left]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip()
        raise MusterError(f"{folder.name}: {why[-1000:]}", "see above")


def figures(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Of a recording, so far."""
    if not lines:
        return {"steps": 0}
    means = {
        name: round(statistics.fmean(one["full"] / one[key] for one in lines), 2)
        for name, key in (("ratios", "delta"), ("pulse", "pulse"), ("entropy", "entropy"))
    }
    timed = [one for one in lines if "cpu" in one]
    speeds = {
        f"{key}_gb_s": round(statistics.median(one["full"] / 1e9 / one["cpu"][key] for one in timed), 3)
        for key in (timed[0]["cpu"] if timed else ())
    }
    shares = [one["delta"] / one["full"] for one in lines]
    return {
        "steps": len(lines),
        **means,
        "all_together": round(1 / statistics.fmean(shares), 2),
        "worst": round(1 / max(shares), 2),
        "largest": round(max(shares), 5),
        "changed": round(statistics.fmean(2 * one["changed"] / one["full"] for one in lines), 5),
        "tokens": round(statistics.fmean(one["tokens"] for one in lines)),
        **speeds,
        "load": statistics.median(one["load"] for one in timed) if timed else None,
        "seconds": round(sum(one["train_cpu"] + one["measure_cpu"] for one in lines)),
    }


def summary(runs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Of each learning rate the worse optimizer's figures."""
    some = {name: one for name, one in runs.items() if one["steps"]}
    found: dict[str, Any] = {"steps": {name: one["steps"] for name, one in runs.items()}}
    for key in ("ratios", "pulse", "entropy", "encode_gb_s", "decode_gb_s", "decode_hash_gb_s"):
        values = [(name.partition("-")[2], one[key]) for name, one in some.items() if key in one]
        found[key] = {rate: min(value for at, value in values if at == rate) for rate in dict(values)}
    return found | {"largest": max((one["largest"] for one in some.values()), default=None)}


def _cases(journal: Path, count: int, end: float, progress: Callable[[str], None]) -> dict[str, int]:
    """`made_up` tensors of which `restored` came back bit for bit; `corrupted` deltas of which `corrupted_accepted`
    made other weights than their maker had."""
    journal.parent.mkdir(parents=True, exist_ok=True)
    lines = read_records(journal)
    for name, counted in (("restored", restored), ("accepted", accepted)):
        first = sum(one["count"] for one in lines if one["name"] == name)
        while first < count and time.monotonic() < end:
            size = min(_AT_ONCE, count - first)
            lines.append({"name": name, "count": size, "found": counted(first, size)})
            write_records(journal, lines)
            first += size
            progress(f"{name}: {first} of {count}")
    sums = {(name, key): sum(one[key] for one in lines if one["name"] == name)
            for name in ("restored", "accepted") for key in ("count", "found")}  # fmt: skip
    return {
        "made_up": sums["restored", "count"],
        "restored": sums["restored", "found"],
        "corrupted": sums["accepted", "count"],
        "corrupted_accepted": sums["accepted", "found"],
    }


def restored(first: int, count: int) -> int:
    """How many of so many made-up tensors come out of their deltas bit for bit."""
    return sum(is_restored(tensor_pair(number)) for number in range(first, first + count))


def accepted(first: int, count: int) -> int:
    """How many of so many damaged deltas, of twenty sorts of tensors, make other weights than their maker had."""
    cases = [made_case([tensor_pair(start + one) for one in range(3 + start % 22)]) for start in range(20, 420, 20)]
    cases = [case for case in cases if case.base_index != case.new_index]
    return sum(is_accepted(cases[number % len(cases)], number) for number in range(first, first + count))
