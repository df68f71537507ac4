"""Where a pool's weights come from: its service, the mirrors of the configuration, and who announced itself there."""

import hashlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable

from protocol.announcements import Announcement
from protocol.api.endpoints import OBJECTS, SOURCES
from protocol.errors import MusterError
from protocol.http.reach import Reach
from protocol.http.transport import bounded_transport
from protocol.identity import PoolId
from runtime.signed_client import ClientLimits, SignedClient
from storage.download import HttpObjects
from storage.spread import SpreadSources

log = logging.getLogger("muster.sources")
LOOK_SECONDS = 60.0
OBJECT_SECONDS = 60.0
"""For one object from one source; what came by then is gone on with."""
AT_ONCE = 8
"""Announced sources that one process uses; which ones, it draws for itself."""


class PoolSources:
    """Objects by key from all sources at once. `objects`: the service and the operator's mirrors, which always stay.
    `own`: a URL to leave out, this process's. A `service` that a stranger `announced` has to be public, as announced
    sources have, unless `private`. Thread-safe."""

    def __init__(
        self, objects: HttpObjects, service: str, pool: Callable[[], PoolId], private: bool, announced: bool
    ) -> None:
        self._fixed, self._pool, self._private = objects.each(), pool, private
        limits = ClientLimits(timeout=3.0, attempts=1, patience=3.0, exchange=5.0)
        transport = bounded_transport(Reach(private=private)) if announced else None
        self._client = SignedClient(service, limits=limits, transport=transport)
        self.spread = SpreadSources(self._fixed)
        self.own = ""
        self._lock = threading.Lock()
        self._announced: dict[str, HttpObjects] = {}
        self._salt, self._due = secrets.token_bytes(16), 0.0

    def look(self) -> None:
        """Ask the service, at most every minute, who announced itself. Without an answer the list stays."""
        with self._lock:
            if time.monotonic() < self._due:
                return
            self._due = time.monotonic() + LOOK_SECONDS
        try:
            found = self._client.get(SOURCES).sources
        except MusterError as error:
            log.debug("no list of sources: %s", error)
            return
        self._use(self._chosen(found))

    def _chosen(self, found: Iterable[Announcement]) -> set[str]:
        """The URLs of a few whose signatures hold, drawn so that every process draws others and stays with them."""
        held = []
        for one in found:
            try:
                one.check(self._pool(), time.time())
            except MusterError as error:
                log.info("%s", error)
                continue
            if one.url != self.own:
                held.append(one)
        held.sort(key=lambda one: hashlib.sha256(self._salt + one.address.encode()).digest())
        return {one.url for one in held[:AT_ONCE]}

    def _use(self, urls: set[str]) -> None:
        with self._lock:
            gone = [self._announced.pop(url) for url in set(self._announced) - urls]
            for url in urls - set(self._announced):
                made = HttpObjects([url + OBJECTS], OBJECT_SECONDS, allow_private=self._private, announced=True)
                self._announced[url] = made
            sources = dict(self._fixed)
            for one in self._announced.values():
                sources |= {name: source for name, source in one.each().items() if name not in sources}
            self.spread.change(sources)
        for one in gone:
            one.close()

    def close(self) -> None:
        self._client.close()
        for one in self._announced.values():
            one.close()
