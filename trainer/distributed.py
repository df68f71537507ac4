"""The processes (ranks) that train one policy together: rendezvous, collectives, commands of rank 0, their launcher.

Every rank calls the same methods in the same order. Rank 0 may be busy with chain and bucket for hours between two
commands: the other ranks wait as long as it sends signs of life. Ranks on one machine meet at a store that listens on
loopback only, because pickles travel through it. Under torchrun, which several machines need, `Launcher` is not used,
and anybody who reaches its ports can run code in every rank."""

import logging
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial, wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.distributed.rendezvous import rendezvous

from protocol.errors import MusterError, first_line, unwritten
from runtime.entry import essential
from trainer.config import ParallelConfig
from trainer.exits import EXIT_DONE, EXIT_LOST, EXIT_STOPPED, FINAL_EXITS, RanksLostError

T = TypeVar("T")
P = ParamSpec("P")
S = TypeVar("S", bound="BroadcastCalls")
log = logging.getLogger("muster.trainer")
LOOPBACK = "127.0.0.1"
_PORT = "MUSTER_STORE_PORT"
_SIGN_SECONDS, _POLL_SECONDS = 1.0, 0.05
_ALIVE, _END = "muster/alive", "end"
_RENDEZVOUS_SECONDS = 120
_LAST_SECONDS = 5.0
_FINISH_SECONDS = 24 * 3600  # after a signal, the step in progress ends normally, as for a trainer of one rank
_STEADY_SECONDS, _MAX_PAUSE = 300.0, 30.0


class Ranks:
    """What a process does with the others that train the same policy: nothing if it trains alone, and else, with a
    `device`, as a rank of torch.distributed's default group: gloo for tensors on the CPU, nccl for those on GPUs.

    Rank 0 alone talks to anything outside; `world` is the number of ranks. `side_group`: a gloo group of the same ranks
    for what runs beside training, None for a process alone. `seconds` bounds every single wait for the others. Every
    method raises RanksLostError once a rank is gone."""

    def __init__(self, device: str = "", seconds: float = 0.0) -> None:
        self.rank, self.world = 0, 1
        self.side_group: dist.ProcessGroup | None = None
        self._limit = self._patience = seconds
        self._calls, self._closing = 0, threading.Event()
        self._store: Store | None = None
        if not device:
            return
        backend = "cpu:gloo,cuda:nccl" if torch.device(device).type == "cuda" else "gloo"
        limit = timedelta(seconds=seconds)
        with self._guarded("the rendezvous with the other ranks"):
            self._store, self.rank, self.world = join_store(limit)
            dist.init_process_group(backend, timeout=limit, store=self._store, rank=self.rank, world_size=self.world)
            self.side_group = dist.new_group(backend="gloo", timeout=limit)
        if self.rank == 0:
            essential("signs of life", partial(self._stay_alive, self._store)).start()

    def sum(self, value: Tensor) -> Tensor:
        """Return the element-wise sum over ranks, in a new tensor that is equal on all."""
        total = value.detach().clone()
        if self._store is not None:
            with self._guarded("a sum over ranks"):
                dist.all_reduce(total)
        return total

    def broadcast(self, value: T) -> T:
        """Return rank 0's picklable value; the other ranks' is ignored."""
        if self._store is None:
            return value
        values = [value]
        with self._guarded("a broadcast of rank 0"):
            dist.broadcast_object_list(values, 0, device=torch.device("cpu"))
        return values[0]

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self.sum(torch.zeros(1))

    def command(self, value: Any = None) -> Any:
        """Broadcast rank 0's value, for which the other ranks wait as long as rank 0 is alive."""
        if self._store is None:
            return value
        key = f"muster/call/{self._calls}"
        with self._guarded("the wait for rank 0's next command"):
            if self.rank == 0:
                self._store.set(key, "")
            else:
                self._await(self._store, key)
        value = self.broadcast(value)
        self.barrier()
        if self.rank == 0:
            with self._guarded("the end of a command's signal"):
                self._store.delete_key(key)
        self._calls += 1
        return value

    def shorten_wait(self, seconds: float) -> None:
        """Wait for a command only `seconds` without a sign of life. May be called from another thread."""
        self._patience = seconds

    def close(self) -> None:
        """Leave the group; nothing else may be called afterwards."""
        self._closing.set()
        if self._store is not None:
            dist.destroy_process_group()

    def _await(self, store: Store, key: str) -> None:
        signs, since = -1, time.monotonic()
        while not store.check([key]):  # a wait that times out would fill the log
            newest = store.add(_ALIVE, 0)
            if newest != signs:
                signs, since = newest, time.monotonic()
            elif time.monotonic() - since > self._patience:
                raise RuntimeError("rank 0 gives no sign of life")
            time.sleep(_POLL_SECONDS)

    def _stay_alive(self, store: Store) -> None:
        while not self._closing.wait(_SIGN_SECONDS):
            with suppress(RuntimeError):  # the store ended with its process, so nobody waits for a sign
                store.add(_ALIVE, 1)

    @contextmanager
    def _guarded(self, action: str) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise RanksLostError(
                f"{action} failed within its {self._limit:.0f} s: {first_line(error)}",
                "another rank died or hangs: its own log says why; start again to resume from the last checkpoint",
            ) from None


def on_all_ranks(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Make a method of BroadcastCalls run on every rank when rank 0 calls it; it returns rank 0's result."""

    @wraps(method)
    def call(self: Any, *arguments: Any) -> Any:
        self.ranks.command((method.__name__, arguments))
        return self._run_together(method.__name__, arguments)

    return cast(Callable[Concatenate[S, P], T], call)


class BroadcastCalls:
    """An object of which every rank has one. Rank 0 calls its methods; the other ranks are in `follow` meanwhile.

    A MusterError or OSError on any rank becomes a MusterError on rank 0. Anything else ends the process in which it
    happens, and the other ranks with a RanksLostError."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks

    def end(self, code: int) -> None:
        """Let the other ranks, if they still exist, end with this exit code."""
        with suppress(RanksLostError):
            self.ranks.command((_END, (code,)))

    def follow(self) -> int:
        """Run rank 0's calls until it ends; return the exit code. For every rank but 0."""
        while True:
            name, arguments = self.ranks.command()
            if name == _END:
                return int(arguments[0])
            try:
                self._run_together(name, arguments)
            except RanksLostError:
                raise
            except MusterError:
                pass  # rank 0 has it too, and decides

    def _run_together(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """Run this rank's part of a call, and fail if any rank's failed."""
        result, failure = None, None
        try:
            result = getattr(type(self), name).__wrapped__(self, *arguments)
        except RanksLostError:
            raise
        except MusterError as error:
            failure = error
        except OSError as error:
            failure = MusterError(unwritten(error))
        if self.ranks.sum(torch.tensor(float(failure is not None))).item():
            raise failure or MusterError(f"{name} failed on another rank", "its log says why")
        return result


class NonZeroRank:
    """The process of every rank but 0, which talks to nobody but the `ranks`; `make` loads what it follows rank 0 by.
    `run` returns rank 0's exit code, or 3 if a rank is lost."""

    def __init__(self, ranks: Ranks, make: Callable[[], BroadcastCalls]) -> None:
        self._ranks, self._make = ranks, make

    def run(self) -> int:
        try:
            return self._make().follow()
        except RanksLostError as error:
            log.error("%s", error)
            return EXIT_LOST

    def stop(self) -> None:
        """Leave the decision to rank 0, which is asked too; should it be gone, do not wait for it much longer."""
        self._ranks.shorten_wait(_LAST_SECONDS)


class Launcher:
    """Runs this very command once for every rank under torch's elastic launcher. `run` returns what rank 0 returned. A
    rank that dies ends the others, and all start again from the last checkpoint, `max_restarts` times in a row."""

    def __init__(self, parallel: ParallelConfig, command: Sequence[str]) -> None:
        self._parallel, self._command = parallel, command
        self._stopping = threading.Event()

    def run(self) -> int:
        failures = 0
        while not self._stopping.is_set():
            started = time.monotonic()
            try:
                code = self._launch()
            except SignalException:
                break
            if code in FINAL_EXITS:
                return code
            failures = 1 if time.monotonic() - started > _STEADY_SECONDS else failures + 1
            if failures > self._parallel.max_restarts:
                log.error("the ranks failed %d times in a row (exit code %d)", failures, code)
                return code
            pause = min(0.5 * 2 ** (failures - 1), _MAX_PAUSE)
            log.warning("a rank ended with exit code %d; all start again in %.1f s", code, pause)
            time.sleep(pause)
        return EXIT_STOPPED

    def stop(self) -> None:
        """Take effect before the ranks start only: then torch's launcher takes signals over and forwards them."""
        self._stopping.set()

    def _launch(self) -> int:
        """Run all ranks once; return the exit code that says why they ended."""
        store = loopback_store(timedelta(seconds=_RENDEZVOUS_SECONDS))
        os.environ |= rendezvous_environment(store)
        with TemporaryDirectory(prefix="muster-ranks-") as folder:
            config = LaunchConfig(
                min_nodes=1,
                max_nodes=1,
                nproc_per_node=self._parallel.ranks,
                run_id=uuid.uuid4().hex,
                rdzv_backend="c10d",
                rdzv_endpoint=str(Path(folder) / "agents"),
                rdzv_configs={"timeout": _RENDEZVOUS_SECONDS, "store_type": "file"},
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
    """Return whether this process is a rank already."""
    return "WORLD_SIZE" in os.environ


def loopback_store(limit: timedelta) -> TCPStore:
    """Return a store in this process whose `port` only this machine can reach. `limit` bounds every wait for a key."""
    listener = socket.create_server((LOOPBACK, 0))
    port = listener.getsockname()[1]
    return TCPStore(LOOPBACK, port, None, True, limit, wait_for_workers=False, master_listen_fd=listener.detach())


def rendezvous_environment(store: TCPStore) -> dict[str, str]:
    """Return the environment in which ranks of this machine meet at the launcher's store, and nowhere else."""
    loopback = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    gloo = {"GLOO_SOCKET_IFNAME": loopback[0]} if loopback else {}
    return {_PORT: str(store.port), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", **gloo}


def join_store(limit: timedelta) -> tuple[Store, int, int]:
    """Return the group's store, this rank, and the number of ranks."""
    if _PORT in os.environ:
        store = TCPStore(LOOPBACK, int(os.environ[_PORT]), None, False, limit)
        return store, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store, rank, world = next(rendezvous("env://", timeout=limit))
    store.set_timeout(limit)
    return store, rank, world


def join_ranks(device: str, seconds: float) -> Ranks:
    """Return the ranks that torch's launcher started this process as one of, by its environment, or this process
    alone."""
    return Ranks() if os.environ.get("WORLD_SIZE", "1") == "1" else Ranks(device, seconds)


def rank_device(device: str) -> str:
    """Return the device of this rank: of several GPUs of a machine the one that its local number names."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if device == "cuda" else device
