"""The life of a daemon: read its configuration file, prepare the process, run until a signal, exit with its code."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NoReturn, Protocol, TypeVar

from pydantic import Field

from engines.base import Engine
from engines.factory import make_engine
from engines.runtime import torch_environment
from protocol.accounts import LocalAccount
from protocol.encoding import Document, load_document
from protocol.errors import MusterError, first_line
from protocol.files import explained
from runtime.keystore import open_key
from runtime.logs import start_logging
from runtime.presence import keep_last_words
from runtime.stall import StallGuard
from storage.relay.server import ServeWeights


class KeyConfig(Document):
    """An encrypted key file and the file (mode 0600) with its password; without one the terminal is asked."""

    keystore: Path
    password_file: Path | None = None

    def open(self) -> LocalAccount:
        """The account in the key file. Raises ConfigError, IntegrityError."""
        return open_key(self.keystore, self.password_file)


EngineName = Literal["transformers", "vllm"]


class EngineConfig(Document):
    """Which engine computes, in which dtype, on how many threads; `batch` is the most sequences at once."""

    name: Literal["auto", "transformers", "vllm"] = "transformers"
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: str = "cpu"
    threads: int = Field(1, ge=1, le=1024)
    batch: int = Field(64, ge=1, le=65536)

    def make(self) -> Engine:
        """The engine, without weights. Raises MusterError if it is not installed."""
        return make_engine(self.name, self.dtype, self.device, self.threads, self.batch)


class DaemonConfig(Document):
    """`home` is the folder where the daemon keeps its state."""

    home: Path


class PoolSource(Document):
    """Where a pool's service and the mirrors of its files are."""

    pool: int = Field(ge=1)
    orchestrator: str
    mirrors: tuple[str, ...] = ()


class ProcessConfig(DaemonConfig):
    """A process that computes for one pool. `cache` keeps the weights (shared by processes of one machine),
    `deployment` is the file written by the deploy command. `mirrors` are bases of `<base>/<object key>` besides the
    orchestrator's. `allow_private_sources` lets URLs that others choose (redirects, upload tickets, announced mirrors)
    lead into private networks. With `serve_weights` it serves the weights that it has to others. Seconds everywhere;
    `confirmations` in blocks."""

    deployment: Path
    rpc: tuple[str, ...] = Field(min_length=1)
    pool: int = Field(ge=0)
    orchestrator: str
    mirrors: tuple[str, ...] = ()
    allow_private_sources: bool = False
    cache: Path
    engine: EngineConfig = EngineConfig()
    confirmations: int = Field(2, ge=0, le=1000)
    poll_seconds: float = Field(0.5, gt=0, le=60)
    name: str = Field("", max_length=64)
    serve_weights: ServeWeights | None = None


C = TypeVar("C", bound=DaemonConfig)
log = logging.getLogger("muster.process")
_GRACE_SECONDS = 8.0


class Daemon(Protocol):
    """What `start` runs. `run` serves and returns the exit code; `stop`, called from a signal handler, ends it soon."""

    def run(self) -> int: ...

    def stop(self) -> None: ...


def start(path: Path, kind: type[C], build: Callable[[C], Daemon], grace: float | None = _GRACE_SECONDS) -> NoReturn:
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
        daemon = build(config)
        keep_last_words(config.home, "")
        if isinstance(config, ProcessConfig):
            StallGuard(config.home).start()
        serve(daemon, grace)
    except (MusterError, OSError) as error:
        keep_last_words(config.home, first_line(error))
        raise


def serve(daemon: Daemon, grace: float | None = _GRACE_SECONDS) -> NoReturn:
    """Run `daemon`, with SIGINT and SIGTERM calling its `stop`, then end the process with its exit code.

    A daemon that is still running `grace` seconds after a signal is killed, with exit code 0; it must therefore write
    whatever matters to disk before it tells anybody. With None it may take as long as it needs.
    """

    def ask(*_: object) -> None:
        log.info("stopping, as asked")
        daemon.stop()
        if grace is not None:
            last = threading.Timer(grace, os._exit, (0,))
            last.daemon = True
            last.start()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
    code = daemon.run()
    # Python takes a process that used vLLM apart for many seconds, and there is nothing left to save.
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def make_home(path: Path) -> None:
    """Make a process's home folder, if need be. Raises ConfigError."""
    with explained(f"make {path}", "check `home`"):
        path.mkdir(parents=True, exist_ok=True)
