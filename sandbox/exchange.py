"""One question and its answer over the pipes of another process, which may hang, end, or talk without end."""

import os
import select
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

ROOT = str(Path(__file__).resolve().parents[1])  # where muster's packages lie


def start(module: str, *arguments: str, env: Mapping[str, str], seconds: float) -> Popen[bytes]:
    """Start `python -m MODULE …` of muster's, which writes a line once it is ready. Raise what `ask` raises."""
    argv, env = [sys.executable, "-P", "-m", module, *arguments], {"PYTHONPATH": ROOT, **env}
    process = Popen(argv, env=env, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True)
    try:
        ask(process, b"", seconds, 64)
    except BaseException:
        end(process)
        raise
    return process


def ask(process: Popen[bytes], question: bytes, seconds: float, most: int) -> bytes:
    """Return the line that answers a question. Raise TimeoutError, OSError for an end or more than `most` bytes."""
    assert process.stdin is not None
    assert process.stdout is not None
    sink, source = process.stdin.fileno(), process.stdout.fileno()
    os.set_blocking(sink, False)
    left, answer, end = memoryview(question), b"", time.monotonic() + seconds
    while (left_seconds := end - time.monotonic()) > 0:
        waiting = select.poll()  # not `select`, which refuses numbers of files from 1,024 on
        waiting.register(source, select.POLLIN)
        if left:
            waiting.register(sink, select.POLLOUT)
        ready = {number for number, _ in waiting.poll(left_seconds * 1000)}
        if left and sink in ready:
            try:
                left = left[os.write(sink, left[: 1 << 16]) :]
            except BrokenPipeError:
                raise OSError("it ended") from None
        if source in ready:
            part = os.read(source, 1 << 20)
            answer += part
            if not part or len(answer) > most:
                raise OSError("it ended" if not part else "its answer does not end")
            if answer.endswith(b"\n"):
                return answer
    raise TimeoutError(f"it gave no answer for {seconds:.0f} s")


def end(process: Popen[bytes]) -> None:
    """End a process at once, and close its pipes."""
    process.kill()
    close_pipes(process)
    process.wait(10.0)


def close_pipes(process: Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()
