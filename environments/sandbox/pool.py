"""Processes that are ready to run programs, so many at a time; one that fails is replaced."""

import functools
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, TypeVar

from environments.errors import ScoringUnavailable
from environments.sandbox.frames import READY, pack_request, unpack_outcome
from environments.sandbox.image import is_made
from environments.sandbox.program import SandboxLimits, SandboxOutcome, SandboxProgram

_MAKE_SECONDS, _START_SECONDS, _STOP_SECONDS = 1800.0, 120.0, 10.0
_ROOT = Path(__file__).resolve().parents[2]
_log = logging.getLogger(__name__)
T = TypeVar("T")


class SandboxPool:
    """`size` programs at once from an image, for any number of threads; the first makes the image, for minutes."""

    def __init__(self, image: str, size: int) -> None:
        self.image, self._free = image, threading.Semaphore(size)
        self._lock, self._idle = threading.Lock(), list[SandboxProcess]()

    def run(self, program: SandboxProgram, limits: SandboxLimits) -> SandboxOutcome:
        """The outcome is the same on every machine. Raises ScoringUnavailable where this machine has none: no process
        starts, two in a row ended, or one was not done in `limits.seconds`."""
        if not self._free.acquire(timeout=_MAKE_SECONDS):
            raise ScoringUnavailable(f"no sandbox became free within {_MAKE_SECONDS:.0f} s", "try again later")
        try:
            try:
                return self._once(program, limits)
            except _ProcessEnded as error:
                _log.warning("a sandbox process ended and is replaced: %s", error.what)
                return self._once(program, limits)
        finally:
            self._free.release()

    def start(self, count: int = 1) -> None:
        """Have `count` processes wait for programs."""
        started = [SandboxProcess(self.image) for _ in range(count)]
        with self._lock:
            self._idle += started

    def close(self) -> None:
        """End the processes that are idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            process.close()

    def _once(self, program: SandboxProgram, limits: SandboxLimits) -> SandboxOutcome:
        with self._lock:
            process = self._idle.pop() if self._idle else None
        process = process or SandboxProcess(self.image)
        try:
            outcome = process.run(program, limits)
        except BaseException:
            process.close()
            raise
        with self._lock:
            self._idle.append(process)
        return outcome


class _ProcessEnded(ScoringUnavailable):
    """Something ended the process: worth another try."""


class SandboxProcess:
    """One process (environments/sandbox/worker.py). Raises ScoringUnavailable if it does not start."""

    def __init__(self, image: str) -> None:
        make(image)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "environments.sandbox.worker", image],
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in: IO[bytes] = self._process.stdin
        self._out: IO[bytes] = self._process.stdout
        os.set_blocking(self._in.fileno(), False)
        try:
            self._exchange(b"", lambda data: True if data == READY else None, _START_SECONDS)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def run(self, program: SandboxProgram, limits: SandboxLimits) -> SandboxOutcome:
        """One program; afterwards it is ready for another, unless this raised."""
        asked = pack_request(program, limits)
        return self._exchange(asked, lambda data: unpack_outcome(data, limits), limits.seconds)

    def close(self) -> None:
        """End it at once."""
        self._process.kill()
        for pipe in (self._in, self._out):
            with suppress(OSError):
                pipe.close()
        self._process.wait(_STOP_SECONDS)

    def _exchange(self, sent: bytes, understand: Callable[[bytes], T | None], seconds: float) -> T:
        end = time.monotonic() + seconds
        left, answer = memoryview(sent), b""
        while (left_seconds := end - time.monotonic()) > 0:
            waiting = select.poll()  # not `select`, which refuses numbers of files from 1,024 on
            waiting.register(self._out, select.POLLIN)
            if left:
                waiting.register(self._in, select.POLLOUT)
            ready = {number for number, _ in waiting.poll(left_seconds * 1000)}
            try:
                if self._in.fileno() in ready:
                    left = left[os.write(self._in.fileno(), left[: 1 << 16]) :]
                if self._out.fileno() in ready:
                    part = os.read(self._out.fileno(), 1 << 20)
                    if not part:
                        raise BrokenPipeError
                    answer += part
                    if (understood := understand(answer)) is not None:
                        return understood
            except OSError:
                raise _ProcessEnded(f"the sandbox process ended ({self._process.poll()})", "see the log") from None
            except ValueError as error:
                raise ScoringUnavailable(f"the sandbox process answers wrongly: {error}", "report this") from None
        raise ScoringUnavailable(f"the sandbox was not done within {seconds:.0f} s", "use a faster or idler machine")


def make(image: str) -> None:
    """Make an image that is not in the cache, in a process of its own. Raises ScoringUnavailable."""
    if is_made(image):
        return
    _log.info("making the sandbox image `%s`: minutes, once", image)
    argv = [sys.executable, "-P", "-m", "environments.sandbox.warm", image]
    try:
        done = subprocess.run(argv, env=_environment(), capture_output=True, timeout=_MAKE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ScoringUnavailable(f"image `{image}` was not made in {_MAKE_SECONDS:.0f} s", "try again") from None
    if done.returncode != 0:
        told = (done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]
        raise ScoringUnavailable(f"image `{image}` cannot be made: {told[:400]}", "see docs/sandbox.md")


def _environment() -> Mapping[str, str]:
    """No secrets of ours: where Python and the cache are."""
    kept = {
        name: os.environ[name] for name in ("PATH", "HOME", "XDG_CACHE_HOME", "LD_LIBRARY_PATH") if name in os.environ
    }
    return kept | {"PYTHONPATH": str(_ROOT)}


@functools.cache
def _pool(image: str, _: int) -> SandboxPool:
    return SandboxPool(image, os.cpu_count() or 1)


def shared_pool(image: str) -> SandboxPool:
    """This process's pool for an image, as many programs at once as there are processors."""
    return _pool(image, os.getpid())
