"""Frames between a process that wants a rollout file read and its sandboxed reader: lengths first, no pickles."""

import os
import select
import struct
import time
from collections.abc import Iterator, Sequence

from protocol.rollouts.schema import MalformedFile

REQUEST = struct.Struct(">IQ")  # bytes of the limits' JSON, bytes of the file
ANSWER = struct.Struct(">iQ")  # wait status of the child, bytes of the answer
OK, REFUSED = 0, 1
_LENGTH = struct.Struct(">I")


def pack_body(header: bytes, rows: Sequence[bytes]) -> bytes:
    """Header and rows, each after its u32 length."""
    return b"".join(_LENGTH.pack(len(part)) + part for part in (header, *rows))


def unpack_body(body: bytes) -> Iterator[bytes]:
    """Inverse of `pack_body`, total: the child that wrote it may have been taken over by the file."""
    at = 0
    while at < len(body):
        if at + 4 > len(body):
            raise MalformedFile("the reader's answer is cut short")
        (size,) = _LENGTH.unpack_from(body, at)
        at += 4 + size
        if at > len(body):
            raise MalformedFile("the reader's answer is cut short")
        yield body[at - size : at]


def read_exactly(fd: int, size: int, deadline: float | None = None) -> bytes | None:
    """`size` bytes, or None at the end of the stream. Raises TimeoutError past `deadline` (monotonic seconds)."""
    chunks, missing = [], size
    while missing:
        if deadline is not None:
            _await(fd, select.POLLIN, deadline)
        chunk = os.read(fd, min(missing, 1 << 20))
        if not chunk:
            return None
        chunks.append(chunk)
        missing -= len(chunk)
    return b"".join(chunks)


def write_all(fd: int, data: bytes, deadline: float | None = None) -> None:
    """Write everything. Raises TimeoutError past `deadline`, OSError when the other side is gone."""
    view = memoryview(data)
    while view:
        if deadline is not None:
            _await(fd, select.POLLOUT, deadline)
            view = view[os.write(fd, view[:4096]) :]
        else:
            view = view[os.write(fd, view) :]


def _await(fd: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(fd, event)
    left = deadline - time.monotonic()
    if left <= 0 or not poll.poll(1000 * left):
        raise TimeoutError
