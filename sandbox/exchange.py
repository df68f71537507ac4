"""One question and its answer over the pipes of another process, which may hang, end, or talk without end."""

import os
import select
import time
from collections.abc import Callable
from typing import IO, TypeVar

T = TypeVar("T")


def exchange(
    sink: IO[bytes], source: IO[bytes], sent: bytes, read: Callable[[bytes], T | None], seconds: float, most: int
) -> T:
    """Write `sent` and return what `read` makes of the answer so far, once that is not None. Raise TimeoutError after
    `seconds`, OSError where the process ends or its answer exceeds `most` bytes, and what `read` raises."""
    os.set_blocking(sink.fileno(), False)
    left, answer, end = memoryview(sent), b"", time.monotonic() + seconds
    while (left_seconds := end - time.monotonic()) > 0:
        waiting = select.poll()  # not `select`, which refuses numbers of files from 1,024 on
        waiting.register(source, select.POLLIN)
        if left:
            waiting.register(sink, select.POLLOUT)
        ready = {number for number, _ in waiting.poll(left_seconds * 1000)}
        if left and sink.fileno() in ready:
            try:
                left = left[os.write(sink.fileno(), left[: 1 << 16]) :]
            except BrokenPipeError:
                raise OSError("it ended") from None
        if source.fileno() in ready:
            part = os.read(source.fileno(), 1 << 20)
            answer += part
            if not part or len(answer) > most:
                raise OSError("it ended" if not part else "its answer does not end")
            if (value := read(answer)) is not None:
                return value
    raise TimeoutError(f"it gave no answer for {seconds:.0f} s")


def whole_line(answer: bytes) -> bytes | None:
    """Return an answer that is a line; None while its end is not there."""
    return answer if answer.endswith(b"\n") else None
