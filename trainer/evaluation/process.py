"""Evaluation in a process of its own, so that nothing of it can hold up training.

The child gets its job as one JSON file and writes its results as another; it has a time limit, a low priority, and dies
with the trainer that waits for it.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Event

from pydantic import Field, TypeAdapter

from engines.runtime import torch_environment
from protocol.api.work import SetResult
from protocol.config import PoolConfig
from protocol.documents import Document
from protocol.encoding import parse_json
from protocol.errors import MusterError, printable
from protocol.files import write_atomic
from protocol.lifetime import die_with_parent
from runtime.process import EngineConfig

_POLL_SECONDS = 0.2
_RESULTS = TypeAdapter(list[SetResult])


class EvaluationProcessConfig(Document):
    """How the trainer measures: with which engine (its own if none is named), at which priority (`nice`), for at most
    how many seconds."""

    engine: EngineConfig | None = None
    nice: int = Field(5, ge=0, le=19)
    seconds: float = Field(3600.0, gt=0)


class EvaluationJob(Document):
    """What the child is to measure: the sets of `pool` with the weights in `folder`."""

    pool: PoolConfig
    folder: Path
    step: int
    engine: EngineConfig


class EvaluationProcess:
    """Measures one policy step at a time in a child process. `stop` ends a running one."""

    def __init__(self, config: EvaluationProcessConfig, engine: EngineConfig) -> None:
        self._config, self._engine = config, config.engine or engine
        self._stopping = Event()

    @property
    def engine(self) -> str:
        return self._engine.name

    def stop(self) -> None:
        self._stopping.set()

    def __call__(self, pool: PoolConfig, folder: Path, step: int) -> list[SetResult]:
        """The results of every set. Raises MusterError if the child fails, takes too long or is stopped."""
        with tempfile.TemporaryDirectory(prefix="muster-evaluation-") as scratch:
            job, results = Path(scratch) / "job.json", Path(scratch) / "results.json"
            document = EvaluationJob(pool=pool, folder=folder.absolute(), step=step, engine=self._engine)
            job.write_text(document.model_dump_json())
            self._run([sys.executable, "-P", "-m", __name__, str(job), str(results), str(os.getpid())], Path(scratch))
            return _RESULTS.validate_python(parse_json(results.read_bytes()))

    def _run(self, argv: list[str], scratch: Path) -> None:
        environment = dict(os.environ) | torch_environment(self._engine.threads)
        with (scratch / "log").open("w+") as log:
            child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
            try:
                os.setpriority(os.PRIO_PROCESS, child.pid, self._config.nice)
                code = self._wait(child)
            finally:
                child.kill()
                child.wait()
            if code != 0:
                log.seek(0)
                last = printable("".join(log.read().strip().splitlines()[-1:]))
                raise MusterError(f"the evaluation ended with code {code}: {last}", "see `evaluation.engine`")

    def _wait(self, child: subprocess.Popen[bytes]) -> int:
        end = time.monotonic() + self._config.seconds
        while (code := child.poll()) is None:
            if self._stopping.wait(_POLL_SECONDS):
                raise MusterError("the evaluation was stopped with the trainer")
            if time.monotonic() > end:
                what = f"the evaluation took longer than {self._config.seconds:.0f} s"
                raise MusterError(what, "raise `evaluation.seconds`, or measure less")
        return code


def main(job_path: Path, results: Path, parent: int) -> None:
    """The child: measure what the job says."""
    die_with_parent(parent)
    from engines.loading import set_threads
    from trainer.evaluation.held_out import evaluate

    job = EvaluationJob.model_validate_json(job_path.read_bytes())
    set_threads(job.engine.threads)
    found = evaluate(job.engine.make(), job.pool, job.folder, job.step, job.engine.batch)
    write_atomic(results, _RESULTS.dump_json(found))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
    except MusterError as error:
        sys.exit(str(error))
