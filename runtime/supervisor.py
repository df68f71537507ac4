"""Runs the network's processes: starts, watches, restarts what dies, stops everything in reverse order. Unlike
supervisord's (Supervisor/supervisor#199), its children end with it."""

import logging
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from protocol.errors import MusterError, printable
from protocol.files import die_with_parent

log = logging.getLogger("muster.supervisor")
_LONGEST_PAUSE = 10.0
_HEALTHY_AFTER = 30.0


@dataclass
class Child:
    """One supervised process. A child that fails `max_restarts` times in a row ends the run (None: it is tried for
    ever); `longest_pause` bounds the growing pauses between its restarts, in seconds. After one of the `final_exits` it
    has finished its work. Children of a later `stage` need those of earlier ones and are stopped before them. `since`:
    Unix time of its last start or end; `exit_code` of its last end."""

    name: str
    argv: list[str]
    log_path: Path
    env: Mapping[str, str] = field(default_factory=dict)
    max_restarts: int | None = 5
    longest_pause: float = _LONGEST_PAUSE
    final_exits: frozenset[int] = frozenset({0})
    stage: int = 0
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    log_start: int = 0
    failures: int = 0
    restarts: int = 0
    since: float = 0.0
    exit_code: int | None = None
    restart_at: float | None = None
    finished: bool = False

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process and self.process.poll() is None else None

    def start(self) -> "subprocess.Popen[bytes]":
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as out:
            self.log_start = out.tell()
            self.process = subprocess.Popen(
                self.argv,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=dict(self.env) or None,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        self.started, self.restart_at, self.since = time.monotonic(), None, time.time()
        return self.process

    def terminate(self) -> None:
        if self.process is not None:
            self.process.terminate()

    def end(self, seconds: float) -> bool:
        """Whether the process ended within `seconds`; if not, it is killed."""
        if self.process is None:
            return True
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
            return False
        return True

    def said(self) -> str:
        """What it has printed since it was started last; the log may hold earlier starts too."""
        return self.log_path.read_bytes()[self.log_start :].decode(errors="replace")

    def tail(self, lines: int = 5) -> str:
        try:
            return "\n".join(self.log_path.read_text(errors="replace").strip().splitlines()[-lines:])
        except OSError:
            return ""


class Supervisor:
    """Owns the children of one network. `notice` receives a line for a person whenever something dies or returns."""

    def __init__(self, notice: Callable[[str], None] = log.warning) -> None:
        self.children: dict[str, Child] = {}
        self.notice = notice

    def start(self, child: Child) -> Child:
        self.children[child.name] = child
        child.start()
        return child

    def check(self) -> None:
        """Restart what died, after a growing pause; MusterError once a child keeps failing."""
        now = time.monotonic()
        for child in self.children.values():
            if child.finished or child.process is None:
                continue
            if child.restart_at is not None:
                if now >= child.restart_at:
                    child.start()
                    child.restarts += 1
                    self.notice(f"{child.name} restarted (pid {child.pid})")
                continue
            code = child.process.poll()
            if code is None:
                if now - child.started > _HEALTHY_AFTER:
                    child.failures = 0
                continue
            self._died(child, code, now)

    def _died(self, child: Child, code: int, now: float) -> None:
        child.exit_code, child.since = code, time.time()
        if code in child.final_exits:
            child.finished = True
            self.notice(f"{child.name} finished (exit {code})")
            return
        child.failures += 1
        if child.max_restarts is not None and child.failures > child.max_restarts:
            raise MusterError(
                f"{child.name} failed {child.failures} times in a row (exit {code}): {child.tail(3)}",
                f"see {child.log_path}",
            )
        pause = restart_pause(child.failures, child.longest_pause)
        child.restart_at = now + pause
        last = printable(child.tail(1), 200) if code > 0 else ""
        why = f": {last}" if last else ""
        self.notice(f"{child.name} died ({exit_text(code)}){why}; restart in {pause:.1f} s")

    def kill(self, name: str) -> None:
        """SIGKILL one child, as a power cut would; `check` restarts it."""
        process = self.children[name].process
        if process is not None:
            process.kill()

    def stop(self, grace: float = 15.0, only: Callable[[Child], bool] = lambda _: True) -> None:
        """SIGTERM stage by stage, the latest first; SIGKILL for what is left after `grace` seconds. `only`: which
        children."""
        chosen = [child for child in self.children.values() if only(child)]
        for child in chosen:
            child.finished = True
        for stage in sorted({child.stage for child in chosen}, reverse=True):
            alive = [child for child in chosen if child.stage == stage and child.pid is not None]
            for child in alive:
                child.terminate()
            end = time.monotonic() + grace
            for child in alive:
                if not child.end(max(0.0, end - time.monotonic())):
                    self.notice(f"{child.name} did not stop within {grace:.0f} s and was killed")


def restart_pause(failures: int, longest: float) -> float:
    """Seconds until the next start of what failed `failures` times in a row: half a second, doubled each time."""
    return min(0.5 * 2.0 ** min(failures - 1, 16), longest)


def exit_text(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
