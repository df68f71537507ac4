"""What passes between a pool and its processes: a document with its length before it, then bytes."""

import functools
import json
import logging
import os
import resource
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, TypeVar

from protocol.encoding import parse_json
from protocol.errors import ScoringUnavailable
from protocol.rollout_file.confine import refuse_system_calls
from sandbox.image import is_made, load_image, run_image
from sandbox.wasi import Ending, SandboxLimits, SandboxOutcome, SandboxProgram, code

READY = b"ready\n"
_LENGTH = 10


def pack_request(program: SandboxProgram, limits: SandboxLimits) -> bytes:
    """Return a program and its limits."""
    about = {
        "limits": asdict(limits),
        "source": program.source,
        "function": program.function,
        "arguments": program.arguments,
        "stdin": len(program.stdin),
    }
    return _packed(about, program.stdin)


def read_request(source: IO[bytes]) -> tuple[SandboxProgram, SandboxLimits] | None:
    """Return what `pack_request` sent; None at the end. Trusted: it comes from our own process."""
    length = source.read(_LENGTH)
    if len(length) < _LENGTH:
        return None
    about = json.loads(source.read(int(length)))
    stdin = source.read(about["stdin"])
    return SandboxProgram(about["source"], stdin, about["function"], about["arguments"]), SandboxLimits(
        **about["limits"]
    )


def pack_outcome(outcome: SandboxOutcome) -> bytes:
    """Return the answer to a request."""
    about = {
        "ending": outcome.ending,
        "code": outcome.code,
        "fuel": outcome.fuel,
        "memory": outcome.memory,
        "sizes": [len(outcome.stdout), len(outcome.stderr)],
    }
    return _packed(about, outcome.stdout + outcome.stderr)


def unpack_outcome(data: bytes, limits: SandboxLimits) -> SandboxOutcome | None:
    """Return what a process has answered so far; None while it is not all there. A process whose program has broken out
    may answer anything: raises ValueError for what cannot be an outcome under these limits."""
    if len(data) < _LENGTH:
        return None
    start = _LENGTH + int(data[:_LENGTH])
    if not _LENGTH < start <= 4096:
        raise ValueError("the answer's head is too long")
    if len(data) < start:
        return None
    about: Any = parse_json(data[_LENGTH:start])
    try:
        out, err = map(int, about["sizes"])
        ending, code, fuel, memory = Ending(about["ending"]), *map(int, (about["code"], about["fuel"], about["memory"]))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"the answer lacks something: {error!r}") from None
    if min(out, err) < 0 or out + err > limits.output or not 0 <= fuel <= limits.fuel or len(data) > start + out + err:
        raise ValueError("the answer exceeds the limits")
    if len(data) < start + out + err:
        return None
    stdout, stderr = data[start : start + out], data[start + out :]
    return SandboxOutcome(ending, code, stdout, stderr, fuel, memory)


def _packed(about: dict[str, Any], rest: bytes) -> bytes:
    document = json.dumps(about).encode()
    return b"%10d" % len(document) + document + rest


# Processes that wait for programs, so many at a time; one that fails is replaced


_MAKE_SECONDS, _START_SECONDS, _STOP_SECONDS = 1800.0, 120.0, 10.0
_ROOT = Path(__file__).resolve().parents[1]
_log = logging.getLogger(__name__)
T = TypeVar("T")


class SandboxPool:
    """`size` programs at once from an image, for any number of threads; the first makes the image, for minutes."""

    def __init__(self, image: str, size: int) -> None:
        self.image, self._free = image, threading.Semaphore(size)
        self._lock, self._idle = threading.Lock(), list[SandboxProcess]()

    def run(self, program: SandboxProgram, limits: SandboxLimits) -> SandboxOutcome:
        """Return the outcome is the same on every machine. Raise ScoringUnavailable where this machine has none: no
        process starts, two in a row ended, or one was not done in `limits.seconds`."""
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
    """One process (sandbox/pool.py). Raises ScoringUnavailable if it does not start."""

    def __init__(self, image: str) -> None:
        make(image)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "sandbox.pool", image],
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
        """Return one program; afterwards it is ready for another, unless this raised."""
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
    """Make an image that is not in the cache, in a process of its own. Raise ScoringUnavailable."""
    if is_made(image):
        return
    _log.info("making the sandbox image `%s`: minutes, once", image)
    argv = [sys.executable, "-P", "-m", "sandbox.image", image]
    try:
        done = subprocess.run(argv, env=_environment(), capture_output=True, timeout=_MAKE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ScoringUnavailable(f"image `{image}` was not made in {_MAKE_SECONDS:.0f} s", "try again") from None
    if done.returncode != 0:
        told = (done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]
        raise ScoringUnavailable(f"image `{image}` cannot be made: {told[:400]}", "see docs/design/sandbox.md")


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


# The worker, `python -m sandbox.pool IMAGE`. Should a program break out of WebAssembly, this process can still do
# nothing but compute, read what it is sent, and answer.


_FIRST = SandboxLimits(fuel=1_000_000_000, memory=512 << 20)


def main(name: str) -> None:
    """Serve until the other end is closed."""
    image = load_image(name)
    if image is None:
        raise ScoringUnavailable(f"image `{name}` has not been made", "python -m sandbox.image")
    module = code()
    source, answers = sys.stdin.buffer, sys.stdout.buffer
    run_image(module, image, SandboxProgram("print(1)"), _FIRST)  # what is set up once must be, before we are shut in
    shut_in()
    answers.write(READY)
    answers.flush()
    while (asked := read_request(source)) is not None:
        answers.write(pack_outcome(run_image(module, image, *asked)))
        answers.flush()
    os._exit(0)  # what tidies up would need calls that are refused now


def shut_in() -> None:
    """Nothing new can be opened, started or written from here on; when memory runs short, this process is the first to
    be ended."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
    for what in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(what, (0, 0))
    refuse_system_calls()


if __name__ == "__main__":
    main(sys.argv[1])
