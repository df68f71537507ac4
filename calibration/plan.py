"""What a calibration measures and which thresholds are asked for, checked before anything is measured."""

import re
from dataclasses import dataclass
from pathlib import Path

from protocol.config import PoolConfig
from protocol.errors import ConfigError

_NAMES = ("transformers", "vllm")
_DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True)
class EngineSpec:
    """An engine as written on the command line: `transformers:float32:cpu`; dtype and device may be left out."""

    name: str
    dtype: str
    device: str

    @classmethod
    def parse(cls, text: str, dtype: str, option: str) -> "EngineSpec":
        """`dtype` is the pool's. Raises ConfigError."""
        name, *rest = text.split(":", 2)
        spec = cls(name, rest[0] if rest else dtype, rest[1] if len(rest) > 1 else "cpu")
        if spec.name not in _NAMES or spec.dtype not in _DTYPES or not re.fullmatch(r"cpu|cuda(:\d+)?", spec.device):
            hint = f"write ENGINE:DTYPE:DEVICE with {' or '.join(_NAMES)}, {' or '.join(_DTYPES)}, cpu or cuda"
            raise ConfigError(f"{option} {text!r} is not an engine", hint)
        return spec

    def __str__(self) -> str:
        return f"{self.name}:{self.dtype}:{self.device}"


Pair = tuple[EngineSpec, EngineSpec]  # a worker's engine and the verifier's


@dataclass(frozen=True)
class Plan:
    """What to measure: `files` honest files per pair of `pool_config`, decoded by turns at each of `batches`.
    `audit_rate` (of 65536) is the pool's: evidence counts the rows that its audits draw. `false_reject` is the
    probability per submission that an honest one is refused; `safety` multiplies every measured bound. `draws`: audits
    of each file for its figures. Raises ConfigError for what cannot be measured."""

    pool_config: Path
    weights: Path
    pairs: tuple[Pair, ...]
    files: int
    batches: tuple[int, ...]
    seed: str
    threads: int
    audit_rate: int
    false_reject: float
    safety: float
    draws: int = 1

    def __post_init__(self) -> None:
        if not 1e-12 <= self.false_reject <= 0.1:
            raise ConfigError(f"--false-reject {self.false_reject:g} is outside 1e-12 to 0.1", "1e-6 is usual")
        if not (self.weights / "config.json").is_file():
            raise ConfigError(
                f"{self.weights} is not a model folder", "name one with config.json and safetensors files"
            )
        if self.files < (least := 4 * len(self.batches)):
            what = f"--files {self.files} is too few for {len(self.batches)} batch sizes"
            raise ConfigError(what, f"at least {least}")
        if len(self.seed) > 100:
            raise ConfigError("--seed is too long", "at most 100 characters")


def parse_pairs(workers: list[str], verifiers: list[str], config: PoolConfig) -> tuple[Pair, ...]:
    """Parse pairs of engines, each once; the pool's dtype where none is written. Raises ConfigError."""
    if len(workers) != len(verifiers):
        what = f"{len(workers)} --worker and {len(verifiers)} --verifier are no pairs"
        raise ConfigError(what, "give one --verifier for each --worker, in the same order")
    dtype = config.model.dtype
    pairs = [
        (EngineSpec.parse(worker, dtype, "--worker"), EngineSpec.parse(verifier, dtype, "--verifier"))
        for worker, verifier in zip(workers, verifiers, strict=True)
    ]
    return tuple(dict.fromkeys(pairs))
