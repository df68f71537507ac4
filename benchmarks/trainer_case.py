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
from trainer.bench import full_row, matrix_flops
from trainer.config import MemoryConfig
from trainer.learner import Learner
from trainer.model.sharding import Placement


@dataclass(frozen=True)
class CaseSettings:
    """`folder` holds the model in `model`. `steps` are measured after one that is not. Both trainers have the same
    threads, dtype and activation checkpointing; `row_tokens` is our packed row, `trl_batch` TRL's micro-batch.
    `one_row`: instead of the mix, a step of one full row."""

    folder: Path
    mix: Mix
    threads: int = 1
    dtype: str = "bfloat16"
    steps: int = 3
    checkpointing: bool = True
    row_tokens: int = 2048
    head_chunk_mib: int = 16
    trl_batch: int = 8
    one_row: bool = False

    def save(self, path: Path) -> Path:
        path.write_text(json.dumps(asdict(self) | {"folder": str(self.folder)}))
        return path

    @classmethod
    def load(cls, path: Path) -> "CaseSettings":
        known = json.loads(path.read_text())
        return cls(**known | {"folder": Path(known["folder"]), "mix": Mix(**known["mix"])})


@dataclass(frozen=True)
class Measured:
    """Processor seconds of each measured step; resident bytes before the first and at most; of a step its real tokens
    and the operations that it needs; operations a second that plain matrix products reach."""

    seconds: list[float]
    before: int
    peak: int
    tokens: int
    flops: float = 0.0
    peak_flops: float = 1.0

    def document(self) -> dict[str, Any]:
        return asdict(self)


def resident_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(settings: CaseSettings) -> Measured:
    set_threads(settings.threads)
    config = TrainConfig(optimizer=OptimizerConfig(method=AdamWConfig(learning_rate=1e-5)))
    memory = MemoryConfig(
        row_tokens=settings.row_tokens,
        head_chunk_mib=settings.head_chunk_mib,
        checkpoint_activations=settings.checkpointing,
    )
    learner = Learner(settings.folder / "model", config, 1.0, settings.dtype, Placement(memory=memory))
    mix = settings.mix
    groups = full_row(settings.row_tokens, mix.vocabulary) if settings.one_row else mix.rollouts()
    seconds, before = [], resident_bytes()
    for _ in range(settings.steps + 1):
        start = time.process_time()
        learner.train_step(groups)
        seconds.append(time.process_time() - start)
    lengths, policy = [one.length for group in groups for one in group], learner.policy
    peak, flops = peak_bytes(), policy.work.training(lengths)
    reached = matrix_flops(policy.device, policy.dtype, clock=time.process_time) / settings.threads
    return Measured(seconds[1:], before, peak, sum(lengths), flops, reached)


if __name__ == "__main__":
    print(json.dumps(measure(CaseSettings.load(Path(sys.argv[1]))).document()))
