"""Files whose figures the benchmark of evidence adds up: honest ones and cheats of bf16 pools, made by one engine and
measured by another. Whatever was made or measured is kept, so that a slice takes minutes and a kill costs one file."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from attacks.registry import REGISTRY
from attacks.small import SMALL_ATTACKS
from attacks.steering import Shorten, Steer
from benchmarks.attack_rows import policies
from benchmarks.evidence_settings import DEMO, RESTRICTED, EvidenceSetting, Kind
from benchmarks.offline_pool import BFLOAT16, OfflinePool, work_of
from calibration.process import context_of
from engines.base import Engine
from engines.factory import make_engine
from environments.pool import PoolEnvironments
from protocol.encoding import tagged_hash
from protocol.errors import ConfigError
from protocol.evidence.figures import RowFigures
from protocol.rollout_file.file import read
from protocol.rollout_file.rows import Limits
from protocol.seeds import Work
from protocol.toploc.codec import Drift
from validator.measurements import measure
from validator.row_figures import row_figures
from worker.produce import Producer

STEERING: dict[str, type[Steer]] = {"steer": Steer, "shorten": Shorten}


class MeasuredRow(NamedTuple):
    """What one row of a file adds to evidence."""

    figures: RowFigures
    drift: Drift


def weights(kind: Kind, home: Path, setting: EvidenceSetting = DEMO) -> tuple[Path, Path]:
    """(the worker's, the verifier's) model folder."""
    if not kind.rate:
        return setting.base(), setting.base()
    steps = folder_of(kind, home)
    return steps / str(4 - kind.behind), steps / "4"


def folder_of(kind: Kind, home: Path) -> Path:
    """Where the policy steps of a kind with a `rate` lie."""
    return home / f"policies-{kind.rate:g}"


def train(kinds: Sequence[Kind], home: Path, setting: EvidenceSetting = DEMO) -> None:
    """Make the policy steps that kinds need; in a process of its own, with transformers."""
    for rate in sorted({kind.rate for kind in kinds if kind.rate}):
        target = home / f"policies-{rate:g}"
        if not target.is_dir():
            work = setting.work.model_copy(update={"problems_per_file": 4, "samples_per_problem": 4})
            pool = OfflinePool.of(setting.base(), "float32", work=work, environment=setting.environment)
            partial = home / f"policies-{rate:g}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            for number, folder in enumerate(policies(pool, rate)):
                shutil.copytree(folder, partial / str(number))
            partial.rename(target)


def produce(engine: str, kinds: Sequence[Kind], home: Path, setting: EvidenceSetting) -> int:
    """Make what is not there yet. Returns the count of new files."""
    made, shared = 0, cast(Engine | None, None)
    for kind in kinds:
        folder = home / engine / kind.folder_name
        folder.mkdir(parents=True, exist_ok=True)
        missing = [n for n in range(setting.count(engine, kind)) if not (folder / f"{n}.parquet").exists()]
        if not missing:
            continue
        # One whose insides are changed is of no use to the other kinds.
        own = shared if shared is not None and not kind.inside else _engine(engine, setting.batch)
        shared = shared if kind.inside else own
        producer = _producer(kind, own, home, setting)
        for number in missing:
            partial = folder / f"{number}.partial"
            partial.write_bytes(producer.make(work_for(engine, kind, number, setting)).data)
            partial.rename(folder / f"{number}.parquet")
            made += 1
    return made


def measured(engine: str, verifier: str, kinds: Sequence[Kind], home: Path, setting: EvidenceSetting) -> int:
    """Measure what is not measured yet. Returns the count of newly measured files."""
    found, own, loaded = 0, _engine(verifier, 16), Path()
    for kind in kinds:
        paths = [_figures_path(engine, verifier, kind, number, home) for number in range(setting.count(engine, kind))]
        missing = [number for number, path in enumerate(paths) if not path.exists()]
        if missing and loaded != weights(kind, home, setting)[1]:
            loaded = weights(kind, home, setting)[1]
            own.load(loaded)
            environment = PoolEnvironments.of(setting.config, loaded)
        for number in missing:
            data = (home / engine / kind.folder_name / f"{number}.parquet").read_bytes()
            context = context_of(work_for(engine, kind, number, setting), data, setting.config, environment)
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


def figures(
    engine: str, verifier: str, kind: Kind, home: Path, setting: EvidenceSetting
) -> Iterator[list[MeasuredRow]]:
    """The rows of every measured file of a kind."""
    counts = [one.name for one in fields(RowFigures) if one.type in (int, "int")]
    for number in range(setting.count(engine, kind)):
        with np.load(_figures_path(engine, verifier, kind, number, home)) as kept:
            rows, drift = kept["figures"].tolist(), kept["drift"].astype(np.int64)
        found = []
        for row, way in zip(rows, drift, strict=True):
            named = dict(zip((one.name for one in fields(RowFigures)), row, strict=True))
            own = RowFigures(**(named | {name: int(named[name]) for name in counts}))
            found.append(MeasuredRow(own, Drift(*way)))
        yield found


def steered(engine: str, kind: Kind, home: Path, setting: EvidenceSetting) -> dict[str, float]:
    """What steering changed in a file on average, against honest work on the same problems with the same noise: mean
    reward and mean length of a rollout."""
    honest = Producer(setting.config, _engine(engine, setting.batch))
    honest.load(weights(kind, home, setting)[0])
    changes = []
    for number in range(setting.count(engine, kind)):
        data = (home / engine / kind.folder_name / f"{number}.parquet").read_bytes()
        plain = honest.make(work_for(engine, kind, number, setting)).rollouts
        own = read(data, Limits.of(setting.config.work))[1]
        pairs = list(zip(own, plain, strict=True))
        reward = sum(a.reward - b.reward for a, b in pairs) / len(pairs)
        changes.append((reward, sum(len(a.output_tokens) - len(b.output_tokens) for a, b in pairs) / len(pairs)))
    means = np.array(changes).mean(axis=0).tolist()
    return {"reward": float(f"{means[0]:.4g}"), "tokens": float(f"{means[1]:.4g}")}


def work_for(engine: str, kind: Kind, number: int, setting: EvidenceSetting = DEMO) -> Work:
    """Of a node of its own for every kind, so that no two files share problems or noise."""
    name = " ".join(filter(None, (engine, setting.name, kind.name)))
    seed = tagged_hash("muster/benchmark-evidence/1", tagged_hash(f"muster/benchmark-evidence/1 {name}"))
    return replace(work_of(number), step_seed=seed)


def _engine(name: str, batch: int) -> Engine:
    """An engine by its name here. Raises ConfigError where the processor that the name wants was not had."""
    own, _, device = RESTRICTED.get(name, (name, {}, ""))
    made = make_engine(own, BFLOAT16, max_batch=batch)
    if not made.info.device.endswith(device):
        raise ConfigError(f"{name} computes on {made.info.device}", f"start it where the device is one of {device}")
    return made


def _producer(kind: Kind, engine: Engine, home: Path, setting: EvidenceSetting) -> Producer:
    own, judged = weights(kind, home, setting)
    if kind.attack in STEERING:
        dares = kind.strength * setting.config.checks.sampling_gap_reject
        producer: Producer = STEERING[kind.attack](setting.config, engine, dares)
    elif kind.attack:
        producer = (REGISTRY | SMALL_ATTACKS)[kind.attack].build(setting.config, engine, kind.strength)
    else:
        producer = Producer(setting.config, engine)
    producer.load(own)
    if kind.attack and own != judged:
        producer.load(judged)  # it saw the step before, and works with both
    return producer


def _figures_path(engine: str, verifier: str, kind: Kind, number: int, home: Path) -> Path:
    return home / engine / kind.folder_name / verifier / f"{number}.npz"
