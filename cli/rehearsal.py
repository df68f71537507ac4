"""One file made as the worker makes it and judged as validators judge it, without a chain: each engine in a process of
its own, nothing between them but the file's bytes and what would go on chain about it."""

import time
from dataclasses import dataclass
from pathlib import Path

from cli.alone import alone
from engines.base import EngineInfo
from environments.pool import PoolEnvironments
from protocol.config import PoolConfig
from protocol.rollouts.commitment import Commitment
from protocol.seeds import Work
from protocol.verdict import Verdict
from runtime.process import EngineConfig

LONGEST_SECONDS = 4 * 3600.0


@dataclass(frozen=True)
class RehearsedFile:
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


def make_alone(config: PoolConfig, engine: EngineConfig, weights: Path, work: Work) -> RehearsedFile:
    """`make_file` in a process of its own. Raises MusterError."""
    return alone(f"making a file with {engine.name}", LONGEST_SECONDS, make_file, config, engine, weights, work)


def judge_alone(
    config: PoolConfig, engine: EngineConfig, weights: Path, work: Work, made: RehearsedFile, draw: Draw
) -> Judged:
    """`judge_file` in a process of its own. Raises MusterError."""
    what = f"judging with {engine.name}"
    return alone(what, LONGEST_SECONDS, judge_file, config, engine, weights, work, made, draw)


def make_file(config: PoolConfig, engine: EngineConfig, weights: Path, work: Work) -> RehearsedFile:
    """The worker's own way to a file. Raises MusterError if the engine or the weights are not usable."""
    from worker.produce import Producer

    producer = Producer(config, engine.make())
    producer.load(weights)
    started = time.monotonic()
    made = producer.make(work)
    return RehearsedFile(made.data, made.commitment, producer.engine.info, time.monotonic() - started)


def judge_file(
    config: PoolConfig, engine: EngineConfig, weights: Path, work: Work, made: RehearsedFile, draw: Draw
) -> Judged:
    """The validators' own way to a verdict. Raises MusterError if the engine or the weights are not usable."""
    from validator.context import SubmissionFacts
    from validator.pipeline import judge

    verifier = engine.make()
    verifier.load(weights)
    facts = SubmissionFacts(work, made.commitment, draw.sequence, draw.lane_seed, draw.audit_rate)
    started = time.monotonic()
    verdict = judge(facts, made.data, config, PoolEnvironments.of(config, weights).at(weights), verifier)
    return Judged(verdict, time.monotonic() - started)
