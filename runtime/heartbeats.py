"""Heartbeats of a worker or validator to the pool's orchestrator."""

import logging
import random
import threading
from collections.abc import Callable, Mapping
from typing import Literal

from protocol.api.work import MAX_WAITS, HeartbeatRequest, WaitLine
from protocol.errors import MusterError, printable
from protocol.version import VERSION, behind
from protocol.waits import WAITS
from runtime.orchestrator_client import OrchestratorClient

log = logging.getLogger("muster.service")
RETRY_SECONDS = 10.0
"""Pause after a heartbeat that failed."""
LEAST_SECONDS = 1.0
"""The shortest pause that a service may ask for."""


def heartbeat(
    role: Literal["worker", "validator", "trainer"],
    name: str,
    *,
    phase: str,
    engine: str = "",
    step: int | None = None,
    lease: str | None = None,
    weights: int = -1,
    metrics: Mapping[str, float],
) -> HeartbeatRequest:
    """A heartbeat with what this process waits for; what is too long for the interface is cut off. `weights`: the
    newest policy step whose weights are here, −1 if none are."""
    waits = [WaitLine(what=printable(wait["what"], 199), since=wait["since"]) for wait in WAITS.report()[:MAX_WAITS]]
    return HeartbeatRequest(
        role=role,
        name=name,
        version=VERSION,
        engine=printable(engine, 63),
        phase=printable(phase, 63),
        step=step,
        lease=lease,
        weights=weights if weights >= 0 else None,
        waits=waits,
        metrics=dict(metrics),
    )


class Heartbeats:
    """A thread that sends heartbeats: one at once, then one whenever the service asks for the next, but at least every
    `seconds`. Each pause is up to a tenth shorter, at random, so that processes that started together spread out.

    The thread outlives every failure. The first failure of a row is logged, and when the service accepts heartbeats
    again.
    """

    def __init__(self, service: OrchestratorClient, beat: Callable[[], HeartbeatRequest], seconds: float) -> None:
        self._service, self._beat, self._seconds = service, beat, seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)
        self._failing, self._behind = False, ""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        pause = 0.0
        while not self._stop.wait(pause):
            pause = self._seconds
            try:
                answer = self._service.heartbeat(self._beat())
                pause = min(pause, max(LEAST_SECONDS, answer.next))
            except MusterError as error:
                if not self._failing:
                    log.info("heartbeats are not accepted: %s", error)
                self._failing = True
                pause = min(pause, RETRY_SECONDS)
            except Exception:  # a node without heartbeats loses its leases: no fault of ours may end them
                log.exception("a heartbeat failed")
                pause = min(pause, RETRY_SECONDS)
            else:
                if self._failing:
                    log.info("heartbeats are accepted again")
                self._failing = False
                self._compare(behind(printable(answer.version, 40)))
            pause *= random.uniform(0.9, 1.0)

    def _compare(self, warning: str) -> None:
        """Log once that the service has another version."""
        if warning and warning != self._behind:
            log.warning("%s", warning)
        self._behind = warning
