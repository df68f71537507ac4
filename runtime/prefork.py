"""Several processes of one service behind one port: an interpreter has one lock, a machine several cores.

The parent does once what takes long or asks for a password (imports, keys), and forks; it serves nothing itself. A
process listens as soon as it is built, on a socket of its own (SO_REUSEPORT), and the kernel deals connections to those
that listen: none goes to one that starts or has died. One that dies is started again; all end with the parent, however
it ends.
"""

import gc
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from protocol.lifetime import die_with_parent
from runtime.process import Daemon, serve

log = logging.getLogger("muster.prefork")
TICK = 0.1
SAY_SECONDS = 10.0
_ASKS = (signal.SIGINT, signal.SIGTERM)
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
"""Seconds before a process that died is started again: twice as long after every death, from the beginning after it
lived for the longest of them."""


class Forked:
    """A process as its parent knows it; times are seconds of one clock."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pid: int | None = None
        self.is_ready = False
        self.due = 0.0
        """When it may be started again."""
        self._pause, self._since, self._said, self._pipe = FIRST_PAUSE, 0.0, 0.0, -1

    def started(self, pid: int, pipe: int, now: float) -> None:
        """It writes a byte into `pipe` once it is built."""
        self.pid, self._pipe, self._since, self._said, self.is_ready = pid, pipe, now, now, False

    def look(self) -> bool:
        """Whether it became ready since the last look."""
        if self.pid is None or self.is_ready:
            return False
        with suppress(BlockingIOError):
            self.is_ready = bool(os.read(self._pipe, 1))
        return self.is_ready

    def overdue(self, now: float) -> float | None:
        """Since when it is being built, every SAY_SECONDS; None otherwise."""
        if self.pid is None or self.is_ready or now - self._said < SAY_SECONDS:
            return None
        self._said = now
        return now - self._since

    def ended(self) -> int | None:
        """The exit code (negative: the signal) of one that ran and has ended, once; None of all others."""
        if self.pid is None:
            return None
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return None
        os.close(self._pipe)
        self.pid, self.is_ready = None, False
        return os.waitstatus_to_exitcode(status)

    def wait_longer(self, now: float) -> float:
        """It ended: how long until it is started again."""
        if now - self._since > LONGEST_PAUSE:
            self._pause = FIRST_PAUSE
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        self.due = now + pause
        return pause


class Prefork:
    """The parent of `count` processes; number n, from 0, runs what `make(n)` builds.

    The first is built before there are others: what a user can mend is said once, and ends everything. `port` is what
    holds it for them.
    """

    def __init__(self, count: int, make: Callable[[int], Daemon], port: socket.socket) -> None:
        self._make, self._port = make, port
        self._processes = [Forked(f"process {number + 1} of {count}") for number in range(count)]
        self._is_up = False
        self._stopping = False

    def run(self) -> int:
        """Until `stop`; or until the first cannot be built, then with its exit code."""
        gc.collect()
        gc.freeze()  # else the first collection in each process would copy all that they share
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # whoever started us may ignore it: then nobody's end is told
        while not self._stopping:
            code = self._look(time.monotonic())
            if code is not None:
                return code
            time.sleep(TICK)
        return self._end()

    def stop(self) -> None:
        self._stopping = True

    def _look(self, now: float) -> int | None:
        """Start what is due; the exit code if there is no point in going on."""
        for number, one in enumerate(self._processes if self._is_up else self._processes[:1]):
            if one.look():
                log.info("%s serves", one.name)
                self._is_up = True
            code = one.ended()
            if code is not None and not self._is_up:
                if code <= 0:  # all others have said why
                    log.error("%s ended with %d before it served", one.name, code)
                return code if code > 0 else 1
            if code is not None:
                log.warning("%s ended with %d; again in %g s", one.name, code, one.wait_longer(now))
            if one.pid is None and now >= one.due:
                self._start(number, now)
            if (waited := one.overdue(now)) is not None:
                log.info("waiting for %s since %.0f s", one.name, waited)
        return None

    def _start(self, number: int, now: float) -> None:
        parent, one = os.getpid(), self._processes[number]
        try:
            pid, pipe = _forked()
        except OSError as error:  # no memory, no room for processes: those that serve must not end of that
            if not self._is_up:
                raise
            log.warning("%s cannot be started: %s; again in %g s", one.name, error.strerror, one.wait_longer(now))
            return
        if pid == 0:
            die_with_parent(parent)
            self._become(number, pipe)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKS)
        os.set_blocking(pipe, False)
        one.started(pid, pipe, now)

    def _become(self, number: int, writer: int) -> NoReturn:
        """In the new process. What `make` raises goes up to whoever called the parent, and ends this process."""
        for one in _ASKS:
            signal.signal(one, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKS)
        daemon = self._make(number)
        os.write(writer, b"r")
        os.close(writer)
        serve(daemon)

    def _end(self) -> int:
        """`serve` bounds how long, here and there."""
        alive = [one.pid for one in self._processes if one.pid is not None]
        for pid in alive:
            os.kill(pid, signal.SIGTERM)
        for pid in alive:
            os.waitpid(pid, 0)
        return 0


def _forked() -> tuple[int, int]:
    """What `os.fork` returns, and an end of a pipe from the new process to the old. Signals that ask to end wait, in
    both: in the new one our handlers would stop nothing."""
    reader, writer = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, _ASKS)
    try:
        pid = os.fork()
    except OSError:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKS)
        os.close(reader)
        os.close(writer)
        raise
    mine, other = (reader, writer) if pid else (writer, reader)
    os.close(other)
    return pid, mine
