"""The life of a daemon: read its configuration file, prepare the process, run until a signal, exit with its code."""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal, NoReturn, Protocol, TypeVar

from pydantic import Field

from engines.base import Engine
from engines.torch_process import PACE, StepPace, torch_environment, vllm_installed
from protocol.accounts import LocalAccount
from protocol.encoding import Document, load_document
from protocol.errors import ConfigError, MusterError, first_line
from protocol.files import explained
from protocol.waits import WAITS
from runtime.entry import Exit, end_with_threads, essential, start_logging
from runtime.home_status import STALLED, keep_crash_message
from runtime.keystore import open_key
from sandbox.policy import MIB, Wanted
from storage.relay.server import ServeWeights

log = logging.getLogger("muster.process")
GRACE_SECONDS = 8.0
GIVE_UP_SECONDS = 600.0
CHECK_SECONDS = 0.5
EngineName = Literal["transformers", "vllm"]


class KeyConfig(Document):
    """An encrypted key file, and where its password comes from."""

    keystore: Path = Field(description="The key file (web3 secret storage, version 3).")
    password_file: Path | None = Field(
        None, description="A file of mode 0600 with the password. Without one the terminal is asked."
    )

    def open(self) -> LocalAccount:
        return open_key(self.keystore, self.password_file)


class EngineConfig(Document):
    """How a process computes."""

    name: Literal["auto", "transformers", "vllm"] = Field("transformers", description="The engine.")
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="The floating-point type of the weights.")
    device: str = Field("cpu", description="The torch device, such as cpu or cuda:0.")
    threads: int = Field(1, ge=1, le=1024, description="Threads of one computation on the CPU.")
    batch: int = Field(64, ge=1, le=65536, description="The most sequences that are computed at once.")
    tensor_parallel: int = Field(1, ge=1, le=64, description="GPUs that vLLM divides the model over, from `device` on.")
    data_parallel: int = Field(
        1, ge=1, le=64, description="Engines of a worker, each with its own process and the next GPUs from `device` on."
    )
    memory_share: float = Field(0.9, gt=0, lt=1, description="The share of each GPU's memory that vLLM may take.")

    def each(self) -> "list[EngineConfig]":
        """Return the configuration of each engine: on GPUs, each has the `tensor_parallel` after those of the one
        before."""
        kind, _, first = self.device.partition(":")
        if kind == "cpu" or self.data_parallel == 1:
            return [self] * self.data_parallel
        starts = [int(first or 0) + number * self.tensor_parallel for number in range(self.data_parallel)]
        return [self.model_copy(update={"device": f"{kind}:{start}"}) for start in starts]

    def make(self) -> Engine:
        """Return one engine, without weights; torch is imported here. `auto` is vLLM where it is installed, which takes
        OMP_NUM_THREADS from the environment instead of `threads`. Raises ConfigError for a model that another engine
        would have to divide over GPUs, MusterError where vLLM is missing."""
        if self.name == "vllm" or (self.name == "auto" and vllm_installed()):
            from engines.vllm import VllmEngine

            return VllmEngine(self.dtype, self.device, self.batch, self.tensor_parallel, memory_share=self.memory_share)
        if self.tensor_parallel > 1:
            raise ConfigError(f"tensor_parallel {self.tensor_parallel} with engine {self.name}", 'set name = "vllm"')
        from engines.hf import TransformersEngine

        return TransformersEngine(self.dtype, self.device, self.threads, self.batch)


class DaemonConfig(Document):
    """What every long-running process needs."""

    home: Path = Field(description="The folder where the process keeps its state.")


class PoolSource(Document):
    """Where a pool's service and the mirrors of its files are."""

    pool: int = Field(ge=1, description="The pool's number.")
    orchestrator: str = Field(description="The URL of the pool's orchestrator.")
    mirrors: tuple[str, ...] = Field((), description="Base URLs of further copies of the pool's objects.")


class ProcessConfig(DaemonConfig):
    """A process that works for one pool."""

    deployment: Path = Field(description="The file that the deploy command wrote.")
    rpc: tuple[str, ...] = Field(min_length=1, description="RPC URLs of the chain, the preferred one first.")
    pool: int = Field(ge=0, description="The pool's number.")
    orchestrator: str = Field(description="The URL of the pool's orchestrator.")
    mirrors: tuple[str, ...] = Field((), description="Base URLs, besides the orchestrator's, of `<base>/<object key>`.")
    allow_private_sources: bool = Field(
        False,
        description="Whether URLs that others choose (redirects, upload tickets, announced mirrors) may lead into "
        "private networks.",
    )
    cache: Path = Field(description="The folder for weights; processes of one machine may share it.")
    engine: EngineConfig = Field(EngineConfig(), description="How the process computes.")
    confirmations: int = Field(2, ge=0, le=1000, description="Blocks on top of a step's seed block before it is used.")
    poll_seconds: float = Field(0.5, gt=0, le=60, description="Seconds between two polls of the chain.")
    name: str = Field("", max_length=64, description="A name for the dashboard.")
    serve_weights: ServeWeights | None = Field(None, description="Serve the weights that this process has to others.")


class IsolatedConfig(ProcessConfig):
    """A process that reads what strangers made: it can run isolated, and then its keys stay outside."""

    isolation: Wanted = Field("auto", description="How the process is kept apart from this machine and its keys.")
    isolation_image: str = Field("", description="The container image to run, named by its digest.")
    isolation_memory: int | None = Field(
        None, ge=512 * MIB, description="Bytes that the isolated process may use; no limit without it."
    )

    @property
    def keys(self) -> tuple[KeyConfig, ...]:
        """What it signs with: each role says."""
        raise NotImplementedError

    @property
    def writes(self) -> tuple[Path, ...]:
        """Folders."""
        return (self.home, self.cache)

    @property
    def reads(self) -> tuple[Path, ...]:
        """Further files and folders that it reads."""
        return ()

    @property
    def urls(self) -> tuple[str, ...]:
        """What it asks."""
        return (*self.rpc, self.orchestrator, *self.mirrors)

    @property
    def environment(self) -> dict[str, str]:
        """Further environment variables that it gets."""
        return {}

    @property
    def listens(self) -> bool:
        """Whether others connect to it."""
        return self.serve_weights is not None


C = TypeVar("C", bound=DaemonConfig)


class Daemon(Protocol):
    """What `start` runs. `run` serves and returns the exit code; `stop`, called from a signal handler, ends it soon."""

    def run(self) -> int: ...

    def stop(self) -> None: ...


def start(path: Path, kind: type[C], build: Callable[[C], Daemon], grace: float | None = GRACE_SECONDS) -> NoReturn:
    """Run the daemon that `build` makes from the configuration file at `path`, and end the process with its exit code.

    `build` must be the first to import torch: its environment is set before. `grace`: see `serve`. Raises MusterError,
    before the daemon runs, for what a user can fix.
    """
    start_logging()
    config = load_document(path, kind)
    make_home(config.home)
    if isinstance(config, ProcessConfig):
        for name, value in torch_environment(config.engine.threads).items():
            os.environ.setdefault(name, value)
    try:
        keep_crash_message(config.home, "")
        end_with_threads(config.home)  # before any is started
        daemon = build(config)
        if isinstance(config, ProcessConfig):
            StallGuard(config.home).start()
        serve(daemon, grace)
    except (MusterError, OSError) as error:
        keep_crash_message(config.home, first_line(error))
        raise


def serve(daemon: Daemon, grace: float | None = GRACE_SECONDS) -> NoReturn:
    """Run `daemon`, with SIGINT and SIGTERM calling its `stop`, then end the process with its exit code.

    A daemon that is still running `grace` seconds after a signal is killed, with exit code 0; it must therefore write
    whatever matters to disk before it tells anybody. With None it may take as long as it needs.
    """

    def handle_signal(*_: object) -> None:
        log.info("stopping, as asked")
        daemon.stop()
        if grace is not None:
            deadline = threading.Timer(grace, os._exit, (0,))
            deadline.daemon = True
            deadline.start()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle_signal)
    code = daemon.run()
    # Python takes many seconds to tear down a process that used vLLM, and there is nothing left to save.
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def make_home(path: Path) -> None:
    with explained(f"make {path}", "check `home`"):
        path.mkdir(parents=True, exist_ok=True)


class StallGuard:
    """A thread that watches whether the engine's steps end.

    While a step is overdue, the file STALLED in `home`, the log and heartbeats say so. One that is overdue for
    `give_up` seconds never ends: `end` is called, by default the process's immediate end with Exit.STALLED, because
    only another process can open the device again.
    """

    def __init__(
        self,
        home: Path,
        pace: StepPace = PACE,
        give_up: float = GIVE_UP_SECONDS,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._path, self._pace, self._give_up, self._end = home / STALLED, pace, give_up, end
        self._stop = threading.Event()

    def start(self) -> None:
        self._remove_file()
        essential("stall guard", self._run).start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(CHECK_SECONDS):
            if waited := self._pace.overdue():
                self._wait_for_progress(waited)

    def _wait_for_progress(self, waited: float) -> None:
        since = time.time() - waited
        what = f"a step of the model does not end; the longest took {self._pace.longest:.1f} s"
        log.error("%s: look at the device (nvidia-smi)", what)
        with suppress(OSError):
            self._path.write_text(f"{since:.0f} {what}")
        with WAITS.on(what):
            while (waited := self._pace.overdue()) and not self._stop.wait(CHECK_SECONDS):
                if waited > self._give_up:
                    log.error("ending: the step has not ended for %.0f s", waited)
                    self._end(Exit.STALLED)
                    return
        self._remove_file()
        log.info("the model computes again, after %.0f s", time.time() - since)

    def _remove_file(self) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
