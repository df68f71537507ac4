"""Says when a process's computation has stopped moving, and ends a process that it never will again."""

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from engines.runtime import PACE, StepPace
from protocol.waits import WAITS
from runtime.presence import STALLED

log = logging.getLogger("muster.process")
GIVE_UP_SECONDS = 600.0
EXIT_STALLED = 6
_LOOK_SECONDS = 0.5


class StallGuard:
    """A thread that looks at `pace`. While a step is overdue, the file STALLED in `home` says so, and so do log and
    heartbeats. A step that is overdue for `give_up` seconds never ends: `end` is called, by default the process's
    immediate end with EXIT_STALLED, because only another process can open the device anew."""

    def __init__(
        self,
        home: Path,
        pace: StepPace = PACE,
        give_up: float = GIVE_UP_SECONDS,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._path, self._pace, self._give_up, self._end = home / STALLED, pace, give_up, end
        self._stop = threading.Event()

    def start(self) -> None:
        self._forget()
        threading.Thread(target=self._run, name="stall guard", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            if waited := self._pace.overdue():
                self._stalled(waited)

    def _stalled(self, waited: float) -> None:
        """Until it moves again."""
        since = time.time() - waited
        what = f"a step of the model does not end; the longest took {self._pace.longest:.1f} s"
        log.error("%s: look at the device (nvidia-smi)", what)
        with suppress(OSError):
            self._path.write_text(f"{since:.0f} {what}")
        with WAITS.on(what):
            while (waited := self._pace.overdue()) and not self._stop.wait(_LOOK_SECONDS):
                if waited > self._give_up:
                    log.error("ending: the step has not ended for %.0f s", waited)
                    self._end(EXIT_STALLED)
                    return
        self._forget()
        log.info("the model computes again, after %.0f s", time.time() - since)

    def _forget(self) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
