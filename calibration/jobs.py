"""What the processes of a calibration tell one another: one JSON file in, one JSON file out."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from calibration.sample import FileSample
from engines.base import EngineInfo
from protocol.encoding import tagged_hash
from protocol.errors import ConfigError
from protocol.identity import PoolId, WorkId
from protocol.seeds import Work

_ZERO = "0x" + "00" * 20
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
        found = cls(name, rest[0] if rest else dtype, rest[1] if len(rest) > 1 else "cpu")
        if found.name not in _NAMES or found.dtype not in _DTYPES or not re.fullmatch(r"cpu|cuda(:\d+)?", found.device):
            hint = f"write ENGINE:DTYPE:DEVICE with {' or '.join(_NAMES)}, {' or '.join(_DTYPES)}, cpu or cuda"
            raise ConfigError(f"{option} {text!r} is not an engine", hint)
        return found

    def __str__(self) -> str:
        return f"{self.name}:{self.dtype}:{self.device}"


class Job(BaseModel):
    """One process's work. produce: make file `i` of `files` decoding `batches[i mod n]` rollouts at a time. measure:
    prefill those files. Files are `<folder>/<i>.parquet`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    do: Literal["produce", "measure"]
    pool_config: Path
    weights: Path
    folder: Path
    engine: EngineSpec
    files: int = Field(ge=1)
    batches: tuple[int, ...] = Field(min_length=1)
    seed: str
    threads: int = Field(ge=1)


class Done(BaseModel):
    """A process's answer; `error` and `hint` if it failed in a way that people can fix."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: EngineInfo | None = None
    files: tuple[FileSample, ...] = ()
    error: str = ""
    hint: str = ""


def work_of(seed: str, number: int) -> Work:
    """Of a chain that does not exist: calibration files can be submitted nowhere. Randomness follows from the seed."""
    step_seed = tagged_hash("muster/calibration/1", tagged_hash(f"muster/calibration-seed/1 {seed}"))
    return Work(WorkId(PoolId(0, _ZERO, 0), _ZERO, 0, number), step_seed, bytes(32))


def describe(pair: tuple[EngineSpec, EngineSpec]) -> str:
    return f"{pair[0]} to {pair[1]}"
