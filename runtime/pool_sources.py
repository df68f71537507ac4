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
from storage.sources import MultiSource
from storage.transfers import HttpObjects

log = logging.getLogger("muster.sources")
LOOK_SECONDS = 60.0
OBJECT_SECONDS = 60.0
"""For one object from one source; what came by then is gone on with."""
AT_ONCE = 64
"""Announced sources that one process uses; which ones, it draws for itself."""


class PoolSources:
    """Objects by key from all sources at once. `objects`: the service and the operator's mirrors, which always stay.
    `own`: a URL to leave out, this process's. Where others serve, the service is spared, except by a relay
    (`first_hand`), which spares it the others' requests. A `service` that a stranger `announced` has to be public, as
    announced sources have, unless `private`. Thread-safe."""

    def __init__(
        self, objects: HttpObjects, service: str, pool: Callable[[], PoolId], private: bool, announced: bool
    ) -> None:
        self._fixed, self._pool, self._private = objects.each(), pool, private
        limits = ClientLimits(timeout=3.0, attempts=1, patience=3.0, exchange=5.0)
        transport = bounded_transport(Reach(private=private)) if announced else None
        self._service = next(iter(self._fixed))
        self._client = SignedClient(service, limits=limits, transport=transport)
        self.spread = MultiSource(self._fixed)
        self.own, self.first_hand = "", False
        self._lock = threading.Lock()
        self._announced: dict[str, HttpObjects] = {}
        self._held: dict[str, Announcement] = {}
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

    def _chosen(self, found: Iterable[Announcement]) -> list[str]:
        """The URLs of a few whose signatures hold, drawn so that every process draws others and stays with them, also
        while the service names others."""
        held = list[Announcement]()
        for one in {**self._held, **{one.url: one for one in found}}.values():
            try:
                one.check(self._pool(), time.time())
            except MusterError as error:
                log.info("%s", error)
                continue
            if one.url != self.own:
                held.append(one)
        known, salt = self._held, self._salt
        held.sort(key=lambda one: (one.url not in known, hashlib.sha256(salt + one.address.encode()).digest()))
        self._held = {one.url: one for one in held[:AT_ONCE]}
        return list(self._held)

    def _use(self, urls: list[str]) -> None:
        with self._lock:
            gone = [self._announced.pop(url) for url in set(self._announced) - set(urls)]
            for url in urls:
                if url not in self._announced:
                    made = HttpObjects([url + OBJECTS], OBJECT_SECONDS, allow_private=self._private, announced=True)
                    self._announced[url] = made
            others = {name: source for url in urls for name, source in self._announced[url].each().items()}
            others = {name: source for name, source in others.items() if name not in self._fixed}
            own = self.own + OBJECTS if self.own else ""
            if self.first_hand:
                self.spread.change(self._fixed | others, (), others, own)
            else:
                self.spread.change(others | self._fixed, [self._service] if others else (), others, own)
        for one in gone:
            one.close()

    def close(self) -> None:
        self._client.close()
        for one in self._announced.values():
            one.close()
