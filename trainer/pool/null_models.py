"""Learns the null models that a policy step is published with, from honest files of its weights.

Learning is a process of its own for a bounded time, which the step waits for. A step that it fails for is published
without null models, and its files give no evidence."""

import logging
import os
import sys
import tempfile
import threading
from pathlib import Path

from engines.torch_process import arithmetic_of, vllm_installed
from protocol.config import PoolConfig
from protocol.errors import MusterError, unwritten
from protocol.evidence.figures import arithmetic_label
from protocol.files import write_atomic
from runtime.pool_client import PoolClient
from trainer.child import run_child
from trainer.config import TrainerConfig
from trainer.pool.publish import StepPublisher

log = logging.getLogger("muster.trainer")


class NullModelLearner:
    """Writes the null models of steps that `publisher` publishes. In a pool without `evidence` it does nothing."""

    def __init__(self, pool: PoolConfig, config: TrainerConfig, client: PoolClient, publisher: StepPublisher) -> None:
        self._pool, self._config, self._client, self._publisher = pool, config, client, publisher
        self._tried = set[int]()
        self.stopping = threading.Event()

    def due(self, step: int) -> bool:
        """Return whether a step is to have null models and has none yet."""
        if self._pool.evidence is None or step % self._config.null_models.every or step in self._tried:
            return False
        chain = self._client.pool()
        published = chain is not None and step < len(chain.steps)
        return not published and not self._publisher.null_model_file(step).is_file()

    def learn(self, step: int, same_as: int | None = None) -> None:
        """Learn a step's null models if they are due. `same_as`: a step with the same weights, whose models it takes
        where there are some."""
        if not self.due(step):
            return
        self._tried.add(step)
        learned = self._publisher.null_model_file(step)
        same = self._publisher.null_model_file(same_as) if same_as is not None else learned
        if same.is_file():
            write_atomic(learned, same.read_bytes())
            return
        engines = self.engines()
        if not engines:
            log.warning("step %d has no null model: this machine has none of the pool's engines", step)
            return
        try:
            self._run(step, engines, learned)
        except (MusterError, OSError) as error:
            why = unwritten(error) if isinstance(error, OSError) else error
            log.warning("step %d has no null model, and its files give no evidence: %s", step, why)

    def engines(self) -> list[str]:
        """Return the engines of this machine, as `name:dtype:device`, whose files the pool takes."""
        dtype, device = self._pool.model.dtype, self._config.engine.device
        here, evidence = ("transformers", "vllm") if vllm_installed() else ("transformers",), self._pool.evidence
        labels = {name: arithmetic_label(name, dtype, arithmetic_of(device)) for name in here}
        return [f"{name}:{dtype}:{device}" for name in here if evidence and not evidence.refuses(labels[name])]

    def _run(self, step: int, engines: list[str], learned: Path) -> None:
        config, threads = self._config.null_models, self._config.engine.threads
        chain = self._client.pool()
        if chain is None:
            raise MusterError("the pool is not on chain", "wait for it")
        log.info("step %d: learning its null models from %d files of %s", step, config.files, ", ".join(engines))
        with tempfile.TemporaryDirectory(prefix="muster-null-models-") as name:
            pool = Path(name) / "pool.json"
            pool.write_text(self._pool.model_dump_json())
            argv = [sys.executable, "-P", "-m", "calibration.step", "--pool-config", str(pool), "--out", str(learned)]
            argv += ["--weights", str(self._publisher.folder(step)), "--step", str(step), "--threads", str(threads)]
            argv += ["--files", str(config.files), "--audit-rate", str(chain.terms.auditRate)]
            argv += [word for engine in engines for word in ("--engine", engine)]
            argv += [word for batch in config.batches for word in ("--batch", str(batch))]
            argv += ["--parent", str(os.getpid())]
            run_child("learning null models", argv, Path(name), self.stopping, config.seconds, threads)
