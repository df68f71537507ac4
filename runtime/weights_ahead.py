"""Fetch the newest policy step's weights while a process works with earlier ones."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from protocol.errors import MusterError, unwritten
from protocol.waits import WAITS
from runtime.entry import essential
from runtime.pool_client import PoolClient
from storage.weights.cache import KEPT_VERSIONS

log = logging.getLogger("muster.weights")
_AGAIN_SECONDS, _LONGEST_SECONDS = 5.0, 3600.0
_REMEMBERED = 3  # steps whose folders are remembered: fewer than any cache keeps


class WorkClock:
    """A stopwatch for the seconds in which a process works on anything; times are monotonic seconds. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worked, self._since, self._works = 0.0, 0.0, 0

    @contextmanager
    def working(self) -> Iterator[None]:
        with self._lock:
            self._works += 1
            self._since = self._since or time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._works -= 1
                if not self._works:
                    self._worked += time.monotonic() - self._since
                    self._since = 0.0

    def seconds(self, now: float) -> float:
        with self._lock:
            return self._worked + (now - self._since if self._since else 0.0)


class WeightsAhead:
    """A thread that fetches the newest published step's weights as soon as the chain names them, if `wanted` (given the
    step's number) says so. `keep`: how many versions stay in the cache. Older steps are fetched when they are needed.

    `figures`: `weights_fetched`, seconds, of that `weights_overlapped` while `clock` ran.
    """

    def __init__(
        self,
        client: PoolClient,
        poll_seconds: float,
        wanted: Callable[[int], bool] = lambda _: True,
        keep: Callable[[], int] = lambda: KEPT_VERSIONS,
    ) -> None:
        self._client, self._poll, self._wanted, self._keep = client, poll_seconds, wanted, keep
        self._changed, self._stop = threading.Condition(), threading.Event()
        self._ready: OrderedDict[bytes, Path] = OrderedDict()
        self._coming = b""
        self._thread = essential("weights-ahead", self._run)
        self.clock = WorkClock()
        self.figures = {"weights_fetched": 0.0, "weights_overlapped": 0.0}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a fetch under way ends with the process."""
        self._stop.set()

    def folder(self, manifest: bytes) -> Path | None:
        """Return the folder of a step's weights if this thread fetched them recently."""
        with self._changed:
            return self._ready.get(manifest)

    def wait(self, manifest: bytes) -> Path | None:
        """Return the same after waiting for a fetch of that step that is under way."""
        with self._changed, WAITS.on("weights that are being fetched"):
            self._changed.wait_for(lambda: self._coming != manifest, _LONGEST_SECONDS)
            return self._ready.get(manifest)

    def _run(self) -> None:
        pause = 0.0
        while not self._stop.wait(pause):
            pause = _AGAIN_SECONDS
            try:
                self._look()
                pause = self._poll
            except (MusterError, OSError) as error:
                log.info("no weights ahead: %s", unwritten(error) if isinstance(error, OSError) else error)
            except Exception:  # the work goes on: the weights are fetched when they are needed
                if not self._stop.is_set():
                    log.exception("fetching weights ahead failed")

    def _look(self) -> None:
        pool = self._client.pool()
        step = pool.steps[-1] if pool is not None and pool.steps else None
        if step is None or self.folder(step.manifest) is not None or not self._wanted(step.step):
            return
        began = time.monotonic()
        worked = self.clock.seconds(began)
        with self._changed:
            self._coming = step.manifest
        try:
            folder = self._client.step_weights(step.step, self._keep())
            with self._changed:
                self._ready[step.manifest] = folder
                while len(self._ready) > _REMEMBERED:
                    self._ready.popitem(last=False)
        finally:
            with self._changed:
                self._coming = b""
                self._changed.notify_all()
        end = time.monotonic()
        self.figures["weights_fetched"] += end - began
        self.figures["weights_overlapped"] += self.clock.seconds(end) - worked
