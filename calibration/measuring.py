"""Measuring honest files, for thresholds and null models: one process per engine makes them, another measures them,
because vLLM keeps global state. What it measures of a file is what a validator's pass over the drawn rows finds."""

import logging
import math
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path

from calibration.bounds import FileSample, RowSample
from calibration.document import Calibration, subject, weights_hash
from calibration.plan import EngineSpec, Pair, Plan
from calibration.thresholds import summarise
from engines.base import Completion, Engine, EngineInfo
from engines.torch_process import torch_environment
from environments.pool import PoolEnvironments
from protocol.accounts import LocalAccount
from protocol.config import PoolConfig
from protocol.encoding import tagged_hash
from protocol.errors import ConfigError, IntegrityError
from protocol.identity import PoolId, WorkId
from protocol.rollout_file.file import read
from protocol.rollout_file.rows import Limits, commit
from protocol.seeds import AUDIT_EVERYTHING, Work
from runtime.entry import alone
from runtime.process import EngineConfig
from validator.judging.checks import FILE_CHECKS, CheckContext, SubmissionFacts
from validator.judging.measurements import file_figures, measure
from worker.produce import Planned, Producer

log = logging.getLogger("muster.calibrate")
MOST_SECONDS = 12 * 3600.0
HELD_OUT = 4  # one file of four is not used for thresholds, only judged by them
_ZERO = "0x" + "00" * 20


def work_of(seed: str, number: int) -> Work:
    """Return work of a chain that does not exist: calibration files can be submitted nowhere. Randomness follows from
    the seed."""
    step_seed = tagged_hash("muster/calibration/1", tagged_hash(f"muster/calibration-seed/1 {seed}"))
    return Work(WorkId(PoolId(0, _ZERO, 0), _ZERO, 0, number), step_seed, bytes(32))


@dataclass(frozen=True)
class HonestFiles:
    """What one engine measured of files that another made: `files`, and those `held` out, which judge what is computed
    from the others."""

    worker: EngineInfo
    verifier: EngineInfo
    files: list[FileSample]
    held: list[FileSample]


def measure_all(plan: Plan) -> list[HonestFiles]:
    """Make each worker's files once, measure them with each of its verifiers. Raises MusterError."""
    os.environ |= torch_environment(plan.threads)
    out: dict[Pair, HonestFiles] = {}
    # By rounds of all batches, so that each batch has the same share of held-out files.
    held = [(number // len(plan.batches)) % HELD_OUT == HELD_OUT - 1 for number in range(plan.files)]
    for worker in dict.fromkeys(pair[0] for pair in plan.pairs):
        with tempfile.TemporaryDirectory(prefix="muster-calibrate-") as name:
            maker = alone(f"making files with {worker}", MOST_SECONDS, produce, plan, worker, Path(name))
            for pair in (pair for pair in plan.pairs if pair[0] == worker):
                what = f"measuring files with {pair[1]}"
                judge, files = alone(what, MOST_SECONDS, measure_files, plan, pair[1], Path(name))
                used = [file for file, spared in zip(files, held, strict=True) if not spared]
                out[pair] = HonestFiles(maker, judge, used, list(compress(files, held)))
    return [out[pair] for pair in plan.pairs]


# --- In a process of its own: one engine makes honest files, or measures them


class BatchProducer(Producer):
    """Decodes at most `batch` completions together, whatever the engine could take."""

    batch = 1

    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        parts = [plan[start : start + self.batch] for start in range(0, len(plan), self.batch)]
        return [done for part in parts for done in Producer.complete(self, work, part)]


def _engine(plan: Plan, spec: EngineSpec, **changes: int) -> Engine:
    """Return an engine as processes make it, with the plan's weights."""
    engine = EngineConfig.model_validate({**vars(spec), "threads": plan.threads, **changes}).make()
    engine.load(plan.weights)
    return engine


def produce(plan: Plan, spec: EngineSpec, folder: Path) -> EngineInfo:
    """Make `<folder>/<i>.parquet` for every file i, decoding `batches[i mod n]` rollouts at a time. Raises
    MusterError."""
    engine = _engine(plan, spec, batch=max(plan.batches))
    producer = BatchProducer(PoolConfig.load(plan.pool_config).without_curricula, engine)
    producer.load(plan.weights)
    for number in range(plan.files):
        producer.batch = plan.batches[number % len(plan.batches)]
        produced = producer.make(work_of(plan.seed, number))
        (folder / f"{number}.parquet").write_bytes(produced.data)
        log.info("%s: made file %d of %d", spec, number + 1, plan.files)
    return engine.info


def measure_files(plan: Plan, spec: EngineSpec, folder: Path) -> tuple[EngineInfo, list[FileSample]]:
    """Measure the files that `produce` made. Raises MusterError."""
    engine, config = _engine(plan, spec), PoolConfig.load(plan.pool_config).without_curricula
    environment, files = PoolEnvironments.of(config, plan.weights), []
    for number in range(plan.files):
        work, data = work_of(plan.seed, number), (folder / f"{number}.parquet").read_bytes()
        context = context_of(work, data, config, environment, plan.audit_rate)
        files.append(measure_file(context, engine, plan.batches[number % len(plan.batches)], plan.draws))
        log.info("%s: measured file %d of %d", spec, number + 1, plan.files)
    return engine.info, files


def measure_file(context: CheckContext, engine: Engine, batch: int, draws: int = 1) -> FileSample:
    """Return what a validator with this engine measures of a file, and its figures in so many independent draws."""
    passes, rows = list(audits(context, engine, draws)), []
    for own in passes[0].measured:
        row = context.rollouts[own.row]
        rows.append(RowSample.of(row.slot, own.mismatches, own.mantissas, own.gaps, row.logprobs, own.logprobs))
    return FileSample(batch, tuple(rows), tuple(map(file_figures, passes)))


def audits(context: CheckContext, engine: Engine, draws: int) -> Iterator[CheckContext]:
    """Yield the file as checks see it after a validator's pass, for independent draws; the first by its own lane."""
    facts = context.facts
    for draw in range(draws):
        lane = tagged_hash("muster/calibration-draw/1", facts.lane_seed, draw) if draw else facts.lane_seed
        drawn = replace(context, facts=replace(facts, lane_seed=lane))
        yield replace(drawn, measurements=measure(drawn, engine))


def context_of(
    work: Work, data: bytes, config: PoolConfig, environment: PoolEnvironments, audit_rate: int = AUDIT_EVERYTHING
) -> CheckContext:
    """Open an honest file, of which an audit draws rows. Raises IntegrityError if a check on the file refuses it."""
    header, rollouts = read(data, Limits.of(config.work))
    facts = SubmissionFacts(work, commit(data, rollouts), work.id.counter, work.step_seed, audit_rate)
    context = CheckContext(facts, config, environment, data, header, tuple(rollouts))
    for check in FILE_CHECKS:
        if not (finding := check(context)).code.is_accept:
            what = f"an honest file fails {finding.check}: {finding.note}"
            raise IntegrityError(what, "check pool config and weights")
    return context


# --- From a plan to a signed document


def calibrate(plan: Plan, account: LocalAccount) -> Calibration:
    """Measure, compute thresholds and sign them. Raises MusterError; ConfigError if no bound was found."""
    config = PoolConfig.load(plan.pool_config)
    hashed = weights_hash(plan.weights)
    pairs = tuple(summarise(pair.worker, pair.verifier, pair.files, pair.held) for pair in measure_all(plan))
    if weights_hash(plan.weights) != hashed:
        raise ConfigError(f"{plan.weights} changed while it was measured", "measure a folder that nobody writes to")
    document = Calibration(
        time=int(time.time()),
        seed=plan.seed,
        pool=subject(config),
        weights=hashed,
        problems=config.work.problems_per_file,
        samples=config.work.samples_per_problem,
        audit_rate=plan.audit_rate,
        false_reject=plan.false_reject,
        safety=plan.safety,
        pairs=pairs,
        thresholds={},
        signer=account.address,
    )
    thresholds = document.computed()
    if unbounded := [name for name, value in thresholds.items() if not 0 < value < math.inf]:
        raise ConfigError(f"no bound for {', '.join(unbounded)}", "measure more --files, or audit more rollouts")
    document = document.model_copy(update={"thresholds": thresholds}).signed(account)
    document.check()
    return document
