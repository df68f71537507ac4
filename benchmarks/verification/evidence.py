"""After how many files the evidence of a node's history finds a cheat, and whether it ever accuses an honest node.

`python -m benchmarks evidence [--quick] [--only TEXT]`. The demo's model in bf16, in files of 16 × 8 rollouts of which
every row is audited. The null model is learned from honest files as a calibration does it. The histories of 100 nodes
of each kind are drawn from the measured files by blocks of eight problems, which are independent. Files are kept in
build/evidence. Keys: attacks [{name, nodes, found, files_median, files_p99, by}], honest {nodes, files, accused,
largest}, null_model {files, problems, bets}. results/evidence_runs.jsonl has other engines, processors and models.
"""

import shutil
import statistics
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attacks.registry import REGISTRY
from attacks.small import SMALL_ATTACKS, Steer
from benchmarks.support.offline_pool import BFLOAT16, ENVIRONMENT, FLOAT32, FULL_WORK, OfflinePool, work_of
from benchmarks.verification.attacks import policies
from calibration.measuring import context_of
from calibration.null_model import HonestSums, as_problem, pair_null_model
from engines.hf import TransformersEngine
from environments.pool import PoolEnvironments
from protocol.config import BF16_CHECKS, PoolConfig
from protocol.encoding import tagged_hash
from protocol.evidence.coherence import PROBLEMS, coherence
from protocol.evidence.figures import RowFigures
from protocol.evidence.null_model import BETS, LIMIT_NATS, NAMES, PairNullModel, Sum, block_sums, problem_sums
from protocol.seeds import Work
from protocol.toploc.codec import Drift
from trainer.model.base_model import base_model
from trainer.model.tiny_model import tiny_model_config
from validator.judging.measurements import measure, row_figures
from worker.produce import Producer

HOME = Path(__file__).parents[2] / "build" / "evidence"
PILOT = 4
"""One calibration file of four chooses the bets, the others their rates."""
SAFETY, NODES, MOST_FILES, HONEST_FILES = 1.1, 100, 16, 200
BLOCKS = FULL_WORK.problems_per_file // PROBLEMS
Progress = Callable[[str], None]
Array = np.ndarray[Any, np.dtype[np.float64]]


class Kind(NamedTuple):
    """One way to make files: an attack at a strength, or weights `behind` policy steps of learning rate `rate`.
    `inside`: it changes the engine's insides, so it gets an engine of its own. `files`: how many are made."""

    name: str
    attack: str = ""
    strength: float = 0.0
    rate: float = 0.0
    behind: int = 0
    inside: bool = False
    files: int = 16


CALIBRATION, HONEST = Kind("calibration", files=384), Kind("honest", files=96)
CHEATS = (
    Kind("weights-int8", "weights-int8"),
    Kind("layer-int8", "layer-int8", 1.0),
    Kind("kv-int8", "kv-int8", inside=True),
    Kind("weights-noise=0.001", "weights-noise", 0.001),
    Kind("weights-noise=0.0001", "weights-noise", 0.0001),
    Kind("weights-stale=1 lr=1e-05", rate=1e-5, behind=1),
    Kind("weights-stale=1 lr=1e-06", rate=1e-6, behind=1),
    Kind("temperature=0.98", "temperature", 0.98),
    Kind("temperature-proven=0.98", "temperature-proven", 0.98),
    Kind("top-p=0.999", "top-p", 0.999, inside=True),
    Kind("greedy-rows=0.0625", "greedy-rows", 1 / 16),
    Kind("ghostwriter-int8", "ghostwriter-int8"),
    Kind("steer", "steer", 0.9 * BF16_CHECKS.sampling_gap_reject),
)


class Block(NamedTuple):
    """What the rows of eight problems add up to: problem by problem, and together."""

    problems: Sequence[dict[str, Sum]]
    together: dict[str, Sum]


def run(quick: bool, progress: Progress, only: str = "") -> dict[str, Any]:
    """Return the result that the module describes."""
    pool = _Pool(HOME.with_name("evidence-quick") if quick else HOME, quick)
    learned = pool.blocks(CALIBRATION)
    model = pair_null_model(
        "transformers:bfloat16:cpu", "transformers:bfloat16:cpu",
        [_sums(learned, lambda file: file % PILOT != 0)], _sums(learned, lambda file: file % PILOT == 0), SAFETY,
    )  # fmt: skip
    progress(f"null model: {model.made} of {model.asked} bets")
    attacks = []
    for kind in CHEATS[: 1 if quick else None]:
        if only in kind.name:
            at, by, _ = histories(payments(model, pool.blocks(kind)), NODES, MOST_FILES)
            waiting = sorted(int(one) or MOST_FILES + 1 for one in at)
            row = {
                "name": kind.name,
                "nodes": NODES,
                "found": int((at > 0).sum()),
                "files_median": statistics.median(waiting),
                "files_p99": waiting[-2],
                "by": NAMES[int(by.argmax())] if by.sum() else "",
            }
            attacks.append(row)
            progress(str(row))
    at, _, largest = histories(payments(model, pool.blocks(HONEST)), NODES, HONEST_FILES)
    honest = {"nodes": NODES, "files": HONEST_FILES, "accused": int((at > 0).sum()), "largest": round(largest, 1)}
    bets = {name: [list(vars(bet).values()) for bet in made] for name, made in model.bets.items()}
    about = {"files": len(learned) // BLOCKS, "problems": sum(len(one.problems) for one in learned), "bets": bets}
    return {"attacks": attacks, "honest": honest, "null_model": about}


def payments(model: PairNullModel, blocks: Sequence[Block]) -> Array:
    """Return what each measured block pays in every bet of every accumulator: nats [blocks, names, bets]."""
    paid = np.zeros((len(blocks), len(NAMES), BETS))
    for row, block in enumerate(blocks):
        for name, nats in model.nats(block.problems, [block.together]).items():
            paid[row, NAMES.index(name)] = nats
    return paid


def histories(paid: Array, nodes: int, files: int, seed: int = 0) -> tuple[Array, Array, float]:
    """Draw the histories of many nodes at once, by the recursion of `NodeEvidence.add`. Return the file at which each
    node was accused (0: never), how often each accumulator was ahead then, and the largest ln of the evidence."""
    rng = np.random.default_rng(seed)
    wealth = np.full((nodes, len(NAMES), BETS), -np.inf)
    largest, at, by = 0.0, np.zeros(nodes), np.zeros(len(NAMES))
    for number in range(1, files + 1):
        drawn = paid[rng.choice(len(paid), (nodes, BLOCKS))].sum(axis=1)
        wealth = np.logaddexp(wealth, -np.log(number * (number + 1))) + drawn
        each = np.logaddexp.reduce(np.logaddexp(wealth, -np.log(number + 1)), axis=2) - np.log(BETS)
        total = np.logaddexp.reduce(each, axis=1) - np.log(len(NAMES))
        fresh = (total >= LIMIT_NATS) & (at == 0)
        at[fresh] = number
        by += np.bincount(each[fresh].argmax(axis=1), minlength=len(NAMES))
        largest = max(largest, float(total.max()))
    return at, by, largest


class _Pool:
    """The demo's pool in bf16, with the files of every kind made and measured once."""

    def __init__(self, home: Path, quick: bool) -> None:
        self._home, self._quick = home, quick
        self._base = base_model(tiny_model_config(), ENVIRONMENT, 1)
        model = tiny_model_config().model_copy(update={"dtype": BFLOAT16})
        self._config = PoolConfig(
            name="evidence", model=model, environments=(ENVIRONMENT,), work=FULL_WORK, checks=BF16_CHECKS
        )

    def blocks(self, kind: Kind) -> list[Block]:
        """Return every block of a kind's files."""
        folder = self._home / kind.name.replace(" ", "_")
        count = min(kind.files, 8 if kind == CALIBRATION else 2) if self._quick else kind.files
        missing = [number for number in range(count) if not (folder / f"{number}.npz").exists()]
        if missing:
            folder.mkdir(parents=True, exist_ok=True)
            self._measure(kind, folder, missing)
        return [block for number in range(count) for block in _blocks(folder / f"{number}.npz")]

    def _measure(self, kind: Kind, folder: Path, numbers: Sequence[int]) -> None:
        own, judged = self._weights(kind)
        engine = TransformersEngine(BFLOAT16) if kind.inside else self._engine()
        if kind.attack == "steer":
            producer: Producer = Steer(self._config, engine, kind.strength)
        elif kind.attack:
            producer = (REGISTRY | SMALL_ATTACKS)[kind.attack].build(self._config, engine, kind.strength)
        else:
            producer = Producer(self._config, engine)
        producer.load(own)
        verifier = TransformersEngine(BFLOAT16, max_batch=16)
        verifier.load(judged)
        environments = PoolEnvironments.of(self._config, judged)
        for number in numbers:
            work = _work(kind, number)
            context = context_of(work, producer.make(work).data, self._config, environments)
            measured = measure(context, verifier)
            figures = np.array([astuple(row_figures(context.rollouts[row.row], row)) for row in measured])
            partial = folder / f"{number}.partial.npz"
            np.savez_compressed(partial, figures=figures, drift=np.array([row.drift for row in measured], np.int64))
            partial.rename(folder / f"{number}.npz")

    @cache  # noqa: B019 - one pool a process
    def _engine(self) -> TransformersEngine:
        return TransformersEngine(BFLOAT16)

    def _weights(self, kind: Kind) -> tuple[Path, Path]:
        """Return (the worker's, the verifier's) model folder."""
        if not kind.rate:
            return self._base, self._base
        steps = self._home / f"policies-{kind.rate:g}"
        if not steps.is_dir():
            work = FULL_WORK.model_copy(update={"problems_per_file": 4, "samples_per_problem": 4})
            partial = steps.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            for number, folder in enumerate(policies(OfflinePool.of(self._base, FLOAT32, work=work), kind.rate)):
                shutil.copytree(folder, partial / str(number))
            partial.rename(steps)
        return steps / str(4 - kind.behind), steps / "4"


def _work(kind: Kind, number: int) -> Work:
    """Of a node of its own for every kind, so that no two files share problems or noise."""
    return replace(work_of(number), step_seed=tagged_hash(f"muster/benchmark-evidence/1 {kind.name}"))


def _blocks(path: Path) -> list[Block]:
    with np.load(path) as kept:
        figures, drifts = kept["figures"].tolist(), kept["drift"]
    rows = [RowFigures(*map(int, one[:3]), *one[3:]) for one in figures]
    samples, out = FULL_WORK.samples_per_problem, []
    for first in range(0, FULL_WORK.problems_per_file, PROBLEMS):
        problems = [slice((first + at) * samples, (first + at + 1) * samples) for at in range(PROBLEMS)]
        (together,) = block_sums([coherence([Drift(*drifts[own].sum(axis=0)) for own in problems])])
        out.append(Block([problem_sums(rows[own]) for own in problems], together))
    return out


def _sums(blocks: Sequence[Block], wanted: Callable[[int], bool]) -> HonestSums:
    """Return what the blocks of some files add up to, as a calibration keeps it."""
    kept = [block for at, block in enumerate(blocks) if wanted(at // BLOCKS)]
    return HonestSums(
        [as_problem(problem) for block in kept for problem in block.problems],
        [as_problem(one.together) for one in kept],
    )
