"""What a worker is doing, as its log and its heartbeats say."""

import logging
import threading
from collections.abc import Mapping

from protocol.api.work import HeartbeatRequest, WorkLease
from protocol.waits import WAITS
from runtime.heartbeats import heartbeat

log = logging.getLogger("muster.worker")


class WorkerProgress:
    """`lease` is the one that heartbeats keep; `step` that of the file under way, −1 before the first; `weights` the
    newest one whose weights are here, `fetching` what that took; `swaps` counts changes of weights, with the longest so
    far that the making stood still for besides the engine's own reload (`swap_pause`), and that reload, seconds."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping, self._said = stopping, ""
        self.phase, self.step = "starting", -1
        self.lease: WorkLease | None = None
        self.made = self.submitted = 0
        self.weights = -1
        self.fetching: Mapping[str, float] = {}
        self.swaps = {"swaps": 0.0, "swap_reload": 0.0, "swap_pause": 0.0}

    def pause(self, seconds: float, reason: str, phase: str) -> None:
        """Wait, and say why once."""
        self.phase = phase
        if reason != self._said:
            log.info("%s", reason)
            self._said = reason
        with WAITS.on(reason[:200]):
            self._stopping.wait(seconds)

    def finished(self) -> None:
        """A file was made: whatever is waited for next is said again."""
        self.made += 1
        self._said = ""

    def swapped(self, pause: float, reload: float) -> None:
        """The engine has other weights now, which took `reload` seconds; the making stood still for `pause` besides."""
        if pause >= self.swaps["swap_pause"]:
            self.swaps |= {"swap_reload": reload, "swap_pause": pause}
        self.swaps["swaps"] += 1
        log.info("weights changed: %.2f s of the engine, %.3f s besides", reload, pause)

    def heartbeat(self, name: str, engine: str) -> HeartbeatRequest:
        return heartbeat(
            "worker",
            name,
            phase=self.phase,
            engine=engine,
            step=self.step if self.step >= 0 else None,
            lease=self.lease.lease if self.lease else None,
            weights=self.weights,
            metrics={"made": float(self.made), "submitted": float(self.submitted), **self.fetching, **self.swaps},
        )
