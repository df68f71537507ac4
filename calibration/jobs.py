"""What the processes of a calibration tell one another: one JSON file in, one JSON file out."""

from pathlib import Path
from typing import Literal

from calibration.plan import EngineSpec, Plan
from calibration.sample import FileSample
from engines.base import EngineInfo
from protocol.encoding import Document, tagged_hash
from protocol.identity import PoolId, WorkId
from protocol.seeds import Work

_ZERO = "0x" + "00" * 20


class Job(Document):
    """One process's work. produce: make file `i` of the plan, decoding `batches[i mod n]` rollouts at a time. measure:
    prefill those files. Files are `<folder>/<i>.parquet`."""

    do: Literal["produce", "measure"]
    plan: Plan
    engine: EngineSpec
    folder: Path


class Done(Document):
    """A process's answer; `error` and `hint` if it failed in a way that people can fix."""

    engine: EngineInfo | None = None
    files: tuple[FileSample, ...] = ()
    error: str = ""
    hint: str = ""


def work_of(seed: str, number: int) -> Work:
    """Of a chain that does not exist: calibration files can be submitted nowhere. Randomness follows from the seed."""
    step_seed = tagged_hash("muster/calibration/1", tagged_hash(f"muster/calibration-seed/1 {seed}"))
    return Work(WorkId(PoolId(0, _ZERO, 0), _ZERO, 0, number), step_seed, bytes(32))
