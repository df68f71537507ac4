"""Families of models through the whole pipeline: both engines, verification, trainer, export, reload.

`python -m benchmarks families [--resume] [--only TEXT] [--quick]`. Each family is a tiny random model of its real
architecture and kind of tokenizer (benchmarks/family_models.py), in fp32, with its chat template. transformers and
vLLM, in processes of their own, make rollout files as workers do; each judges the other's with the validator's whole
pipeline and the default thresholds. The trainer recomputes the log-probs that the files state, takes one step and
exports; both engines reload in place and judge one another's files of that step. Keys: families [{name, engines,
rollouts, rejected, trainer_max_error, changed}], where `rejected` counts files, `trainer_max_error` is in nats and
`changed` is the share of rollouts that the step made different. A quick run has two families. Every finished family is
kept in benchmarks/results/families.json at once; `--resume` does not repeat those that are there, `--only` measures
those whose name contains TEXT and keeps the others.
"""

import json
import multiprocessing
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from benchmarks.family_models import FAMILIES, Family
from benchmarks.offline_pool import ENVIRONMENT, texts, work_of
from engines.base import Engine
from engines.factory import make_engine
from engines.runtime import vllm_installed
from environments.pool import PoolEnvironments
from protocol.config import ModelConfig, PoolConfig, WorkConfig
from protocol.files import write_atomic
from protocol.seeds import AUDIT_EVERYTHING
from protocol.training import OptimizerConfig, ScheduleConfig, TrainConfig
from trainer.batch import Group, TrainRollout, micro_batch
from trainer.learner import Learner
from trainer.model.policy import Policy
from validator.judging.context import SubmissionFacts
from validator.judging.pipeline import judge
from worker.produce import Produced, Producer

CONFIG = PoolConfig(
    name="families",
    model=ModelConfig(source="random", chat_template=True),
    environments=(ENVIRONMENT,),
    work=WorkConfig(problems_per_file=4, samples_per_problem=5, max_new_tokens=48, max_prompt_tokens=160),
)
TRAIN = TrainConfig(optimizer=OptimizerConfig(schedule=ScheduleConfig(warmup_updates=0)))
ROLLOUTS = 200
PACKED = 16  # sequences in one row of the trainer
KEPT = Path(__file__).parent / "results" / "families.json"


class EngineProcess:
    """An engine that makes and judges files, run by `executor`."""

    def __init__(self, engine: str, executor: Executor) -> None:
        self.engine, self._process = engine, executor

    def make(self, folder: Path, files: int) -> list[Produced]:
        return self._process.submit(_make, self.engine, folder, files).result()

    def rejected(self, folder: Path, files: Sequence[Produced]) -> list[str]:
        """What a validator says against each file that it does not accept."""
        return self._process.submit(_rejected, self.engine, folder, files).result()

    def close(self) -> None:
        self._process.shutdown()


_LOADED: dict[str, Engine] = {}


def _engine(name: str) -> Engine:
    """The one engine of this process."""
    if name not in _LOADED:
        _LOADED[name] = make_engine(name, max_batch=20)
    return _LOADED[name]


def _make(name: str, folder: Path, files: int) -> list[Produced]:
    producer = Producer(CONFIG, _engine(name))
    producer.load(folder)
    return [producer.make(work_of(number)) for number in range(files)]


def _rejected(name: str, folder: Path, files: Sequence[Produced]) -> list[str]:
    engine, environment, out = _engine(name), PoolEnvironments.of(CONFIG, folder), []
    engine.load(folder)
    for made in files:
        work = made.header.work
        facts = SubmissionFacts(work, made.commitment, work.id.counter, bytes(32), AUDIT_EVERYTHING)
        verdict = judge(facts, made.data, CONFIG, environment, engine)
        if not verdict.code.is_accept:
            out.append(f"{name}: {verdict.code.label}, {verdict.findings[-1].note}")
    return out


def run(
    quick: bool, progress: Callable[[str], None], resume: bool = False, only: str = ""
) -> dict[str, list[dict[str, Any]]]:
    names = ["transformers", *(["vllm"] if vllm_installed() else [])]
    chosen = [family for family in FAMILIES if only in family.name]
    if quick:
        return {"families": [measure(family, names, 40, progress) for family in chosen[:2]]}
    there = _kept() if resume or only else {}
    for family in chosen:
        if resume and family.name in there:
            continue
        there[family.name] = measure(family, names, ROLLOUTS, progress)
        progress(str(there[family.name]))
        write_atomic(KEPT, json.dumps(_ordered(there), indent=1).encode() + b"\n")
    return _ordered(there)


def _kept() -> dict[str, dict[str, Any]]:
    """The families of former calls, by name."""
    return {entry["name"]: entry for entry in json.loads(KEPT.read_bytes())["families"]} if KEPT.is_file() else {}


def _ordered(there: dict[str, dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    return {"families": [there[family.name] for family in FAMILIES if family.name in there]}


@dataclass(frozen=True)
class CrossCheck:
    """What each engine made of one step's weights, and what the others said against it."""

    made: dict[str, list[Produced]]
    rejected: int


def own_process() -> Executor:
    """vLLM keeps global state, and rewrites parts of transformers."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def measure(
    family: Family,
    engines: Sequence[str],
    rollouts: int,
    say: Callable[[str], None],
    executor: Callable[[], Executor] = own_process,
) -> dict[str, Any]:
    """One family; `rollouts` by each engine before the training step, a fifth of them after it."""
    files = -(-rollouts // CONFIG.work.rows)
    nodes = [EngineProcess(name, executor()) for name in engines]
    try:
        with tempfile.TemporaryDirectory(prefix="muster-family-") as temporary:
            base = family.save(Path(temporary) / "base")
            first = _crosswise(nodes, base, files, say)
            trained, error = train(base, [file for made in first.made.values() for file in made])
            later = _crosswise(nodes, trained, max(1, files // 5), say)
    finally:
        for node in nodes:
            node.close()
    pairs = [pair for name in engines for pair in zip(later.made[name], first.made[name], strict=False)]
    changed = [one != other for new, old in pairs for one, other in zip(texts(new), texts(old), strict=True)]
    return {
        "name": family.name,
        "engines": list(engines),
        "rollouts": (len(engines) * files) * CONFIG.work.rows,
        "rejected": first.rejected + later.rejected,
        "trainer_max_error": float(f"{error:.2g}"),
        "changed": round(sum(changed) / len(changed), 2),
    }


def _crosswise(nodes: Sequence[EngineProcess], folder: Path, files: int, say: Callable[[str], None]) -> CrossCheck:
    """Every engine makes files, every engine judges all of them."""
    made = {node.engine: node.make(folder, files) for node in nodes}
    everything = [file for files_of_one in made.values() for file in files_of_one]
    complaints = [line for node in nodes for line in node.rejected(folder, everything)]
    for line in complaints[:3]:
        say(f"{folder.name}: {line}")
    return CrossCheck(made, len(complaints))


def train(base: Path, files: Sequence[Produced]) -> tuple[Path, float]:
    """One training step on rollouts of all files; returns the exported folder beside `base`, and the largest distance
    of the trainer's log-probs before the step, packed as it packs, from those that the files state, in nats."""
    learner = Learner(base, TRAIN, CONFIG.work.temperature)
    groups = [group for made in files for group in _groups(made)]
    error = _error(learner.policy, [rollout for group in groups for rollout in group])
    learner.train_step(groups)
    return learner.policy.export(base.with_name("trained")), error


@torch.no_grad()
def _error(policy: Policy, samples: Sequence[TrainRollout]) -> float:
    together, error = PACKED if policy.packs else 1, 0.0
    for start in range(0, len(samples), together):
        row = micro_batch(samples, range(start, min(start + together, len(samples))), policy.device)
        logp, _ = policy.logprobs(row, CONFIG.work.temperature)
        if row.sampled is None:
            raise ValueError("a file without log-probs")
        error = max(error, float((logp - row.sampled).abs().max()))
    return error


def _groups(made: Produced) -> list[Group]:
    """A file's groups. A random model earns nothing by the task: here a rollout's first token decides its reward."""
    groups = []
    for _, members in groupby(made.rollouts, key=lambda row: row.slot):
        groups.append(
            tuple(
                TrainRollout(row.prompt_tokens, row.output_tokens, float(row.output_tokens[0] % 2), 0.0, row.logprobs)
                for row in members
            )
        )
    return groups
