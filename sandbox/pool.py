"""Processes that run sandboxed programs, so many at a time, by JSON lines; one that fails is replaced."""

import functools
import json
import logging
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from protocol.encoding import parse_json
from protocol.errors import ScoringUnavailable
from protocol.rollout_file.confine import refuse_system_calls
from sandbox.exchange import ROOT, ask, end, start
from sandbox.image import is_made, load_image, run_image
from sandbox.wasi import Ending, SandboxLimits, SandboxOutcome, SandboxProgram, code

_MAKE_SECONDS, _START_SECONDS = 1800.0, 120.0
_log = logging.getLogger(__name__)


def packed(outcome: SandboxOutcome) -> bytes:
    streams = {"stdout": outcome.stdout.decode("latin-1"), "stderr": outcome.stderr.decode("latin-1")}
    return json.dumps(vars(outcome) | streams).encode() + b"\n"


def unpacked(line: bytes, limits: SandboxLimits) -> SandboxOutcome:
    """Return a line's outcome. Raise ScoringUnavailable for what cannot be one: a program may have broken out."""
    try:
        fields: Any = parse_json(line)
        stdout, stderr = (fields[name].encode("latin-1") for name in ("stdout", "stderr"))
        exit_code, fuel, memory = (int(fields[name]) for name in ("code", "fuel", "memory"))
        outcome = SandboxOutcome(Ending(fields["ending"]), exit_code, stdout, stderr, fuel, memory)
        if len(stdout) + len(stderr) > limits.output or not 0 <= fuel <= limits.fuel:
            raise ValueError("it exceeds the limits")
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise ScoringUnavailable(f"the sandbox process answers wrongly: {error!r}", "report this") from None
    return outcome


class _ProcessEnded(ScoringUnavailable):
    """Something ended the process: worth another try."""


@contextmanager
def _machines_fault(seconds: float) -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        what = f"the sandbox was not done within {seconds:.0f} s"
        raise ScoringUnavailable(what, "use a faster or idler machine") from None
    except OSError as error:
        raise _ProcessEnded(f"the sandbox process ended: {error}", "see the log") from None


class SandboxPool:
    """`size` programs at once from an image, for any number of threads; the first makes the image, for minutes."""

    def __init__(self, image: str, size: int) -> None:
        self.image, self._free = image, threading.Semaphore(size)
        self._idle = list[subprocess.Popen[bytes]]()  # its methods are atomic

    def run(self, program: SandboxProgram, limits: SandboxLimits) -> SandboxOutcome:
        """Return the outcome, the same on every machine. Raise ScoringUnavailable where this machine has none."""
        if not self._free.acquire(timeout=_MAKE_SECONDS):
            raise ScoringUnavailable(f"no sandbox became free within {_MAKE_SECONDS:.0f} s", "try again later")
        try:
            try:
                return self._once(self._waiting() or self._started(), program, limits)
            except _ProcessEnded as error:
                _log.warning("a sandbox process ended and is replaced: %s", error.what)
                return self._once(self._started(), program, limits)
        finally:
            self._free.release()

    def start(self, count: int = 1) -> None:
        """Start processes that wait for programs."""
        self._idle.extend([self._started() for _ in range(count)])

    def close(self) -> None:
        while self._idle:
            end(self._idle.pop())

    def _started(self) -> subprocess.Popen[bytes]:
        make(self.image)
        with _machines_fault(_START_SECONDS):
            return start("sandbox.pool", self.image, env=_environment(), seconds=_START_SECONDS)

    def _waiting(self) -> subprocess.Popen[bytes] | None:
        """Return an idle process that has not ended, if there is one."""
        with suppress(IndexError):
            while (process := self._idle.pop()).poll() is not None:
                end(process)
            return process
        return None

    def _once(self, process: subprocess.Popen[bytes], program: SandboxProgram, limits: SandboxLimits) -> SandboxOutcome:
        given = vars(program) | {"stdin": program.stdin.decode("latin-1")}
        request = json.dumps({"program": given, "limits": vars(limits)}).encode() + b"\n"
        try:
            with _machines_fault(limits.seconds):
                answer = ask(process, request, limits.seconds, 6 * limits.output + 4096)  # six for a byte in JSON
            outcome = unpacked(answer, limits)
        except BaseException:
            end(process)
            raise
        self._idle.append(process)
        return outcome


def make(image: str) -> None:
    """Make an image that is not in the cache, in a process of its own. Raise ScoringUnavailable."""
    if is_made(image):
        return
    _log.info("making the sandbox image `%s`: minutes, once", image)
    argv = [sys.executable, "-P", "-m", "sandbox.image", image]
    env = _environment() | {"PYTHONPATH": ROOT}
    try:
        done = subprocess.run(argv, env=env, capture_output=True, timeout=_MAKE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ScoringUnavailable(f"image `{image}` was not made in {_MAKE_SECONDS:.0f} s", "try again") from None
    if done.returncode != 0:
        reason = (done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]
        raise ScoringUnavailable(f"image `{image}` cannot be made: {reason[:400]}", "see docs/design/sandbox.md")


def _environment() -> dict[str, str]:
    """Return where Python and the cache are, and none of our secrets."""
    kept = ("PATH", "HOME", "XDG_CACHE_HOME", "LD_LIBRARY_PATH")
    return {name: os.environ[name] for name in kept if name in os.environ}


@functools.cache
def _pool(image: str, _: int) -> SandboxPool:
    return SandboxPool(image, os.cpu_count() or 1)


def shared_pool(image: str) -> SandboxPool:
    """Return this process's pool for an image, as many programs at once as there are processors."""
    return _pool(image, os.getpid())


# Should a program break out of WebAssembly, it can still do nothing but compute, read what it is sent, and answer.

_FIRST = SandboxLimits(fuel=1_000_000_000, memory=512 << 20)


def main(name: str) -> None:
    image = load_image(name)
    if image is None:
        raise ScoringUnavailable(f"image `{name}` has not been made", "python -m sandbox.image")
    module, answers = code(), sys.stdout.buffer
    run_image(module, image, SandboxProgram("print(1)"), _FIRST)  # what is set up once must be, before we are shut in
    # From here on nothing can be opened, started or written; when memory runs short, this process is ended first.
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
    for what in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(what, (0, 0))
    refuse_system_calls()
    answers.write(b"ready\n")
    answers.flush()
    for line in sys.stdin.buffer:  # from our own process: trusted
        request = json.loads(line)
        given = request["program"] | {"stdin": request["program"]["stdin"].encode("latin-1")}
        answers.write(packed(run_image(module, image, SandboxProgram(**given), SandboxLimits(**request["limits"]))))
        answers.flush()
    os._exit(0)  # what tidies up would need calls that are refused now


if __name__ == "__main__":
    main(sys.argv[1])
