"""The system interface that a sandboxed interpreter sees: three streams, a clock of its own, and nothing else.

Everything is ours: no call reaches the machine's kernel. Time begins at a fixed moment and moves only when it is asked
for; randomness is a fixed stream; there are no files, folders, sockets or processes. Every call counts.
"""

import hashlib
import struct
from typing import Any

import wasmtime

from environments.sandbox.program import SandboxLimits

_SUCCESS, _BAD_DESCRIPTOR, _INVALID, _NOT_FOUND, _NOT_SUPPORTED, _NO_SEEK = 0, 8, 28, 44, 52, 70
_EPOCH, _TICK = 946_684_800 * 10**9, 10**6
_MOST_VECTORS, _MOST_RANDOM = 1024, 65536
_CLOCK, _ABSOLUTE = 0, 1


class Ended(Exception):
    """The program asked to end, with this exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class TooManyCalls(Exception):
    """Of the system interface."""


class TooMuchOutput(Exception):
    """On standard output and errors together."""


class System:
    """One program's view. `memory` must be set before the first call."""

    memory: wasmtime.Memory

    def __init__(self, store: wasmtime.Store, stdin: bytes, limits: SandboxLimits) -> None:
        self._store, self._stdin, self._limits = store, memoryview(stdin), limits
        self._read = self._time = self._drawn = self.calls = 0
        self.arguments: tuple[str, ...] = ()
        self.environment: tuple[str, ...] = ()
        self.written = {1: bytearray(), 2: bytearray()}

    def call(self, name: str, *arguments: Any) -> int | None:
        """Answer one call of the interface: its error number."""
        self.calls += 1
        if self.calls > self._limits.calls:
            raise TooManyCalls
        function = getattr(self, f"_{name}", None)
        if function is not None:
            answer: int | None = function(*arguments)
            return answer
        return _NOT_FOUND if name.startswith("path_") else _NOT_SUPPORTED

    # ---- Memory; addresses come from the program, and wasmtime refuses what is outside

    def _get(self, at: int, size: int) -> bytes:
        at &= 0xFFFFFFFF
        return bytes(self.memory.read(self._store, at, at + size))

    def _put(self, at: int, data: bytes) -> None:
        at &= 0xFFFFFFFF
        if at + len(data) > self.memory.data_len(self._store):
            raise IndexError(at)
        self.memory.write(self._store, data, at)

    def _numbers(self, at: int, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}I", self._get(at, 4 * count))

    def _put_number(self, at: int, value: int) -> int:
        self._put(at, struct.pack("<I", value))
        return _SUCCESS

    def _put_strings(self, values: tuple[str, ...], pointers: int, at: int) -> int:
        for number, value in enumerate(values):
            data = value.encode() + b"\0"
            self._put_number(pointers + 4 * number, at)
            self._put(at, data)
            at += len(data)
        return _SUCCESS

    def _put_sizes(self, values: tuple[str, ...], count: int, size: int) -> int:
        self._put_number(count, len(values))
        return self._put_number(size, sum(len(value.encode()) + 1 for value in values))

    # ---- The calls that say something; all others are refused

    def _args_get(self, pointers: int, at: int) -> int:
        return self._put_strings(self.arguments, pointers, at)

    def _args_sizes_get(self, count: int, size: int) -> int:
        return self._put_sizes(self.arguments, count, size)

    def _environ_get(self, pointers: int, at: int) -> int:
        return self._put_strings(self.environment, pointers, at)

    def _environ_sizes_get(self, count: int, size: int) -> int:
        return self._put_sizes(self.environment, count, size)

    def _clock_res_get(self, _: int, at: int) -> int:
        self._put(at, struct.pack("<Q", _TICK))
        return _SUCCESS

    def _clock_time_get(self, _: int, __: int, at: int) -> int:
        self._time += _TICK
        self._put(at, struct.pack("<Q", (_EPOCH + self._time) & (1 << 64) - 1))
        return _SUCCESS

    def _random_get(self, at: int, size: int) -> int:
        if not 0 <= size <= _MOST_RANDOM:
            return _INVALID
        self._drawn += 1
        self._put(at, hashlib.shake_128(self._drawn.to_bytes(8, "little")).digest(size))
        return _SUCCESS

    def _poll_oneoff(self, subscriptions: int, events: int, count: int, told: int) -> int:
        """Sleeping takes no time; a stream is always ready."""
        if not 1 <= count <= 64:
            return _INVALID
        waits = []
        for number in range(count):
            user, kind, timeout, flags = struct.unpack("<QB15xQ8xH6x", self._get(subscriptions + 48 * number, 48))
            until_moment = timeout - _EPOCH - self._time if flags & _ABSOLUTE else timeout
            waits.append((max(0, until_moment) if kind == _CLOCK else 0, user, kind))
        timeout, user, kind = min(waits)
        self._time += timeout
        self._put(events, struct.pack("<QHB21x", user, 0, kind))
        return self._put_number(told, 1)

    def _fd_write(self, descriptor: int, vectors: int, count: int, told: int) -> int:
        if descriptor not in self.written:
            return _BAD_DESCRIPTOR
        if not 0 <= count <= _MOST_VECTORS:
            return _INVALID
        sizes = self._numbers(vectors, 2 * count)
        if len(self.written[1]) + len(self.written[2]) + sum(sizes[1::2]) > self._limits.output:
            raise TooMuchOutput
        for at, size in zip(sizes[::2], sizes[1::2], strict=True):
            self.written[descriptor] += self._get(at, size)
        return self._put_number(told, sum(sizes[1::2]))

    def _fd_read(self, descriptor: int, vectors: int, count: int, told: int) -> int:
        if descriptor != 0:
            return _BAD_DESCRIPTOR
        if not 0 <= count <= _MOST_VECTORS:
            return _INVALID
        sizes = self._numbers(vectors, 2 * count)
        before = self._read
        for at, size in zip(sizes[::2], sizes[1::2], strict=True):
            part = bytes(self._stdin[self._read : self._read + size])
            self._put(at, part)
            self._read += len(part)
        return self._put_number(told, self._read - before)

    def _fd_fdstat_get(self, descriptor: int, at: int) -> int:
        if not 0 <= descriptor <= 2:
            return _BAD_DESCRIPTOR
        self._put(at, struct.pack("<BxH4xQQ", 0, 0, 0xFFFFFFFF, 0xFFFFFFFF))
        return _SUCCESS

    def _fd_filestat_get(self, descriptor: int, at: int) -> int:
        if not 0 <= descriptor <= 2:
            return _BAD_DESCRIPTOR
        self._put(at, bytes(64))
        return _SUCCESS

    def _fd_seek(self, *_: int) -> int:
        return _NO_SEEK

    _fd_tell = _fd_seek

    def _fd_close(self, descriptor: int) -> int:
        return _SUCCESS if 0 <= descriptor <= 2 else _BAD_DESCRIPTOR

    def _fd_prestat_get(self, *_: int) -> int:
        return _BAD_DESCRIPTOR

    def _sched_yield(self) -> int:
        return _SUCCESS

    def _proc_exit(self, code: int) -> None:
        raise Ended(code)
