"""Do worker, validator and trainer find the same scores, bit for bit, for every environment that is offered?

Files are made, checked and loaded by the roles' own code, in three processes that differ in hash seed, time zone,
locale and threads; only the answers are given instead of generated: of each problem its reference in four forms, near
misses, its question. The roles' scores are compared as the bits of float32. It is done in slices, so many files of each
pool; `--resume` goes on after those that are kept in build/agreement, `--seconds` ends after a slice.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.agreement_roles import ROLES, ROWS_PER_FILE
from benchmarks.journal import append, resumed
from protocol.errors import MusterError
from protocol.files import user_cache

HERE = Path(__file__).parents[1]
WANTED, QUICK_FILES, FILES, POOLS = 100_000, 1, 8, 3
"""Scores; files of each pool in a slice; pools."""
SURROUNDINGS = {
    "worker": {"PYTHONHASHSEED": "1", "TZ": "Pacific/Kiritimati", "LC_ALL": "C", "OMP_NUM_THREADS": "1"},
    "validator": {"PYTHONHASHSEED": "4242", "TZ": "America/New_York", "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "2"},
    "trainer": {"PYTHONHASHSEED": "77", "TZ": "Asia/Kolkata", "LC_ALL": "POSIX", "OMP_NUM_THREADS": "1"},
}
_SLICE_SECONDS = 3600.0


def run(
    quick: bool, progress: Callable[[str], None], resume: bool = False, seconds: int | None = None
) -> dict[str, Any]:
    """See the module."""
    folder = HERE / "build" / ("agreement-quick" if quick else "agreement")
    folder.mkdir(parents=True, exist_ok=True)
    journal, end = folder / "journal.jsonl", time.monotonic() + (seconds or float("inf"))
    if not resume or quick:
        journal.unlink(missing_ok=True)
    kept = resumed(journal)
    _link_images(folder)
    files = QUICK_FILES if quick else FILES
    wanted = files * POOLS * ROWS_PER_FILE if quick else WANTED
    while sum(one["scores"] for one in kept) < wanted and time.monotonic() < end:
        first = sum(one["files"] for one in kept) // POOLS
        kept.append(_slice(folder, first, files))
        append(journal, kept[-1])
        progress(f"{sum(one['scores'] for one in kept)} scores, {sum(one['differing'] for one in kept)} differ")
    return summary(kept, wanted)


def summary(slices: list[dict[str, Any]], wanted: int) -> dict[str, Any]:
    """Of all slices together."""
    by_environment: dict[str, int] = {}
    for one in slices:
        for name, count in one["by_environment"].items():
            by_environment[name] = by_environment.get(name, 0) + count
    names = ("scores", "differing", "refused", "full", "none")
    return {
        "wanted": wanted,
        **{name: sum(one[name] for one in slices) for name in names},
        "environments": len(by_environment),
        "fewest_of_one": min(by_environment.values(), default=0),
        "findings": [line for one in slices for line in one["findings"]][:10],
    }


def _slice(folder: Path, first: int, files: int) -> dict[str, Any]:
    """Files first … first + files − 1 of every pool, by all three roles."""
    made = {role: _by_role(role, folder, first, files) for role in ROLES}
    findings, differing, refused = [], 0, 0
    for worker, validator, trainer in zip(*made.values(), strict=True):
        rows = list(zip(worker["scores"], validator["scores"], trainer["scores"], strict=True))
        wrong = [place for place, each in enumerate(rows) if len(set(each)) > 1]
        differing += len(wrong)
        findings += [f"{worker['file']}: {worker['where'][place]}: {rows[place]}" for place in wrong[:3]]
        if validator["refused"]:
            refused += 1
            findings.append(f"{worker['file']}: {validator['refused']}")
    named = [name for one in made["worker"] for name in one["where"]]
    scores = [score for one in made["worker"] for score in one["scores"]]
    return {
        "files": len(made["worker"]),
        "scores": len(scores),
        "differing": differing,
        "refused": refused,
        "full": sum(score.startswith("0000803f") for score in scores),
        "none": sum(score.startswith("00000000") for score in scores),
        "by_environment": {name: named.count(name) for name in dict.fromkeys(named)},
        "findings": findings,
    }


def _link_images(folder: Path) -> None:
    """A cache of its own for the environments' files, with this user's sandbox images: making them takes minutes."""
    cache = folder / "cache" / "muster"
    cache.mkdir(parents=True, exist_ok=True)
    if not (cache / "sandbox").exists():
        (cache / "sandbox").symlink_to(user_cache("sandbox"))


def _by_role(role: str, folder: Path, first: int, files: int) -> list[dict[str, Any]]:
    """What a role says of each file."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "benchmarks.agreement_roles", role, str(folder), str(first), str(files)],
        env=os.environ | SURROUNDINGS[role] | {"PYTHONPATH": str(HERE), "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        timeout=_SLICE_SECONDS,
        check=False,
    )
    if done.returncode:
        raise MusterError(f"the {role} failed: {done.stderr.decode(errors='replace')[-2000:]}", "see above")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b'{"file"')]
