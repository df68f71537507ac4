"""Our step on given rollouts, in a process of its own: `python -m benchmarks.trainer_case SETTINGS`."""

import json
import resource
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.trainer_mix import Mix
from engines.loading import set_threads
from protocol.training import AdamWConfig, OptimizerConfig, TrainConfig
from trainer.config import MemoryConfig
from trainer.learner import Learner
from trainer.model.sharding import Placement


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
    """Processor seconds of each measured step; resident bytes before the first and at most; real tokens of a step."""

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
    set_threads(settings.threads)
    config = TrainConfig(optimizer=OptimizerConfig(method=AdamWConfig(learning_rate=1e-5)))
    memory = MemoryConfig(row_tokens=settings.row_tokens, checkpoint_activations=settings.checkpointing)
    learner = Learner(settings.folder / "model", config, 1.0, settings.dtype, Placement(memory=memory))
    groups, seconds, before = settings.mix.rollouts(), [], resident_bytes()
    for _ in range(settings.steps + 1):
        start = time.process_time()
        learner.train_step(groups)
        seconds.append(time.process_time() - start)
    return Measured(seconds[1:], before, peak_bytes(), sum(one.length for group in groups for one in group))


if __name__ == "__main__":
    print(json.dumps(run(CaseSettings.load(Path(sys.argv[1]))).document()))
