"""Where ranks meet: the store of their group, which says who is there.

Whoever reaches a store can read and write all of it, and pickles travel through it. Torch's own listen on every address
of a machine; ours only on its loopback.
"""

import logging
import os
import pickle
import socket
import sys
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.distributed.rendezvous import rendezvous

from protocol.errors import MusterError, first_line
from trainer.config import ParallelConfig
from trainer.exits import EXIT_DONE, EXIT_LOST, EXIT_STOPPED, FINAL_EXITS, RanksLostError

LOOPBACK = "127.0.0.1"
_PORT = "MUSTER_STORE_PORT"


def loopback_store(limit: timedelta) -> TCPStore:
    """A store in this process, whose `port` nothing but this machine can reach. `limit` bounds every wait for a key."""
    listener = socket.create_server((LOOPBACK, 0))
    port = listener.getsockname()[1]
    return TCPStore(LOOPBACK, port, None, True, limit, wait_for_workers=False, master_listen_fd=listener.detach())


def meeting_environment(store: TCPStore) -> dict[str, str]:
    """What ranks that this machine's launcher starts need in order to meet at its store, and nowhere else."""
    interfaces = {name for _, name in socket.if_nameindex()}
    loopback = next((name for name in ("lo", "lo0") if name in interfaces), None)
    gloo = {"GLOO_SOCKET_IFNAME": loopback} if loopback else {}
    return {_PORT: str(store.port), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", **gloo}


def meet(limit: timedelta) -> tuple[Store, int, int]:
    """The group's store, this rank, and the number of ranks; a process alone makes a store of its own."""
    if "WORLD_SIZE" not in os.environ:
        return loopback_store(limit), 0, 1
    if _PORT in os.environ:
        store = TCPStore(LOOPBACK, int(os.environ[_PORT]), None, False, limit)
        return store, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store, rank, world = next(rendezvous("env://", timeout=limit))
    store.set_timeout(limit)
    return store, rank, world


# The processes (ranks) that train one policy together: sums over them, values of the first one for all.
#
# Every rank calls the same methods in the same order; the group's time limit bounds each of them. Rank 0 may be busy
# elsewhere for hours between two commands: the others wait for its next one as long as it gives signs of life.


T = TypeVar("T")
_SIGN_SECONDS = 1.0
_POLL_SECONDS = 0.02
_ALIVE = "muster/alive"


class Ranks(Protocol):
    """`rank` counts from 0; rank 0 alone talks to anything outside. `world` is the number of ranks."""

    @property
    def rank(self) -> int: ...

    @property
    def world(self) -> int: ...

    @property
    def side_group(self) -> dist.ProcessGroup | None:
        """A gloo group of the same ranks for what runs beside training; None for a process alone."""

    def sum(self, value: Tensor) -> Tensor:
        """The element-wise sum over ranks of tensors of one shape and dtype, in a new tensor, equal on all."""

    def broadcast(self, value: T) -> T:
        """Rank 0's value; what the other ranks pass is ignored. It must be picklable."""

    def barrier(self) -> None:
        """Wait until every rank is here."""

    def command(self, value: Any = None) -> Any:
        """As `broadcast`, for which the other ranks wait as long as rank 0 lives."""

    def hurry(self, seconds: float) -> None:
        """From now on wait for a command only `seconds` without a sign of life. May be called from another thread."""

    def close(self) -> None:
        """Leave the group; nothing else may be called afterwards."""


class OneRank:
    """A process that trains alone."""

    rank = 0
    world = 1
    side_group = None

    def sum(self, value: Tensor) -> Tensor:
        return value.clone()

    def broadcast(self, value: T) -> T:
        return value

    def barrier(self) -> None:
        pass

    def command(self, value: Any = None) -> Any:
        return value

    def hurry(self, seconds: float) -> None:
        pass

    def close(self) -> None:
        pass


class DistributedRanks:
    """A rank of torch.distributed's default group: gloo for tensors on the CPU, nccl for those on GPUs.

    `seconds` bounds every single wait for the others. Raises RanksLostError from any method once one is gone.
    """

    def __init__(self, device: str, seconds: float) -> None:
        backend = "cpu:gloo,cuda:nccl" if torch.device(device).type == "cuda" else "gloo"
        limit = timedelta(seconds=seconds)
        self._limit = seconds
        with self._together("meeting the other ranks"):
            store, self.rank, self.world = meet(limit)
            dist.init_process_group(backend, timeout=limit, store=store, rank=self.rank, world_size=self.world)
            self.side_group: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=limit)
        self._calls = Calls(store, self.rank, seconds)

    def sum(self, value: Tensor) -> Tensor:
        total = value.detach().clone()
        with self._together("a sum over ranks"):
            dist.all_reduce(total)
        return total

    def broadcast(self, value: T) -> T:
        # Bytes on the CPU: broadcast_object_list would move them through the GPU.
        data = pickle.dumps(value) if self.rank == 0 else b""
        with self._together("a broadcast of rank 0"):
            size = torch.tensor([len(data)])
            dist.broadcast(size, 0)
            buffer = torch.frombuffer(bytearray(data or bytes(int(size))), dtype=torch.uint8)
            dist.broadcast(buffer, 0)
        return value if self.rank == 0 else cast(T, pickle.loads(buffer.numpy().tobytes()))

    def barrier(self) -> None:
        with self._together("a meeting of all ranks"):
            dist.all_reduce(torch.zeros(1))

    def command(self, value: Any = None) -> Any:
        with self._together("the wait for rank 0's next command"):
            self._calls.next()
        return self.broadcast(value)

    def hurry(self, seconds: float) -> None:
        self._calls.limit = seconds

    def close(self) -> None:
        self._calls.close()
        dist.destroy_process_group()

    @contextmanager
    def _together(self, what: str) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise RanksLostError(
                f"{what} failed within its {self._limit:.0f} s: {first_line(error)}",
                "another rank died or hangs: its own log says why; start again to resume from the last checkpoint",
            ) from None


class Calls:
    """Rank 0 calls, the others wait to be called, by keys of the group's store."""

    def __init__(self, store: Store, rank: int, seconds: float) -> None:
        self._store, self._first, self._number = store, rank == 0, 0
        self.limit = seconds
        self._closing = threading.Event()
        if self._first:
            threading.Thread(target=self._live, args=(store,), daemon=True, name="signs of life").start()

    def next(self) -> None:
        """Call, or wait for the call. Raises RuntimeError if rank 0 has given no sign of life for too long."""
        self._number += 1
        key = f"muster/call/{self._number}"
        if self._first:
            self._store.set(key, "")
            return
        alive: bytes | str = ""
        since = time.monotonic()
        while not self._store.check([key]):  # `wait` would log every second that it waits
            time.sleep(_POLL_SECONDS)
            sign = self._store.get(_ALIVE) if self._store.check([_ALIVE]) else ""
            if sign != alive:
                alive, since = sign, time.monotonic()
            elif time.monotonic() - since > self.limit:
                raise RuntimeError("rank 0 gives no sign of life")

    def close(self) -> None:
        self._closing.set()

    def _live(self, store: Store) -> None:
        number = 0
        while not self._closing.wait(_SIGN_SECONDS):
            number += 1
            with suppress(RuntimeError):  # the store ended with its process: nobody is left to be told
                store.set(_ALIVE, str(number))


def join_ranks(device: str, seconds: float, grouped: bool = False) -> Ranks:
    """The ranks that torch's launcher started this process as one of (RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT of
    the environment), this process alone where it did not. `grouped`: as a group of torch.distributed even alone."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1 and not grouped:
        return OneRank()
    return DistributedRanks(device, seconds)


def rank_device(device: str) -> str:
    """The device of this rank: of several GPUs of a machine the one that its local number names."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if device == "cuda" else device


# Something that every rank has, driven by rank 0: what it does, all do, and all agree on whether it worked.


log = logging.getLogger("muster.trainer")
_END = "end"


class Everywhere(ABC):
    """Rank 0 calls the methods, the others are in `follow` meanwhile.

    A MusterError or OSError on any rank becomes a MusterError on rank 0; the group goes on. Anything else ends the
    process in which it happens, and with it, as a RanksLostError, the others.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks

    def end(self, code: int) -> None:
        """Let the other ranks, if they are still there, end with this exit code."""
        with suppress(RanksLostError):
            self.ranks.command((_END, (code,)))

    def follow(self) -> int:
        """Do what rank 0 says until it ends; returns the exit code. For every other rank."""
        while True:
            name, arguments = self.ranks.command()
            if name == _END:
                return int(arguments[0])
            try:
                self._together(name, arguments)
            except RanksLostError:
                raise
            except MusterError as error:
                log.debug("rank 0 decides about: %s", error)

    def _everywhere(self, name: str, *arguments: Any) -> Any:
        self.ranks.command((name, arguments))
        return self._together(name, arguments)

    def _together(self, name: str, arguments: tuple[Any, ...]) -> Any:
        result, failure = None, None
        try:
            result = self._do(name, arguments)
        except RanksLostError:
            raise
        except MusterError as error:
            failure = error
        except OSError as error:
            failure = MusterError(
                f"cannot use {error.filename}: {error.strerror}", "look at the disk and its permissions"
            )
        if self.ranks.sum(torch.tensor(float(failure is not None))).item():
            raise failure or MusterError(f"{name} failed on another rank", "its log says why")
        return result

    @abstractmethod
    def _do(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """This rank's part of a command."""


# Several ranks on this machine: started together by torch's elastic launcher, ended together, started again together.
#
# Under torchrun, which several machines need, each process is a rank already and nothing here is used. Whoever reaches
# torchrun's ports can run code in every rank: between such machines there must be a network of their own.


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
