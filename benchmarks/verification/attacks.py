"""Detection rates of every attack, through the validator's own pipeline, on the demo's tiny model and without a chain.

`python -m benchmarks attacks [--quick] [--resume] [--count N]`. Finished rows are kept in build/attacks-<count>.jsonl;
`--resume` takes those of the same count, checks and model. Keys: `attacks` (see `OfflinePool.row`), `honest`.
"""

import functools
import time
from collections.abc import Iterator
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
)
from benchmarks.verification.evidence import HOME, Laboratory, Policy
from protocol.encoding import canonical_json, sha256_hex
from trainer.model.base_model import base_model
from trainer.model.tiny_model import tiny_model_config
from worker.produce import Producer

LEARNING_RATES = (1e-6, 1e-5, 1e-4, 3e-4)
BEHIND = (1, 2, 4)
STEP = 12
"""The policy step that counts. Adam's very first steps move weights several times further."""
STRENGTHS: dict[str, tuple[float, ...]] = {
    "weights-noise": (0.02, 0.01, 0.001, 0.0001),
    "token-swap": (0, 1),
    "early-eos": (0, 1),
    "padding": (0, 1),
    "edited-copy": (0, 1),
    "altered-prompt": (0, 1),
}
BF16 = (
    "weights-noise", "weights-int8", "weights-small", "greedy", "temperature", "reroll", "seed", "fabricate",
    "gibberish", "ghostwriter", "ghostwriter-int8", "token-swap", "early-eos", "padding", "hidden-prompt",
    "altered-prompt", "proofs-constant", "proofs-random", "proofs-swapped", "proofs-other-file", "edited-copy",
    "old-completions", "other-lane", "copied-samples",
)  # fmt: skip


@dataclass(frozen=True)
class Spec:
    """One row. `table` is honest, attacks, or stale (`strength` steps behind at learning rate `rate`). `full`: files of
    the demo's size."""

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
    for dtype, names in ((FLOAT32, sorted(set(REGISTRY) - {"weights-stale"})), (BFLOAT16, BF16[:3] if quick else BF16)):
        for name in names:
            for strength in STRENGTHS.get(name, (REGISTRY[name].default,)):
                out.append(Spec("attacks", dtype, name, strength))
        if dtype == FLOAT32 or not quick:
            out += [Spec("stale", dtype, "weights-stale", steps, rate) for rate in rates for steps in behind]
    return out + ([] if quick else list(FINEST))


@contextmanager
def producing(offline: OfflinePool, spec: Spec) -> Iterator[tuple[OfflinePool, Producer]]:
    """Yield the pool that judges a spec's files, with the weights that it judges by, and what makes them."""
    if spec.table == "stale":
        with _stale(offline, spec) as stale:
            yield stale
        return
    if spec.table == "honest":
        yield offline, offline.honest()
        return
    producer = REGISTRY[spec.name].build(offline.config, offline.engine(), spec.strength)
    producer.load(offline.folder)
    yield offline, producer


@contextmanager
def _stale(offline: OfflinePool, spec: Spec) -> Iterator[tuple[OfflinePool, Producer]]:
    folder = Laboratory(HOME, quick=False).weights(Policy(spec.rate, STEP))
    offline.verifier.load(folder)
    try:
        producer = Producer(offline.config, offline.engine())
        producer.load(folder.with_name(str(Policy(spec.rate, STEP - int(spec.strength)))))
        yield replace(offline, folder=folder), producer
    finally:
        offline.verifier.load(offline.folder)


BUILD = Path(__file__).parents[2] / "build"
COUNT, QUICK_COUNT = 200, 2


@functools.cache
def _offline(folder: Path, dtype: str, full: bool) -> OfflinePool:
    import torch

    torch.set_num_threads(1)
    return OfflinePool.of(folder, dtype, work=FULL_WORK if full else WORK)


def run(quick: bool, progress: Progress, resume: bool = False, count: int = 0) -> dict[str, Any]:
    """Measure all rows; the base model comes from the cache, or is trained first (40 s of one core)."""
    folder = base_model(tiny_model_config(), ENVIRONMENT, 1, progress=progress)
    return table(folder, specs(quick), count or (QUICK_COUNT if quick else COUNT), progress, resume)


def table(
    folder: Path, wanted: list[Spec], count: int, progress: Progress, resume: bool, build: Path = BUILD
) -> dict[str, Any]:
    """Measure the rows that are not kept from before."""
    keys = {spec: spec.key(_offline(folder, spec.dtype, spec.full), count) for spec in wanted}
    path = build / f"attacks-{count}.jsonl"
    before = {line["key"]: line["row"] for line in kept(path, resume) if {"key", "row"} <= line.keys()}
    tables: dict[str, list[dict[str, Any]]] = {"attacks": [], "honest": []}
    progress(f"{len(set(keys.values()) & before.keys())} of {len(wanted)} rows are kept from before")
    for number, spec in enumerate(wanted, 1):
        if (row := before.get(keys[spec])) is None:
            start = time.monotonic()
            with producing(_offline(folder, spec.dtype, spec.full), spec) as (pool, producer):
                row = pool.row(spec.label, producer, count, progress)
            keep(path, {"key": keys[spec], "row": row})
            progress(f"[{number} of {len(wanted)}, {time.monotonic() - start:.1f} s] {spec.label}")
        tables["honest" if spec.table == "honest" else "attacks"].append(row)
    return tables
