"""Whether the evidence of a node's history ever accuses an honest node, and after how many files it finds a cheat.

`python -m benchmarks evidence [--quick] [--only TEXT]`. End to end: real training steps of the demo's pool in bf16,
null models as the trainer learns them, verdicts as validators give them, and the vote of a node challenge's jurors.
Histories are drawn from whole measured files. Files are kept in build/evidence. Keys: cases [{step, audited, name,
nodes, files, accused, slashed, median, largest, by}], rates [{step, audited, figure, measured, honest}].
"""

import statistics
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from attacks.registry import REGISTRY
from attacks.subtle import SMALL_ATTACKS
from benchmarks.recipe import OfflineWork, batch_of, demo_config
from benchmarks.support.offline_pool import BFLOAT16, FULL_WORK
from calibration.measuring import context_of, measure_file
from calibration.null_model import pair_null_model
from engines.base import Engine
from engines.hf import TransformersEngine
from environments.pool import PoolEnvironments
from protocol.config import BF16_CHECKS
from protocol.encoding import tagged_hash
from protocol.evidence.figures import BETS, FIGURES, arithmetic_label, figures_of
from protocol.evidence.null_model import LIMIT_NATS, StepNullModels
from protocol.files import write_atomic
from protocol.identity import PoolId, WorkId
from protocol.rollout_file.file import read
from protocol.rollout_file.rows import Limits, commit
from protocol.seeds import AUDIT_EVERYTHING, Work
from protocol.verdict import Code, Verdict
from runtime.process import EngineConfig
from trainer.learner import Learner
from trainer.model.base_model import base_model
from validator.judging.checks import SubmissionFacts
from validator.judging.pipeline import judge
from worker.produce import Producer

HOME = Path(__file__).parents[2] / "build" / "evidence"
RATES = (AUDIT_EVERYTHING, AUDIT_EVERYTHING // 4, AUDIT_EVERYTHING // 16)
BATCHES = (8, 64)
STEPS = (0, 1, 2, 4, 8, 16, 28)
NODES, HONEST_FILES, CHEAT_FILES = 200, 1000, 64
NODE = "0x" + "00" * 20
Progress = Callable[[str], None]
Array = np.ndarray[Any, np.dtype[np.float64]]


class Kind(NamedTuple):
    """One way to make files: an attack at a strength, an engine that VARY changes, or weights `behind` by policy steps.
    `batch`: completions decoded at once; `files`: how many are made."""

    name: str
    files: int = 16
    batch: int = 128
    attack: str = ""
    strength: float = 0.0
    behind: int = 0


HONEST = Kind("honest", 48)
VARIANTS = (Kind("eager attention"), Kind("norms in bf16"), Kind("a matrix in two parts"))
CHEATS = (
    Kind("weights-int8", attack="weights-int8"),
    Kind("weights-noise=0.001", attack="weights-noise", strength=0.001),
    Kind("kv-int8", attack="kv-int8"),
    Kind("stale=1", behind=1),
    Kind("temperature-proven=0.98", attack="temperature-proven", strength=0.98),
    Kind("ghostwriter-int8", attack="ghostwriter-int8"),
)


def _eager(model: Any) -> None:
    model.set_attn_implementation("eager")


def _plain_norms(model: Any) -> None:
    """Let RMSNorm multiply in bfloat16 instead of float32."""
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = partial(_norm, module)


def _norm(module: Any, hidden: torch.Tensor) -> torch.Tensor:
    scale = torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + module.variance_epsilon)
    scaled: torch.Tensor = module.weight * hidden * scale
    return scaled


def _split(model: Any) -> None:
    """Sum the halves of row-parallel products after rounding, as tensor parallelism of 2 does."""
    for name, module in model.named_modules():
        if name.endswith(("o_proj", "down_proj")):
            module.forward = partial(_in_two, module)


def _in_two(module: Any, hidden: torch.Tensor) -> torch.Tensor:
    half = hidden.shape[-1] // 2
    linear = torch.nn.functional.linear
    return linear(hidden[..., :half], module.weight[:, :half]) + linear(hidden[..., half:], module.weight[:, half:])


VARY = {"eager attention": _eager, "norms in bf16": _plain_norms, "a matrix in two parts": _split}
"""Honest engines that compute otherwise than was calibrated, under the label of what was."""


class Seen(NamedTuple):
    """A file in a verdict document: its code, what it pays each bet on each figure [figures, bets], and its mean
    mantissa difference."""

    code: Code
    nats: Array
    mantissas: float

    @classmethod
    def of(cls, verdict: Verdict) -> "Seen":
        figures, paid = figures_of(verdict), np.zeros((len(FIGURES), BETS))
        for place, name in enumerate(FIGURES):
            if name in figures:
                paid[place] = figures[name].nats or 0.0
        own = figures.get("mantissas")
        return cls(verdict.code, paid, own.total / own.count if own else float("nan"))


def run(quick: bool, progress: Progress, only: str = "") -> dict[str, Any]:
    """Return the result that the module describes."""
    pool = _Pool(HOME.with_name("evidence-quick") if quick else HOME, quick)
    cases, rates = list[dict[str, Any]](), list[dict[str, Any]]()
    for step in (1,) if quick else STEPS:
        for rate in RATES[2:] if quick else RATES:
            models = pool.null_models(step, rate)
            for kind in (HONEST, *VARIANTS, *CHEATS)[: 1 if quick else None]:
                if only not in kind.name or step < kind.behind:
                    continue
                seen = pool.seen(kind, step, rate, models)
                row = {"step": step, "audited": rate / AUDIT_EVERYTHING, "name": kind.name}
                row |= case(seen, HONEST_FILES if kind == HONEST else CHEAT_FILES)
                cases.append(row)
                progress(str(row))
                if kind == HONEST:
                    measured = statistics.fmean(one.mantissas for one in seen)
                    honest = models.pairs[0].honest()["mantissas"]
                    rates.append({**row, "figure": "mantissas", "measured": measured, "honest": honest})
    return {"cases": cases, "rates": rates}


def case(seen: Sequence[Seen], files: int) -> dict[str, Any]:
    """Return what becomes of nodes that make such files: a juror rejects, which slashes, if the evidence accuses and
    one of the files that it measures is refused."""
    at, by, largest = histories(np.array([one.nats for one in seen]), NODES, files)
    accused = int((at > 0).sum())
    refused = any(one.code.is_reject for one in seen)
    return {
        "nodes": NODES,
        "files": files,
        "accused": accused,
        "slashed": accused if refused else 0,
        "median": statistics.median(int(one) or files + 1 for one in at),
        "largest": round(largest, 1),
        "by": list(FIGURES)[int(by.argmax())] if accused else "",
    }


def histories(paid: Array, nodes: int, files: int, seed: int = 0) -> tuple[Array, Array, float]:
    """Draw the histories of many nodes at once from measured files, which pay `paid` [measured, figures, bets], by the
    recursion of `NodeEvidence.add`. Return the file at which each node was accused (0: never), how often each figure
    was ahead then, and the largest ln of the evidence."""
    rng = np.random.default_rng(seed)
    wealth = np.full((nodes, len(FIGURES), BETS), -np.inf)
    largest, at, by = 0.0, np.zeros(nodes), np.zeros(len(FIGURES))
    for number in range(1, files + 1):
        wealth = np.logaddexp(wealth, -np.log(number * (number + 1))) + paid[rng.choice(len(paid), nodes)]
        each = np.logaddexp.reduce(np.logaddexp(wealth, -np.log(number + 1)), axis=2) - np.log(BETS)
        total = np.logaddexp.reduce(each, axis=1) - np.log(len(FIGURES))
        fresh = (total >= LIMIT_NATS) & (at == 0)
        at[fresh] = number
        by += np.bincount(each[fresh].argmax(axis=1), minlength=len(FIGURES))
        largest = max(largest, float(total.max()))
    return at, by, largest


class _Pool:
    """The demo's pool in bf16. Policies are trained, and files made, once."""

    def __init__(self, home: Path, quick: bool) -> None:
        self._home, self._quick = home, quick
        demo = demo_config()
        model = demo.model.model_copy(update={"dtype": BFLOAT16})
        self._config = demo.model_copy(update={"model": model, "work": FULL_WORK, "checks": BF16_CHECKS})

    def null_models(self, step: int, rate: int) -> StepNullModels:
        """Return the null model of a step, learned as the trainer's process learns it."""
        engine, environments = self._verifier(step), PoolEnvironments.of(self._config, self._weights(step))
        strata: dict[int, list[Any]] = {}
        for batch in BATCHES:
            for work, data in self._files(Kind(f"calibration {batch}", 32, batch), step):
                context = context_of(work, data, self._config, environments, rate)
                strata.setdefault(batch, []).append(measure_file(context, engine, batch).figures)
        label = arithmetic_label(engine.info.name, engine.info.dtype, engine.info.device)
        learned = [[one for at, one in enumerate(files) if at % 4 != 3] for files in strata.values()]
        pilot = [one for files in strata.values() for one in files[3::4]]
        return StepNullModels(audit_rate=rate, pairs=(pair_null_model(label, label, learned, pilot, step),))

    def seen(self, kind: Kind, step: int, rate: int, models: StepNullModels) -> list[Seen]:
        """Return the verdicts on a kind's files."""
        engine, environments, out = self._verifier(step), PoolEnvironments.of(self._config, self._weights(step)), []
        for work, data in self._files(kind, step):
            committed = commit(data, read(data, Limits.of(self._config.work))[1])
            lane = tagged_hash("muster/benchmark-lane/1", work.step_seed, work.id.counter)
            facts = SubmissionFacts(work, committed, work.id.counter, lane, rate)
            out.append(Seen.of(judge(facts, data, self._config, environments, engine, models)))
        return out

    def _files(self, kind: Kind, step: int) -> list[tuple[Work, bytes]]:
        folder = self._home / f"step-{step}" / kind.name.replace(" ", "-")
        works = [_work(kind, step, number) for number in range(min(kind.files, 8) if self._quick else kind.files)]
        paths = [folder / f"{work.id.counter}.parquet" for work in works]
        if missing := [work for work, path in zip(works, paths, strict=True) if not path.exists()]:
            folder.mkdir(parents=True, exist_ok=True)
            producer = self._producer(kind, step)
            for work in missing:
                write_atomic(folder / f"{work.id.counter}.parquet", producer.make(work).data)
        return [(work, path.read_bytes()) for work, path in zip(works, paths, strict=True)]

    def _producer(self, kind: Kind, step: int) -> Producer:
        engine = TransformersEngine(BFLOAT16, max_batch=kind.batch)
        if kind.attack:
            producer: Producer = (REGISTRY | SMALL_ATTACKS)[kind.attack].build(self._config, engine, kind.strength)
        else:
            producer = Producer(self._config, engine)
        producer.load(self._weights(step - kind.behind))
        VARY.get(kind.name, lambda model: None)(engine.model)
        return producer

    @lru_cache(1)  # noqa: B019 - one pool a process
    def _verifier(self, step: int) -> Engine:
        engine = EngineConfig(dtype=BFLOAT16).make()
        engine.load(self._weights(step))
        return engine

    def _weights(self, step: int) -> Path:
        """Return a policy's folder: the demo's training, every step on files of the policy before it."""
        folder = self._home / "policies" / str(step)
        if not folder.is_dir():
            base = base_model(self._config.model, self._config.environments[0], 1)
            learner = Learner(base, self._config.train, self._config.work.temperature, BFLOAT16, seed=1)
            work, policy = OfflineWork(self._config), learner.policy
            for number in range(max(STEPS) + 1):
                own = self._home / "policies" / str(number)
                if not own.is_dir():
                    policy.export(own)
                if number == step:
                    break
                work.load(own)
                learner.train_step(batch_of(work, number, number)[0])
        return folder


def _work(kind: Kind, step: int, number: int) -> Work:
    """Of a node of its own for every kind, so that no two files share problems or noise."""
    seed = tagged_hash(f"muster/benchmark-evidence/2 {kind.name}", step)
    return Work(WorkId(PoolId(0, NODE, 0), NODE, step, number), seed, bytes(32))
