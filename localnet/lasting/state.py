"""What a lasting network's supervisor says of itself and its processes, and whether it still lives."""

from collections.abc import Iterable
from enum import StrEnum

import psutil

from localnet.supervisor import Child
from protocol.documents import Document


class NetworkPhase(StrEnum):
    STARTING = "starting"
    UP = "up"
    STOPPING = "stopping"
    DOWN = "down"
    FAILED = "failed"


class ProcessState(StrEnum):
    RUNNING = "running"
    RESTARTING = "restarting"
    FINISHED = "finished"
    STOPPED = "stopped"
    GONE = "gone"


class ProcessEntry(Document):
    """One process. `since`: Unix time of its last start or end; `restart_at`: of the next start of one that died;
    `exit_code` of its last end, negative for a signal."""

    name: str
    state: ProcessState
    pid: int | None
    since: float
    restarts: int
    exit_code: int | None
    restart_at: float | None
    log: str

    @property
    def role(self) -> str:
        return self.name.partition("-")[0]


class NetworkState(Document):
    """`pid` and `created` (its start, Unix time) tell the supervisor from a later process with its number; `doing` is
    what it does now, `problem` why it failed."""

    pid: int
    created: float
    phase: NetworkPhase
    doing: str
    since: float
    problem: str = ""
    processes: tuple[ProcessEntry, ...] = ()

    def lives(self) -> bool:
        """Whether the supervisor that wrote this runs."""
        try:
            process = psutil.Process(self.pid)
            return process.create_time() == self.created and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def as_found(self) -> "NetworkState":
        """What a reader can say: the processes of a supervisor that was killed are gone with it."""
        if self.lives() or self.phase in (NetworkPhase.DOWN, NetworkPhase.FAILED):
            return self
        gone = tuple(
            one.model_copy(update={"state": ProcessState.GONE, "pid": None, "restart_at": None})
            for one in self.processes
        )
        why = f"the supervisor (pid {self.pid}) was killed; `muster up` goes on"
        return self.model_copy(update={"phase": NetworkPhase.FAILED, "problem": why, "processes": gone})


def process_entry(child: Child, monotonic: float, now: float) -> ProcessEntry:
    """What to say of a supervised process; `monotonic` and `now` (Unix) are the same moment."""
    state, restart_at, pid = ProcessState.RUNNING, None, child.process.pid if child.process else None
    if child.restart_at is not None:
        state, restart_at, pid = ProcessState.RESTARTING, round(now + child.restart_at - monotonic, 1), None
    elif child.finished:
        state, pid = (ProcessState.STOPPED if child.exit_code else ProcessState.FINISHED), None
    return ProcessEntry(
        name=child.name,
        state=state,
        pid=pid,
        since=child.since,
        restarts=child.restarts,
        exit_code=child.exit_code,
        restart_at=restart_at,
        log=str(child.log_path),
    )


def process_entries(children: Iterable[Child], monotonic: float, now: float) -> tuple[ProcessEntry, ...]:
    return tuple(process_entry(child, monotonic, now) for child in children)
