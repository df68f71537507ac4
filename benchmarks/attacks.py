"""Detection rates of every attack, through the validator's own pipeline, on the demo's tiny model and without a chain.

`python -m benchmarks attacks [--quick] [--resume] [--jobs N] [--count N]`. Each finished row is appended to
build/attacks-<count>.jsonl at once; `--resume` takes rows of the same count, checks and model from there. Keys:
`attacks` (see `OfflinePool.row`), `fractions` (partial cheating against audit rates), `honest`.
"""

import functools
import json
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from benchmarks.attack_rows import Spec, measure, specs
from benchmarks.offline_pool import ENVIRONMENT, FULL_WORK, WORK, OfflinePool, Progress
from trainer.base_model import base_model
from trainer.tiny_model import tiny_model_config

BUILD = Path(__file__).parent.parent / "build"
COUNT, QUICK_COUNT = 200, 2
TABLES = {"honest": "honest", "attacks": "attacks", "stale": "attacks", "fractions": "fractions"}

Rows = list[dict[str, Any]]


@functools.cache
def _offline(folder: Path, dtype: str, full: bool) -> OfflinePool:
    import torch

    torch.set_num_threads(1)
    return OfflinePool.of(folder, dtype, work=FULL_WORK if full else WORK)


def _one(folder: Path, spec: Spec, count: int) -> tuple[Rows, list[str], float]:
    """Rows, progress lines and seconds of one spec, in whichever process."""
    start, lines = time.monotonic(), list[str]()
    rows = measure(_offline(folder, spec.dtype, spec.full), spec, count, lines.append)
    return rows, lines, time.monotonic() - start


def _finished(folder: Path, todo: list[Spec], count: int, jobs: int) -> Iterator[tuple[Spec, Rows, list[str], float]]:
    if jobs == 1:
        for spec in todo:
            yield spec, *_one(folder, spec, count)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(_one, folder, spec, count): spec for spec in todo}
        for done in as_completed(waiting):
            yield waiting[done], *done.result()


def _kept(path: Path) -> dict[str, Rows]:
    """Rows of an earlier run by key; a line cut off by a kill is left out."""
    out: dict[str, Rows] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found = json.loads(line)
            out[found["key"]] = found["rows"]
        except (ValueError, KeyError, TypeError):
            continue
    return out


def run(quick: bool, progress: Progress, resume: bool = False, jobs: int = 1, count: int = 0) -> dict[str, Any]:
    """{attacks: [{name, dtype, submissions, detected, codes, same_text, by, margin, margin_low}], fractions: […],
    honest: […]}. The base model comes from the cache, or is trained first (40 s of one core)."""
    folder = base_model(tiny_model_config(), ENVIRONMENT, 1, progress=progress)
    return table(folder, specs(quick), count or (QUICK_COUNT if quick else COUNT), progress, resume, jobs)


def table(
    folder: Path, wanted: list[Spec], count: int, progress: Progress, resume: bool, jobs: int, build: Path = BUILD
) -> dict[str, Any]:
    """Measure the rows that are not kept from before, `jobs` processes at a time."""
    keys = {spec: spec.key(_offline(folder, spec.dtype, spec.full), count) for spec in wanted}
    kept = build / f"attacks-{count}.jsonl"
    before = _kept(kept) if resume else {}
    rows = {spec: before[keys[spec]] for spec in wanted if keys[spec] in before}
    todo = [spec for spec in wanted if spec not in rows]
    if rows:
        progress(f"{len(rows)} of {len(wanted)} rows are kept from before")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.open("a" if resume else "w") as stream:
        if resume:
            stream.write("\n")  # a killed run may have left half a line
        for number, (spec, found, lines, seconds) in enumerate(_finished(folder, todo, count, jobs), 1):
            rows[spec] = found
            stream.write(json.dumps({"key": keys[spec], "rows": found}) + "\n")
            stream.flush()
            for line in lines:
                progress(f"[{number} of {len(todo)}, {seconds:.1f} s] {line}")
    tables: dict[str, Rows] = {name: [] for name in dict.fromkeys(TABLES.values())}
    for spec in wanted:
        tables[TABLES[spec.table]] += rows[spec]
    return {name: tables[name] for name in ("attacks", "fractions", "honest")}
