"""The processes (ranks) that train one policy together: sums over them, values of the first one for all.

Every rank calls the same methods in the same order; the group's time limit bounds each of them. Rank 0 may be busy
elsewhere for hours between two commands: the others wait for its next one as long as it gives signs of life.
"""

import os
import pickle
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Protocol, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Store  # type: ignore[attr-defined]

from protocol.errors import first_line
from trainer.exits import RanksLostError
from trainer.meeting import meet

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
