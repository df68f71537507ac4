"""Where rollout files and verdict documents come from: the pool's service and mirrors, and announced URLs."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial

from protocol.errors import IntegrityError, MusterError
from storage.keys import Kind, MissingObjectError, object_key
from storage.partial import PartialDownload
from storage.transfers import HttpObjects

log = logging.getLogger("muster.validator")
Answer = Future[bytes | None]
_LEAST_PACE = 1 << 20  # bytes a second that an announced source has to send, or it is too slow to wait for


class Sources:
    """The sources of one pool. `objects` are the pool's own; announced URLs are strangers'.

    Announced URLs are asked when the pool's own sources fail, or have sent nothing whole within `own_seconds`: an owner
    that hides a file may also never end its answer. All are asked at once, and waited for at most `announced_seconds`
    plus what the largest allowed file takes at 1 MiB/s.
    """

    def __init__(self, objects: HttpObjects, announced_seconds: float = 3.0, own_seconds: float = 2.0) -> None:
        self._objects, self._announced_seconds, self._own_seconds = objects, announced_seconds, own_seconds

    def fetch(self, kind: Kind, digest: bytes, limit: int, announced: Sequence[str] = ()) -> bytes | None:
        """Return the object, at most `limit` bytes; None if every source that answers has none. Raises UnreachableError
        when no source answers: then this machine may be at fault, and no vote is honest."""
        key = object_key(kind, digest)
        if not announced:
            return self._from_own(key, limit)
        own = _in_background(partial(self._from_own, key, limit))
        wait([own], self._own_seconds)
        data = _bytes_of(own) if own.done() else None
        if data is None:
            data = self.from_announced(key, limit, announced, None if own.done() else own)
        return data if data is not None else own.result()

    def _from_own(self, key: str, limit: int) -> bytes | None:
        try:
            return self._objects(key, limit)
        except (MissingObjectError, IntegrityError) as error:
            log.info("%s: %s", key, error)
            return None

    def from_announced(self, key: str, limit: int, announced: Sequence[str], own: Answer | None = None) -> bytes | None:
        """Return the object from the first of these URLs that sends its bytes, or from the pool's `own` sources if
        these are quicker. Only a file's node and committees are believed, so there are few."""
        seconds = self._announced_seconds + limit / _LEAST_PACE
        end = time.monotonic() + seconds
        answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

        def ask(url: str, begun: PartialDownload) -> bytes | None:
            try:
                return self._objects.elsewhere(url, key, limit, seconds, begun)
            except MusterError as error:
                log.info("announced mirror: %s", error)
            except Exception:  # a thread's end must be heard of
                log.exception("an announced mirror failed")
            return None

        begun = {url: PartialDownload(url) for url in announced}
        asked = [_in_background(partial(ask, *request)) for request in begun.items()]
        asked += [own] if own is not None else []
        for answer in asked:
            answer.add_done_callback(lambda done: answers.put(_bytes_of(done)))
        try:
            for _ in asked:
                data = answers.get(timeout=max(0.0, end - time.monotonic()))
                if data is not None:
                    return data
        except queue.Empty:
            pass
        finally:
            for request in begun.values():
                request.abandon()
        return None


def _in_background(task: Callable[[], bytes | None]) -> Answer:
    """Run `task` in a daemon thread and return its result as a future."""
    answer: Answer = Future()

    def run() -> None:
        try:
            answer.set_result(task())
        except BaseException as error:  # the caller of result() gets it
            answer.set_exception(error)

    threading.Thread(target=run, name="source", daemon=True).start()
    return answer


def _bytes_of(answer: Answer) -> bytes | None:
    return None if answer.exception() is not None else answer.result()
