"""Where rollout files and verdict documents come from: the pool's service and mirrors, then what a node announced."""

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field

from protocol.errors import IntegrityError, MusterError
from storage.download import HttpObjects
from storage.keys import Kind, MissingObjectError, object_key

log = logging.getLogger("muster.validator")
_RETRY_SECONDS = 1.0
_MOST_ANNOUNCED = 3


@dataclass(frozen=True)
class Patience:
    """An object that no source has is asked for again until `until` (monotonic seconds); `cancelled` ends it early."""

    until: float = 0.0
    cancelled: threading.Event = field(default_factory=threading.Event)


class Sources:
    """`objects` are the pool's own sources. Announced URLs are strangers': the first three count, and all of them
    together may always take `announced_seconds`, so that a node which announces slow ones does not hold up others."""

    def __init__(self, objects: HttpObjects, announced_seconds: float = 3.0) -> None:
        self._objects, self._announced_seconds = objects, announced_seconds

    def fetch(
        self, kind: Kind, digest: bytes, limit: int, announced: Sequence[str] = (), patience: Patience | None = None
    ) -> bytes | None:
        """The object, at most `limit` bytes; None once every source that answers has said to the end of `patience`
        that it has none.

        Raises UnreachableError when no source answers: then this machine may be at fault, and no vote is honest.
        Raises CancelledError.
        """
        key, patience = object_key(kind, digest), patience or Patience()
        while True:
            try:
                return self._objects(key, limit)
            except MusterError as error:
                data = self.from_announced(key, limit, announced, patience.until)
                if data is not None:
                    return data
                if not isinstance(error, MissingObjectError | IntegrityError):
                    raise
                if time.monotonic() >= patience.until:
                    log.info("%s: %s", key, error)
                    return None
            if patience.cancelled.wait(_RETRY_SECONDS):
                raise CancelledError

    def from_announced(self, key: str, limit: int, announced: Sequence[str], until: float) -> bytes | None:
        """The object from where its node announced it; all URLs together take until then, or a few seconds."""
        end = max(until, time.monotonic() + self._announced_seconds)
        urls = announced[:_MOST_ANNOUNCED]
        for number, url in enumerate(urls):
            try:
                share = (end - time.monotonic()) / (len(urls) - number)
                return self._objects.elsewhere(url, key, limit, share)
            except MusterError as error:
                log.info("announced mirror: %s", error)
        return None
