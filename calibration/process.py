"""`python -m calibration.process JOB ANSWER`: one engine makes honest files, or measures them.

A process has one engine, because vLLM keeps global state.
"""

import logging
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from calibration.jobs import Done, Job, work_of
from calibration.plan import Plan
from calibration.sample import FileSample, RowSample
from engines.base import Completion, Engine
from engines.factory import make_engine
from environments.pool import PoolEnvironments
from protocol.config import PoolConfig
from protocol.errors import IntegrityError, MusterError
from protocol.evidence.coherence import blocks_of
from protocol.files import write_atomic
from protocol.rollout_file.file import read
from protocol.rollout_file.rows import Limits, Rollout
from protocol.seeds import AUDIT_EVERYTHING, Work, audit_sample
from runtime.logs import start_logging
from worker.produce import Planned, Producer

if TYPE_CHECKING:
    from validator.context import CheckContext, RowMeasurements

log = logging.getLogger("muster.calibrate")


class BatchProducer(Producer):
    """Decodes at most `batch` completions together, whatever the engine could take."""

    batch = 1

    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        parts = [plan[start : start + self.batch] for start in range(0, len(plan), self.batch)]
        return [done for part in parts for done in Producer.complete(self, work, part)]


def run(job: Job) -> Done:
    """Do a job. Raises MusterError."""
    config = PoolConfig.load(job.plan.pool_config).without_curricula
    spec = job.engine
    engine = make_engine(spec.name, spec.dtype, spec.device, job.plan.threads, max(job.plan.batches))
    engine.load(job.plan.weights)
    return (_produce if job.do == "produce" else _measure)(job, config, engine)


def _produce(job: Job, config: PoolConfig, engine: Engine) -> Done:
    producer = BatchProducer(config, engine)
    producer.load(job.plan.weights)
    for number in range(job.plan.files):
        producer.batch = job.plan.batches[number % len(job.plan.batches)]
        made = producer.make(work_of(job.plan.seed, number))
        (job.folder / f"{number}.parquet").write_bytes(made.data)
        log.info("%s: made file %d of %d", job.engine, number + 1, job.plan.files)
    return Done(engine=engine.info)


def _measure(job: Job, config: PoolConfig, engine: Engine) -> Done:
    from validator.measurements import measure
    from validator.row_figures import row_figures

    environment = PoolEnvironments.of(config, job.plan.weights)
    files = []
    for number in range(job.plan.files):
        data = (job.folder / f"{number}.parquet").read_bytes()
        context = context_of(work_of(job.plan.seed, number), data, config, environment)
        measured = measure(context, engine)
        rows, drawn = row_samples(context.rollouts, measured), audited(job.plan, number, len(context.rollouts))
        figures = tuple(row_figures(context.rollouts[row.row], row) for row in measured if row.row in drawn)
        drifts = {row.row: row.drift for row in measured if row.row in drawn}
        blocks = tuple(blocks_of(drifts, config.work.samples_per_problem))
        files.append(FileSample(job.plan.batches[number % len(job.plan.batches)], rows, figures, blocks))
        log.info("%s: measured file %d of %d", job.engine, number + 1, job.plan.files)
    return Done(engine=engine.info, files=tuple(files))


def audited(plan: Plan, number: int, rows: int) -> set[int]:
    """The rows that an audit at the plan's rate draws of file `number`."""
    return set(audit_sample(work_of(plan.seed, number).step_seed, number, rows, plan.audit_rate))


def context_of(work: Work, data: bytes, config: PoolConfig, environment: PoolEnvironments) -> "CheckContext":
    """An honest file, every rollout audited. Raises IntegrityError if a check on the file refuses it."""
    from protocol.rollout_file.rows import commit
    from validator.checks import FILE_CHECKS
    from validator.context import CheckContext, SubmissionFacts

    header, rollouts = read(data, Limits.of(config.work))
    facts = SubmissionFacts(work, commit(data, rollouts), work.id.counter, bytes(32), AUDIT_EVERYTHING)
    context = CheckContext(facts, config, environment, data, header, tuple(rollouts))
    for check in FILE_CHECKS:
        if not (finding := check(context)).code.is_accept:
            raise IntegrityError(
                f"an honest file fails {finding.check}: {finding.note}", "check pool config and weights"
            )
    return context


def row_samples(rollouts: Sequence[Rollout], measured: "Iterable[RowMeasurements]") -> tuple[RowSample, ...]:
    """What each rollout contributes, by the validator's own measurements."""
    rows = ((rollouts[found.row], found) for found in measured)
    return tuple(
        RowSample.of(row.slot, found.mismatches, found.mantissas, found.gaps, row.logprobs, found.logprobs)
        for row, found in rows
    )


def main(job_path: str, answer: str) -> int:
    try:
        start_logging()
        done = run(Job.model_validate_json(Path(job_path).read_bytes()))
    except MusterError as error:
        done = Done(error=error.what, hint=error.hint)
    write_atomic(Path(answer), done.model_dump_json().encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
