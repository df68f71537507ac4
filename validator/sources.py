"""Where rollout files and verdict documents come from: the pool's service and mirrors, then what was announced."""

import logging
import queue
import threading
import time
from collections.abc import Sequence

from protocol.errors import IntegrityError, MusterError
from storage.download import HttpObjects
from storage.keys import Kind, MissingObjectError, object_key

log = logging.getLogger("muster.validator")
_LEAST_PACE = 1 << 20
"""Bytes a second that an announced source has to send, or it is too slow to wait for."""


class Sources:
    """`objects` are the pool's own sources. Announced URLs are strangers': all of them are asked at once, so that none
    keeps another from its turn, and none is waited for longer than `announced_seconds` and what the largest allowed
    file takes at 1 MiB/s, so that slow ones do not hold up others' files."""

    def __init__(self, objects: HttpObjects, announced_seconds: float = 3.0) -> None:
        self._objects, self._announced_seconds = objects, announced_seconds

    def fetch(self, kind: Kind, digest: bytes, limit: int, announced: Sequence[str] = ()) -> bytes | None:
        """The object, at most `limit` bytes; None if every source that answers says that it has none.

        Raises UnreachableError when no source answers: then this machine may be at fault, and no vote is honest.
        """
        key = object_key(kind, digest)
        try:
            return self._objects(key, limit)
        except MusterError as error:
            data = self.from_announced(key, limit, announced)
            if data is None and not isinstance(error, MissingObjectError | IntegrityError):
                raise
            if data is None:
                log.info("%s: %s", key, error)
            return data

    def from_announced(self, key: str, limit: int, announced: Sequence[str]) -> bytes | None:
        """The object from the first of these URLs that sends its bytes. How many there are is bounded by who is
        believed (`chain.mirrors`): a file's node and its committees."""
        seconds = self._announced_seconds + limit / _LEAST_PACE
        end = time.monotonic() + seconds
        answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

        def ask(url: str) -> None:
            data: bytes | None = None
            try:
                data = self._objects.elsewhere(url, key, limit, seconds)
            except MusterError as error:
                log.info("announced mirror: %s", error)
            except Exception:  # a thread's end must be heard of
                log.exception("an announced mirror failed")
            answers.put(data)

        urls = dict.fromkeys(announced)
        for url in urls:
            threading.Thread(target=ask, args=(url,), name="announced", daemon=True).start()
        for _ in urls:
            try:
                data = answers.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                return None
            if data is not None:
                return data
        return None
