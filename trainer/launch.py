"""Several ranks on this machine: started together by torch's elastic launcher, ended together, started again together.

Under torchrun, which several machines need, each process is a rank already and nothing here is used. Whoever reaches
torchrun's ports can run code in every rank: between such machines there must be a network of their own.
"""

import logging
import os
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from trainer.config import ParallelConfig
from trainer.exits import EXIT_DONE, EXIT_LOST, EXIT_STOPPED, FINAL_EXITS
from trainer.meeting import LOOPBACK, loopback_store, meeting_environment

log = logging.getLogger("muster.trainer")
_MEETING_SECONDS = 120
_FINISH_SECONDS = (
    24 * 3600
)  # after a signal, for the step in hand; as for a trainer alone, it is no time to be cut short
_STEADY_SECONDS = 300.0
_MAX_PAUSE = 30.0


class Launcher:
    """Runs this very command once for every rank. `run` returns what rank 0 returned: a rank that dies ends the others,
    and all start again from the last checkpoint, `max_restarts` times in a row."""

    def __init__(self, parallel: ParallelConfig, command: Sequence[str]) -> None:
        self._parallel, self._command = parallel, command
        self._failures = 0
        self._stopping = threading.Event()

    def run(self) -> int:
        try:
            return self._until_final()
        except SignalException:
            return EXIT_STOPPED

    def stop(self) -> None:
        """Called before the ranks start only: then torch's launcher takes signals over and forwards them."""
        self._stopping.set()

    def _until_final(self) -> int:
        while not self._stopping.is_set():
            started = time.monotonic()
            code = self._attempt()
            if code in FINAL_EXITS:
                return code
            if time.monotonic() - started > _STEADY_SECONDS:
                self._failures = 0
            self._failures += 1
            if self._failures > self._parallel.max_restarts:
                log.error("the ranks failed %d times in a row (exit code %d)", self._failures, code)
                return code
            pause = min(0.5 * 2 ** (self._failures - 1), _MAX_PAUSE)
            log.warning("a rank ended with exit code %d; all start again in %.1f s", code, pause)
            time.sleep(pause)
        return EXIT_STOPPED

    def _attempt(self) -> int:
        """One life of all ranks; the exit code that says why it ended."""
        store = loopback_store(timedelta(seconds=_MEETING_SECONDS))
        os.environ |= meeting_environment(store)
        with TemporaryDirectory(prefix="muster-ranks-") as folder:
            return self._launch(Path(folder) / "agents")

    def _launch(self, rendezvous: Path) -> int:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=self._parallel.ranks,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint=str(rendezvous),
            rdzv_configs={"timeout": _MEETING_SECONDS, "store_type": "file"},
            local_addr=LOOPBACK,
            max_restarts=0,  # it would restart after a deliberate end too
            monitor_interval=0.2,
            shutdown_timeout=_FINISH_SECONDS,
            signals_to_handle="SIGTERM,SIGINT",
        )
        try:
            elastic_launch(config, sys.executable)(*self._command)
        except ChildFailedError as error:
            codes = [failure.exitcode for failure in error.failures.values()]
            return next((code for code in codes if code in FINAL_EXITS), codes[0] if codes else EXIT_LOST)
        return EXIT_DONE


def launched() -> bool:
    """Whether this process is a rank already."""
    return "WORLD_SIZE" in os.environ
