"""Where rollout files and verdict documents come from: the pool's service and mirrors, then what a node announced."""

import logging
import time
from collections.abc import Sequence

from protocol.errors import IntegrityError, MusterError
from storage.download import HttpObjects
from storage.keys import Kind, MissingObjectError, object_key

log = logging.getLogger("muster.validator")
_MOST_ANNOUNCED = 3


class Sources:
    """`objects` are the pool's own sources. Announced URLs are strangers': the first three count, and all of them
    together may take `announced_seconds`, so that a node which announces slow ones does not hold up others."""

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
        """The object from where its node announced it."""
        end = time.monotonic() + self._announced_seconds
        urls = announced[:_MOST_ANNOUNCED]
        for number, url in enumerate(urls):
            try:
                share = (end - time.monotonic()) / (len(urls) - number)
                return self._objects.elsewhere(url, key, limit, share)
            except MusterError as error:
                log.info("announced mirror: %s", error)
        return None
