"""Frames between a process that wants a rollout file read and its sandboxed reader: lengths first, no pickles."""

import struct
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
