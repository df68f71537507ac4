"""Detection rates of every attack, through the validator's own pipeline, on the demo's tiny model and without a chain.

`python -m benchmarks attacks [--quick] [--resume] [--jobs N] [--count N]`. Finished rows are kept in
build/attacks-<count>.jsonl; `--resume` takes those of the same count, checks and model. Keys: `attacks` (see
`OfflinePool.row`), `fractions` (partial cheating against audit rates), `honest`.
"""

import functools
import multiprocessing
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from attacks.registry import REGISTRY
from benchmarks.support.kept import keep, kept
from benchmarks.support.offline_pool import (
    BFLOAT16,
    ENVIRONMENT,
    FLOAT32,
    FULL_WORK,
    WORK,
    OfflinePool,
    Progress,
    interval,
    work_of,
)
from protocol.encoding import canonical_json, sha256_hex
from protocol.seeds import AUDIT_EVERYTHING
from trainer.model.base_model import base_model
from trainer.model.tiny_model import tiny_model_config
from worker.produce import Producer

LEARNING_RATES = (1e-6, 1e-5, 1e-4, 3e-4)
BEHIND = (1, 2, 4)
STEPS_BEFORE = 8
"""Optimiser steps before the first policy that counts: Adam's very first steps move weights several times further."""
STRENGTHS: dict[str, tuple[float, ...]] = {
    "weights-noise": (0.02, 0.01, 0.001, 0.0001),
    "token-swap": (0, 1),
    "early-eos": (0, 1),
    "padding": (0, 1),
    "edited-copy": (0, 1),
    "altered-prompt": (0, 1),
}
SEPARATE = ("weights-stale", "partial")
BF16 = (
    "weights-noise", "weights-int8", "weights-small", "greedy", "temperature", "reroll", "seed", "fabricate",
    "gibberish", "ghostwriter", "ghostwriter-int8", "token-swap", "early-eos", "padding", "hidden-prompt",
    "altered-prompt", "proofs-constant", "proofs-random", "proofs-swapped", "proofs-other-file", "edited-copy",
    "old-completions", "other-lane", "copied-samples",
)  # fmt: skip
SHARES = (1 / 16, 1 / 4)
RATES = (AUDIT_EVERYTHING // 8, AUDIT_EVERYTHING // 4, AUDIT_EVERYTHING // 2, AUDIT_EVERYTHING)


@dataclass(frozen=True)
class Spec:
    """One unit of work. `table` is honest, attacks, stale (`strength` steps behind at learning rate `rate`) or
    fractions (`strength` is the share of cheated rollouts). `full`: files of the demo's size."""

    table: str
    dtype: str
    name: str
    strength: float = 0.0
    rate: float = 0.0
    full: bool = False

    @property
    def label(self) -> str:
        label = f"{self.name}={self.strength:g}" if self.strength else self.name
        label += f" lr={self.rate:g}" if self.table == "stale" else ""
        return label + " in files of 128" * self.full

    def key(self, offline: OfflinePool, count: int) -> str:
        """What a kept row must have been measured with to stand for this one."""
        return sha256_hex(canonical_json([asdict(self), count, offline.config.digest.hex(), offline.folder.name]))[:16]


FINEST = (
    Spec("honest", FLOAT32, "honest", full=True),
    Spec("attacks", FLOAT32, "weights-noise", 0.0001, full=True),
    Spec("stale", FLOAT32, "weights-stale", 1, 1e-6, full=True),
)


def specs(quick: bool) -> list[Spec]:
    """Return every row, in the table's order; a quick run has all attacks in float32 and a few of the others."""
    rates, behind = (LEARNING_RATES[:1] + LEARNING_RATES[-1:], BEHIND[:1]) if quick else (LEARNING_RATES, BEHIND)
    out = [Spec("honest", dtype, "honest") for dtype in (FLOAT32, BFLOAT16)]
    for dtype, names in ((FLOAT32, sorted(set(REGISTRY) - set(SEPARATE))), (BFLOAT16, BF16[:3] if quick else BF16)):
        for name in names:
            for strength in STRENGTHS.get(name, (REGISTRY[name].default,)):
                out.append(Spec("attacks", dtype, name, strength))
        if dtype == FLOAT32 or not quick:
            out += [Spec("stale", dtype, "weights-stale", steps, rate) for rate in rates for steps in behind]
    out += [] if quick else FINEST
    return out + [Spec("fractions", FLOAT32, "partial", share) for share in SHARES]


def measure(offline: OfflinePool, spec: Spec, count: int, progress: Progress) -> list[dict[str, Any]]:
    """Return the rows of one spec: one, or for fractions one per audit rate."""
    with producing(offline, spec) as (pool, producer):
        if spec.table == "fractions":
            return list(_fractions(pool, spec.strength, producer, count, progress))
        return [pool.row(spec.label, producer, count, progress)]


@contextmanager
def producing(offline: OfflinePool, spec: Spec) -> Iterator[tuple[OfflinePool, Producer]]:
    """Yield the pool that judges a spec's files, with the weights that it judges by, and what makes them."""
    if spec.table == "stale":
        with _stale(offline, spec) as found:
            yield found
        return
    if spec.table == "honest":
        yield offline, offline.honest()
        return
    producer = REGISTRY[spec.name].build(offline.config, offline.engine(), spec.strength)
    producer.load(offline.folder)
    yield offline, producer


def _fractions(
    offline: OfflinePool, share: float, producer: Producer, count: int, progress: Progress
) -> Iterator[dict[str, Any]]:
    """Yield rows of a worker that cheats on a share of its rollouts, measured and by the formula of the docs."""
    rows = offline.config.work.rows
    cheated = round(share * rows)
    files = list(offline.files(producer, count))
    for rate in RATES:
        codes = Counter(offline.verdict(made, one, rate).code.is_accept for one, made in files)
        audit = rate / AUDIT_EVERYTHING
        formula = 1 - (1 - audit) ** cheated * (rows - cheated) / rows
        low, high = interval(codes[False], count)
        progress(f"share {share:g} audit {audit:g}: {codes[False]} of {count}, formula {formula:.3f}")
        yield {
            "share": share,
            "audit": audit,
            "submissions": count,
            "detected": codes[False],
            "formula": round(formula, 4),
            "interval95": [round(low, 4), round(high, 4)],
            "matches": low <= formula <= high,
        }


@contextmanager
def _stale(offline: OfflinePool, spec: Spec) -> Iterator[tuple[OfflinePool, Producer]]:
    folders = policies(offline, spec.rate)
    offline.verifier.load(folders[-1])
    try:
        producer = Producer(offline.config, offline.engine())
        producer.load(folders[-1 - int(spec.strength)])
        yield replace(offline, folder=folders[-1]), producer
    finally:
        offline.verifier.load(offline.folder)


@functools.cache
def _scratch() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="muster-benchmark-")


@functools.cache
def policies(offline: OfflinePool, rate: float) -> list[Path]:
    """Return folders of successive policies, made once per process and learning rate: AdamW on a policy gradient with
    random advantages, since it matters how far an optimiser step moves the weights, not where to."""
    import torch
    from transformers import AutoModelForCausalLM

    target = Path(tempfile.mkdtemp(dir=_scratch().name))
    model: Any = AutoModelForCausalLM.from_pretrained(offline.folder, dtype=torch.float32)
    rows = offline.honest().make(work_of(10**6)).rollouts
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.99), weight_decay=0.01)
    generator = torch.Generator().manual_seed(0)
    folders = []
    for step in range(STEPS_BEFORE + max(BEHIND) + 1):
        if step >= STEPS_BEFORE:
            folders.append(target / str(step))
            shutil.copytree(offline.folder, folders[-1])
            model.save_pretrained(folders[-1])
        loss = torch.zeros(())
        for row in rows:
            ids = torch.tensor([row.prompt_tokens + row.output_tokens])
            logits = model(ids).logits[0, len(row.prompt_tokens) - 1 : -1].log_softmax(-1)
            chosen = logits.gather(1, torch.tensor(row.output_tokens).unsqueeze(1)).sum()
            loss = loss - chosen * torch.randn((), generator=generator) / len(rows)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    return folders


BUILD = Path(__file__).parents[2] / "build"
COUNT, QUICK_COUNT = 200, 2
Rows = list[dict[str, Any]]


@functools.cache
def _offline(folder: Path, dtype: str, full: bool) -> OfflinePool:
    import torch

    torch.set_num_threads(1)
    return OfflinePool.of(folder, dtype, work=FULL_WORK if full else WORK)


def _one(folder: Path, spec: Spec, count: int) -> tuple[Rows, list[str], float]:
    """Return rows, progress lines and seconds of one spec."""
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


def run(quick: bool, progress: Progress, resume: bool = False, jobs: int = 1, count: int = 0) -> dict[str, Any]:
    """Measure all rows; the base model comes from the cache, or is trained first (40 s of one core)."""
    folder = base_model(tiny_model_config(), ENVIRONMENT, 1, progress=progress)
    return table(folder, specs(quick), count or (QUICK_COUNT if quick else COUNT), progress, resume, jobs)


def table(
    folder: Path, wanted: list[Spec], count: int, progress: Progress, resume: bool, jobs: int, build: Path = BUILD
) -> dict[str, Any]:
    """Measure the rows that are not kept from before, `jobs` processes at a time."""
    keys = {spec: spec.key(_offline(folder, spec.dtype, spec.full), count) for spec in wanted}
    path = build / f"attacks-{count}.jsonl"
    before = {line["key"]: line["rows"] for line in kept(path, resume) if {"key", "rows"} <= line.keys()}
    rows = {spec: before[keys[spec]] for spec in wanted if keys[spec] in before}
    todo = [spec for spec in wanted if spec not in rows]
    if rows:
        progress(f"{len(rows)} of {len(wanted)} rows are kept from before")
    for number, (spec, found, lines, seconds) in enumerate(_finished(folder, todo, count, jobs), 1):
        rows[spec] = found
        keep(path, {"key": keys[spec], "rows": found})
        for line in lines:
            progress(f"[{number} of {len(todo)}, {seconds:.1f} s] {line}")
    tables: dict[str, Rows] = {"attacks": [], "fractions": [], "honest": []}
    for spec in wanted:
        tables["attacks" if spec.table == "stale" else spec.table] += rows[spec]
    return tables
