"""A rehearsal's two halves, each engine in a process of its own."""

from pathlib import Path

from calibration.dry_run import Draw as Draw
from calibration.dry_run import Judged, RehearsedFile, judge_file, make_file
from cli.alone import alone
from protocol.config import PoolConfig
from protocol.seeds import Work
from runtime.process import EngineConfig

LONGEST_SECONDS = 4 * 3600.0


def make_alone(config: PoolConfig, engine: EngineConfig, weights: Path, work: Work) -> RehearsedFile:
    """`make_file` in a process of its own. Raises MusterError."""
    return alone(f"making a file with {engine.name}", LONGEST_SECONDS, make_file, config, engine, weights, work)


def judge_alone(
    config: PoolConfig, engine: EngineConfig, weights: Path, work: Work, made: RehearsedFile, draw: Draw
) -> Judged:
    """`judge_file` in a process of its own. Raises MusterError."""
    what = f"judging with {engine.name}"
    return alone(what, LONGEST_SECONDS, judge_file, config, engine, weights, work, made, draw)
