"""One file made as the worker makes it and judged as validators judge it, without a chain: nothing between the two but
the file's bytes and what would go on chain about it."""

import time
from dataclasses import dataclass
from pathlib import Path

from engines.base import EngineInfo
from environments.pool import PoolEnvironments
from protocol.config import PoolConfig
from protocol.rollout_file.rows import Commitment
from protocol.seeds import Work
from protocol.verdict import Verdict
from runtime.process import EngineConfig
from storage.weights.cache import manifest_of


@dataclass(frozen=True)
class DryRunFile:
    """A file and what would go on chain about it. `seconds`: what making took, the loading of weights aside."""

    data: bytes
    commitment: Commitment
    engine: EngineInfo
    seconds: float


@dataclass(frozen=True)
class Judged:
    """`seconds`: what judging took, the loading of weights aside."""

    verdict: Verdict
    seconds: float


@dataclass(frozen=True)
class Draw:
    """What the chain would decide about the file: its number in the pool, the lane's seed (32 bytes), which draws the
    audited rollouts, and the pool's audit rate (in 1/65536)."""

    sequence: int
    lane_seed: bytes
    audit_rate: int


def usual_verifier(maker: EngineConfig, dtype: str) -> EngineConfig:
    """Return the judge where nobody named one: transformers in the pool's `dtype`, on the maker's device."""
    return EngineConfig.model_validate(maker.model_dump() | {"name": "transformers", "dtype": dtype})


def make_file(config: PoolConfig, engine: EngineConfig, weights: Path, work: Work) -> DryRunFile:
    """Make a file as the worker does. Raises MusterError if the engine or the weights are not usable."""
    from worker.produce import Producer

    producer = Producer(config, engine.make())
    producer.load(weights)
    started = time.monotonic()
    made = producer.make(work)
    return DryRunFile(made.data, made.commitment, producer.engine.info, time.monotonic() - started)


def judge_file(
    config: PoolConfig, engine: EngineConfig, weights: Path, work: Work, made: DryRunFile, draw: Draw
) -> Judged:
    """Judge a file as validators do. Raises MusterError if the engine or the weights are not usable."""
    from validator.judging.checks import SubmissionFacts
    from validator.judging.pipeline import judge

    verifier = engine.make()
    verifier.load(weights)
    environments = PoolEnvironments.of(config, weights).at(weights)
    facts = SubmissionFacts(work, made.commitment, draw.sequence, draw.lane_seed, draw.audit_rate)
    started = time.monotonic()
    manifest = manifest_of(weights)
    null_models = manifest.null_models if manifest else None
    verdict = judge(facts, made.data, config, environments, verifier, null_models)
    return Judged(verdict, time.monotonic() - started)
