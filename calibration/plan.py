"""What a calibration measures and which thresholds are asked for, checked before anything is measured."""

from dataclasses import dataclass
from pathlib import Path

from calibration.jobs import EngineSpec
from protocol.config import PoolConfig
from protocol.errors import ConfigError

Pair = tuple[EngineSpec, EngineSpec]
"""A worker's engine and the verifier's."""


@dataclass(frozen=True)
class Plan:
    """What to measure: `files` honest files per pair of `pool_config`, decoded by turns at each of `batches`. Raises
    ConfigError for what cannot be measured."""

    pool_config: Path
    weights: Path
    pairs: tuple[Pair, ...]
    files: int
    batches: tuple[int, ...]
    seed: str
    threads: int

    def __post_init__(self) -> None:
        if not (self.weights / "config.json").is_file():
            raise ConfigError(
                f"{self.weights} is not a model folder", "name one with config.json and safetensors files"
            )
        least = 4 * len(self.batches)
        if self.files < least:
            raise ConfigError(
                f"--files {self.files} is too few for {len(self.batches)} batch sizes", f"at least {least}"
            )
        if len(self.seed) > 100:
            raise ConfigError("--seed is too long", "at most 100 characters")


@dataclass(frozen=True)
class ErrorBudget:
    """What the thresholds have to hold: `false_reject` is the probability per submission that an honest one is refused,
    `safety` multiplies every measured bound, `audit_rate` is the pool's, in 1/65536."""

    false_reject: float
    safety: float
    audit_rate: int

    def __post_init__(self) -> None:
        if not 1e-12 <= self.false_reject <= 0.1:
            raise ConfigError(f"--false-reject {self.false_reject:g} is outside 1e-12 to 0.1", "1e-6 is usual")


def parse_pairs(workers: list[str], verifiers: list[str], config: PoolConfig) -> tuple[Pair, ...]:
    """Pairs of engines as written on the command line, each once; the pool's dtype where none is written."""
    if len(workers) != len(verifiers):
        what = f"{len(workers)} --worker and {len(verifiers)} --verifier are no pairs"
        raise ConfigError(what, "give one --verifier for each --worker, in the same order")
    dtype = config.model.dtype
    pairs = [
        (EngineSpec.parse(worker, dtype, "--worker"), EngineSpec.parse(verifier, dtype, "--verifier"))
        for worker, verifier in zip(workers, verifiers, strict=True)
    ]
    return tuple(dict.fromkeys(pairs))
