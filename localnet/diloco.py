"""`muster demo --diloco 2`: the run that the workers take part in, a kill of each of them, and what they did by the
log."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from chain.indexer.state import State
from diloco.config import AdmissionConfig, DilocoConfig, DilocoRun, OuterConfig
from localnet.onboarding import KeyRing
from localnet.plan import POOL, DemoPlan
from orchestrator.dashboard.results import DilocoSummary, DilocoWorkerSummary
from protocol.config import PoolConfig
from protocol.encoding import load_document
from protocol.identity import PoolId
from storage.keys import object_key
from storage.s3 import Bucket
from storage.weights.manifest import MAX_STORED_BYTES, ManifestScope, StepWorkers, unseal
from trainer.reports.records import read_records

if TYPE_CHECKING:
    from diloco.transport import Transport

WINDOW_SECONDS = TRAINING_SECONDS = 30


def make_run(plan: DemoPlan, ring: KeyRing, pools: str, config: PoolConfig) -> DilocoRun:
    """Return the run's document: workers of one owner, who trusts them. Any of them may go on alone, and the outer step
    is the mean of their weights."""
    settings = DilocoConfig(
        inner_steps=config.train.minibatches, mode="sparse", shards=1, window_seconds=WINDOW_SECONDS * plan.patience,
        training_seconds=TRAINING_SECONDS * plan.patience, outer=OuterConfig(learning_rate=1.0, momentum=0.0),
        admission=AdmissionConfig(minimum=1, cosine=None),
    )  # fmt: skip
    return DilocoRun(
        name=config.name, chain_id=plan.chain_id, pools=pools, pool=POOL, pool_config=config.digest.hex(),
        coordinator=ring["owner"].address, workers=tuple(ring[name].address for name in plan.diloco_workers),
        seed=hashlib.sha256(f"{config.name}/diloco".encode()).hexdigest(), assigned=True, settings=settings,
    )  # fmt: skip


@dataclass
class DilocoKiller:
    """Kills each worker once, with SIGKILL and while an outer step is under way, at even intervals of the run. `kills`:
    when each was killed (Unix time)."""

    plan: DemoPlan
    kill: Callable[[str], None]
    say: Callable[[str], None]
    clock: Callable[[], float] = time.time
    kills: dict[str, float] = field(default_factory=dict)

    def look(self, state: State) -> None:
        names = self.plan.diloco_workers
        path = next(self.plan.home("trainer").glob("*/diloco/status.json"), None)
        if path is None or len(self.kills) == len(names):
            return
        name, status = names[len(self.kills)], json.loads(path.read_bytes())
        due = self.plan.steps * (len(self.kills) + 1) // (len(names) + 1)
        if status and status["step"] >= due and status["items"] is not None and status["phase"] == "collect":
            self.kills[name] = self.clock()
            self.kill(name)
            self.say(f"✂ kill -9 {name} during outer step {status['step'] + 1}")


@dataclass(frozen=True)
class LoggedStep:
    """An outer step that leads to state `number`: the `counted` workers, the worker of every file, when the files were
    assigned and the step was committed (Unix time), and whether it began again in between."""

    number: int
    counted: tuple[str, ...]
    worker_of: Mapping[str, str]
    assigned: float
    committed: float
    repeated: bool


def logged_steps(transport: "Transport") -> list[LoggedStep]:
    """Return all outer steps that a log tells of. Raises IntegrityError, UnreachableError."""
    from diloco.log import Log
    from diloco.messages import CommitRecord, FilesAssigned

    reader, steps = Log.at(transport, 0), []
    assigned = attempt = 0.0
    while (entry := reader.advance()) is not None:
        for event in entry.events:
            if isinstance(event, FilesAssigned):
                assigned, attempt = entry.time, reader.schedule.attempt
            elif isinstance(event, CommitRecord):
                partition = reader.ended and reader.ended.partition
                files = {worker: partition.of(worker) if partition else () for worker in event.made_of}
                worker_of = {item: worker for worker, items in files.items() for item in items}
                repeated = event.attempt > attempt
                steps.append(LoggedStep(event.step, tuple(event.counted), worker_of, assigned, entry.time, repeated))
    return steps


def summarise(
    steps: Sequence[LoggedStep],
    names: Mapping[str, str],
    kills: Mapping[str, float],
    trained: Sequence[Mapping[str, Any]],
    made_by: Sequence[StepWorkers | None],
) -> DilocoSummary:
    """Compare the log with the trainer's records and the manifests. `names`: address → name; `kills`: name → Unix time;
    `trained`: the trainer's record of every file; `made_by`: what the manifests of all policy steps say."""
    logged = [(file, worker) for step in steps for file, worker in step.worker_of.items()]
    all_count = all(worker in step.counted for step in steps for worker in step.worker_of.values())
    recorded = [(entry["sha256"], entry.get("worker", "")) for entry in trained]
    counted = {step.number: step.counted for step in steps}
    workers = [
        DilocoWorkerSummary(
            name=name,
            address=address,
            files=sum(worker == address for _, worker in logged),
            outer_steps=sum(address in step.counted for step in steps),
            killed=[step.number for step in steps if step.assigned <= kills.get(name, 0.0) <= step.committed],
        )
        for address, name in names.items()
    ]
    return DilocoSummary(
        workers=workers,
        outer_steps=len(steps),
        files=len(recorded),
        used_once=all_count and len(dict(logged)) == len(logged) and sorted(logged) == sorted(recorded),
        repeated=[step.number for step in steps if step.repeated],
        named=sum(
            contribution is not None and counted.get(contribution.outer_step) == contribution.workers
            for contribution in made_by
        ),
    )


def diloco_summary(
    plan: DemoPlan, ring: KeyRing, bucket: Bucket, state: State, kills: Mapping[str, float]
) -> DilocoSummary:
    """Return the summary of a finished run. Raises MusterError."""
    from diloco.transport import Transport

    run, pool = load_document(plan.diloco_run, DilocoRun), state.pools[POOL]
    names = {ring[name].address: name for name in plan.diloco_workers}
    trained = [entry for path in plan.home("trainer").glob("*/trained.jsonl") for entry in read_records(path)]
    scope = ManifestScope(PoolId(run.chain_id, run.pools, run.pool), run.coordinator)
    made_by = []
    for step in pool.steps:
        data = bucket.get(object_key("manifests", step.manifest), MAX_STORED_BYTES)
        made_by.append(unseal(data, step.manifest, scope).made_by)
    return summarise(logged_steps(Transport(bucket, run)), names, kills, trained, made_by)


def diloco_faults(summary: DilocoSummary, steps: int) -> Iterator[str]:
    """Yield what a good run must not show, in words."""
    if not summary.used_once:
        yield "a file was not trained on by exactly one DiLoCo worker, once"
    if summary.named < summary.outer_steps:
        yield f"{summary.outer_steps - summary.named} manifests do not name the workers that made their steps"
    for worker in summary.workers:
        if not worker.files:
            yield f"{worker.name} trained on nothing"
        if not worker.killed and steps > len(summary.workers):
            yield f"{worker.name} was not killed during an outer step"


def diloco_highlights(summary: DilocoSummary) -> Iterator[str]:
    """Yield the same for people."""
    for worker in summary.workers:
        killed = "".join(f", killed during outer step {number}" for number in worker.killed)
        yield f"{worker.name}: trained on {worker.files} files in {worker.outer_steps} outer steps{killed}"
    yield (
        f"{summary.outer_steps} outer steps of {len(summary.workers)} workers, {len(summary.repeated)} begun again; "
        f"each of {summary.files} files used once: {'yes' if summary.used_once else 'NO'}"
    )
