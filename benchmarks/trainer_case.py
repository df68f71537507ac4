"""Our step on given rollouts, in a process of its own: `python -m benchmarks.trainer_case SETTINGS`."""

import json
import resource
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.trainer_mix import Mix


@dataclass(frozen=True)
class CaseSettings:
    """`folder` holds the model in `model`. `steps` are measured after one that is not. Both trainers have the same
    threads, dtype and activation checkpointing; `row_tokens` is our packed row, `trl_batch` TRL's micro-batch."""

    folder: Path
    mix: Mix
    threads: int = 1
    dtype: str = "bfloat16"
    steps: int = 3
    checkpointing: bool = True
    row_tokens: int = 4096
    trl_batch: int = 8

    def save(self, path: Path) -> Path:
        path.write_text(json.dumps(asdict(self) | {"folder": str(self.folder)}))
        return path

    @classmethod
    def load(cls, path: Path) -> "CaseSettings":
        known = json.loads(path.read_text())
        return cls(**known | {"folder": Path(known["folder"]), "mix": Mix(**known["mix"])})


@dataclass(frozen=True)
class Measured:
    """Seconds of each measured step; bytes resident before the first step and at most; real tokens of a step."""

    seconds: list[float]
    before: int
    peak: int
    tokens: int

    def document(self) -> dict[str, Any]:
        return asdict(self)


def resident_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run(settings: CaseSettings) -> Measured:
    raise NotImplementedError


if __name__ == "__main__":
    print(json.dumps(run(CaseSettings.load(Path(sys.argv[1]))).document()))
