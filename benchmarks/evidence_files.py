"""Files whose figures the benchmark of evidence adds up: honest ones and cheats of bf16 pools, made by one engine and
measured by another. Whatever was made or measured is kept, so that a slice takes minutes and a kill costs one file."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from attacks.registry import REGISTRY
from attacks.small import SMALL_ATTACKS
from attacks.steering import Shorten, Steer
from benchmarks.attack_rows import policies
from benchmarks.offline_pool import BFLOAT16, ENVIRONMENT, FULL_WORK, OfflinePool, work_of
from calibration.process import BatchProducer, context_of
from engines.base import Engine
from engines.factory import make_engine
from environments.pool import PoolEnvironments
from protocol.config import BF16_CHECKS, PoolConfig
from protocol.encoding import tagged_hash
from protocol.evidence.figures import RowFigures
from protocol.proofs.drift import Drift
from protocol.rollouts.file import read
from protocol.rollouts.schema import Limits
from protocol.seeds import Work
from trainer.basemodel import base_model
from trainer.tiny_model import tiny_model_config
from validator.measurements import measure
from validator.row_figures import row_figures
from worker.produce import Producer

BATCHES = (64,)
CONFIG = PoolConfig(
    name="evidence",
    model=tiny_model_config().model_copy(update={"dtype": BFLOAT16}),
    environments=(ENVIRONMENT,),
    work=FULL_WORK,
    checks=BF16_CHECKS,
)
DARES = 0.9
"""Of the largest score gap that the pool's thresholds allow, what the steering worker uses."""


class MeasuredRow(NamedTuple):
    """What one row of a file adds to evidence."""

    figures: RowFigures
    drift: Drift


@dataclass(frozen=True)
class Kind:
    """One way to make files: an attack at a strength, or a step of training at `rate`. `behind` is how many policy
    steps its weights are behind those that it is judged by. `inside`: it changes an engine's insides, those of
    transformers alone."""

    name: str
    attack: str = ""
    strength: float = 0.0
    rate: float = 0.0
    behind: int = 0
    inside: bool = False

    @property
    def folder_name(self) -> str:
        return self.name.replace(" ", "_")


HONEST = (Kind("calibration"), Kind("honest"))
DRIFT = (Kind("honest after 13 steps at 1e-5", rate=1e-5), Kind("honest after 13 steps at 1e-4", rate=1e-4))
CHEATS = (
    Kind("weights-int8", "weights-int8"),
    Kind("layer-int8", "layer-int8", 1.0),
    Kind("kv-int8", "kv-int8", inside=True),
    Kind("weights-noise=0.001", "weights-noise", 0.001),
    Kind("weights-stale=1 lr=1e-05", rate=1e-5, behind=1),
    Kind("weights-stale=4 lr=1e-05", rate=1e-5, behind=4),
    Kind("stale-prefill lr=1e-05", "stale-prefill", rate=1e-5, behind=1, inside=True),
    Kind("temperature=0.98", "temperature", 0.98),
    Kind("temperature-proven=0.98", "temperature-proven", 0.98),
    Kind("top-p=0.999", "top-p", 0.999, inside=True),
    Kind("greedy-rows=0.0625", "greedy-rows", 1 / 16),
    Kind("ghostwriter-int8", "ghostwriter-int8"),
    Kind("steer", "steer", DARES),
    Kind("steer for length", "shorten", DARES),
    Kind("weights-noise=0.0001", "weights-noise", 0.0001),
    Kind("weights-stale=1 lr=1e-06", rate=1e-6, behind=1),
)
STEERING: dict[str, type[Steer]] = {"steer": Steer, "shorten": Shorten}


CALIBRATION_FILES = {"transformers": 768, "vllm": 384}
"""By the worker's engine. The more there are, the better rare events are known; with transformers they cost little."""


def count_of(engine: str, kind: Kind, quick: bool) -> int:
    """Files of a kind."""
    if kind.name == "calibration":
        return 8 if quick else CALIBRATION_FILES[engine]
    return 2 if quick else 16


def weights(kind: Kind, home: Path) -> tuple[Path, Path]:
    """(the worker's, the verifier's) model folder."""
    base = base_model(tiny_model_config(), ENVIRONMENT, 1)
    if not kind.rate:
        return base, base
    steps = folder_of(kind, home)
    return steps / str(4 - kind.behind), steps / "4"


def folder_of(kind: Kind, home: Path) -> Path:
    """Where the policy steps of a kind with a `rate` lie."""
    return home / f"policies-{kind.rate:g}"


def train(kinds: Sequence[Kind], home: Path) -> None:
    """Make the policy steps that kinds need; in a process of its own, with transformers."""
    for rate in sorted({kind.rate for kind in kinds if kind.rate}):
        target = home / f"policies-{rate:g}"
        if not target.is_dir():
            base = base_model(tiny_model_config(), ENVIRONMENT, 1)
            partial = home / f"policies-{rate:g}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            for number, folder in enumerate(policies(OfflinePool.of(base, "float32"), rate)):
                shutil.copytree(folder, partial / str(number))
            partial.rename(target)


def produce(engine: str, kinds: Sequence[Kind], home: Path, quick: bool) -> int:
    """Make what is not there yet. Returns the count of new files."""
    made, shared = 0, cast(Engine | None, None)
    for kind in kinds:
        folder = home / engine / kind.folder_name
        folder.mkdir(parents=True, exist_ok=True)
        missing = [n for n in range(count_of(engine, kind, quick)) if not (folder / f"{n}.parquet").exists()]
        if not missing:
            continue
        # One whose insides are changed is of no use to the other kinds.
        own = (
            shared if shared is not None and not kind.inside else make_engine(engine, BFLOAT16, max_batch=max(BATCHES))
        )
        shared = shared if kind.inside else own
        producer = _producer(kind, own, home)
        for number in missing:
            if isinstance(producer, BatchProducer):
                producer.batch = BATCHES[number % len(BATCHES)]
            partial = folder / f"{number}.partial"
            partial.write_bytes(producer.make(work_for(engine, kind, number)).data)
            partial.rename(folder / f"{number}.parquet")
            made += 1
    return made


def measured(engine: str, verifier: str, kinds: Sequence[Kind], home: Path, quick: bool) -> int:
    """Measure what is not measured yet. Returns the count of newly measured files."""
    found, own, loaded = 0, make_engine(verifier, BFLOAT16, max_batch=16), Path()
    for kind in kinds:
        paths = [_figures_path(engine, verifier, kind, number, home) for number in range(count_of(engine, kind, quick))]
        missing = [number for number, path in enumerate(paths) if not path.exists()]
        if missing and loaded != weights(kind, home)[1]:
            loaded = weights(kind, home)[1]
            own.load(loaded)
            environment = PoolEnvironments.of(CONFIG, loaded)
        for number in missing:
            data = (home / engine / kind.folder_name / f"{number}.parquet").read_bytes()
            context = context_of(work_for(engine, kind, number), data, CONFIG, environment)
            seen = measure(context, own)
            rows = [MeasuredRow(row_figures(context.rollouts[row.row], row), row.drift) for row in seen]
            paths[number].parent.mkdir(parents=True, exist_ok=True)
            partial = paths[number].with_suffix(".partial")
            with partial.open("wb") as stream:
                np.savez_compressed(
                    stream,
                    figures=np.array([astuple(row.figures) for row in rows]),
                    drift=np.array([row.drift for row in rows], dtype=np.int32),
                )
            partial.rename(paths[number])
            found += 1
    return found


def figures(engine: str, verifier: str, kind: Kind, home: Path, quick: bool) -> Iterator[list[MeasuredRow]]:
    """The rows of every measured file of a kind."""
    counts = [one.name for one in fields(RowFigures) if one.type in (int, "int")]
    for number in range(count_of(engine, kind, quick)):
        with np.load(_figures_path(engine, verifier, kind, number, home)) as kept:
            rows, drift = kept["figures"].tolist(), kept["drift"].astype(np.int64)
        found = []
        for row, way in zip(rows, drift, strict=True):
            named = dict(zip((one.name for one in fields(RowFigures)), row, strict=True))
            own = RowFigures(**(named | {name: int(named[name]) for name in counts}))
            found.append(MeasuredRow(own, Drift(*way)))
        yield found


def steered(engine: str, kind: Kind, home: Path, quick: bool) -> dict[str, float]:
    """What steering changed in a file on average, against honest work on the same problems with the same noise: mean
    reward and mean length of a rollout."""
    honest = BatchProducer(CONFIG, make_engine(engine, BFLOAT16, max_batch=max(BATCHES)))
    honest.batch = max(BATCHES)
    honest.load(weights(kind, home)[0])
    changes = []
    for number in range(count_of(engine, kind, quick)):
        data = (home / engine / kind.folder_name / f"{number}.parquet").read_bytes()
        plain = honest.make(work_for(engine, kind, number)).rollouts
        own = read(data, Limits.of(CONFIG.work))[1]
        pairs = list(zip(own, plain, strict=True))
        reward = sum(a.reward - b.reward for a, b in pairs) / len(pairs)
        changes.append((reward, sum(len(a.output_tokens) - len(b.output_tokens) for a, b in pairs) / len(pairs)))
    means = np.array(changes).mean(axis=0).tolist()
    return {"reward": float(f"{means[0]:.4g}"), "tokens": float(f"{means[1]:.4g}")}


def work_for(engine: str, kind: Kind, number: int) -> Work:
    """Of a node of its own for every kind, so that no two files share problems or noise."""
    seed = tagged_hash("muster/benchmark-evidence/1", tagged_hash(f"muster/benchmark-evidence/1 {engine} {kind.name}"))
    return replace(work_of(number), step_seed=seed)


def _producer(kind: Kind, engine: Engine, home: Path) -> Producer:
    own, judged = weights(kind, home)
    if kind.attack in STEERING:
        producer: Producer = STEERING[kind.attack](CONFIG, engine, kind.strength * CONFIG.checks.sampling_gap_reject)
    elif kind.attack:
        producer = (REGISTRY | SMALL_ATTACKS)[kind.attack].build(CONFIG, engine, kind.strength)
    else:
        producer = BatchProducer(CONFIG, engine)
    producer.load(own)
    if kind.attack and own != judged:
        producer.load(judged)  # it saw the step before, and works with both
    return producer


def _figures_path(engine: str, verifier: str, kind: Kind, number: int, home: Path) -> Path:
    return home / engine / kind.folder_name / verifier / f"{number}.npz"
