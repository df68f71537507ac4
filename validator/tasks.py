"""Work in the background, transactions above all: one task at a time per key, retried after a pause, none of them
blocking the others."""

import logging
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor

from chain.transactions import Receipt
from protocol.errors import MusterError

log = logging.getLogger("muster.validator")
_RETRY = 2.0  # seconds
_FORGET_SECONDS = 3600.0


class TransactionTasks:
    """Runs keyed tasks in threads. After success a key is not rerun before the chain's state reaches its block."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="transaction")
        self._lock = threading.Lock()
        self._running: set[Hashable] = set()
        self._failed: dict[Hashable, tuple[int, float]] = {}  # failures in a row, and when to try again
        self._mined: dict[Hashable, int] = {}
        self._pruned_at = 0

    def run(
        self,
        key: Hashable,
        head: int,
        what: str,
        task: Callable[[], object],
        quiet: bool = False,
        longest: float = _RETRY,
    ) -> bool:
        """Start a task unless it runs, succeeded in a block beyond `head`, or pauses after a failure: for two seconds,
        doubled by every further one up to `longest`. Returns whether it was started."""
        with self._lock:
            self._prune(head)
            _, again = self._failed.get(key, (0, 0.0))
            if key in self._running or time.monotonic() < again or head < self._mined.get(key, -1):
                return False
            self._running.add(key)
        self._pool.submit(self._run, key, head, what, task, quiet, longest)
        return True

    def forget(self) -> None:
        """After a reorganisation, assume that mined transactions were undone."""
        with self._lock:
            self._mined.clear()

    def stop(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _prune(self, head: int) -> None:
        """Once a block, drop what keeps no task from being run."""
        if head == self._pruned_at:
            return
        self._pruned_at, now = head, time.monotonic()
        self._mined = {key: block for key, block in self._mined.items() if block > head}
        self._failed = {key: failed for key, failed in self._failed.items() if now < failed[1] + _FORGET_SECONDS}

    def _run(
        self, key: Hashable, head: int, what: str, task: Callable[[], object], quiet: bool, longest: float
    ) -> None:
        mined, pause = head + 1, 0.0
        try:
            outcome = task()
            if isinstance(outcome, Receipt):
                mined = outcome.block
            log.info("%s: done", what)
        except MusterError as error:
            mined, pause = -1, _RETRY
            log.log(logging.DEBUG if quiet else logging.INFO, "%s: %s", what, error)
        except BaseException:  # not even SystemExit may leave the key running for ever
            mined, pause = -1, 5 * _RETRY
            log.exception("%s failed", what)
        with self._lock:
            self._running.discard(key)
            failures, _ = self._failed.pop(key, (0, 0.0))
            if pause:
                pause = min(pause * 2.0 ** min(failures, 30), max(longest, pause))
                self._failed[key] = failures + 1, time.monotonic() + pause
            self._mined[key] = mined
