"""Serves a pool's weights to others: follows the chain, holds what the newest steps name, announces itself."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from eth_account.signers.local import LocalAccount

from protocol.announcements import announce
from protocol.api.endpoints import ANNOUNCE
from protocol.encoding import canonical_json
from protocol.errors import MusterError
from protocol.http.signing import AuthScope
from runtime.http_server import HttpServer, bound, server_options
from runtime.pool_client import PoolClient
from runtime.relay.serving import ServeWeights
from runtime.relay.wanted import objects_of, until_snapshot, wanted_steps
from runtime.signed_client import ClientLimits, RequestSigner, SignedClient
from storage.draft import Draft
from storage.keys import object_key
from storage.partial import PartialObject
from storage.relay.app import RelayApp
from storage.relay.flights import Flights
from storage.relay.shelf import RelayShelf
from storage.weights.manifest import MAX_STORED_BYTES, Manifest, ManifestScope, unseal

log = logging.getLogger("muster.relay")
VALID_SECONDS = 600
_AGAIN_SECONDS = 30.0
_NEWS_SECONDS = 15.0
"""Between two announcements, if there is a new step to tell of."""
_FLIGHT_SECONDS = 600.0
MAX_NAMED = 1 << 19
"""Shards that the manifests in memory name at most, all together: each takes about a kilobyte there."""
_AHEAD = 3
"""Objects that are fetched before anybody asks for them, at once."""


class PoolRelay:
    """`client`: of the pool; whoever owns it keeps its view of the chain fresh. `account` signs announcements.

    The constructor takes the port: raises ConfigError if it is in use, or the folder cannot be made."""

    def __init__(self, client: PoolClient, serve: ServeWeights, account: LocalAccount | None) -> None:
        self._client, self._serve, self._account = client, serve, account
        folder = client.config.cache / "served" / f"{client.pool_id.chain_id}-{client.pool_id.pool}"
        self.shelf = RelayShelf(folder, serve.disk_bytes)
        self.shelf.clear_drafts()
        self.flights = Flights(client.sources.spread, self.shelf, serve.memory_bytes)
        self.app = RelayApp(self.shelf, self.flights, serve.limits, self._facts)
        client.sources.own = serve.public_url
        self._manifests: dict[bytes, tuple[Manifest, int]] = {}
        self._fresh: dict[str, bytes] = {}
        self._left_out: set[bytes] = set()
        self._naming = threading.Lock()
        self._step, self._announced_until = -1, 0
        self._stop = threading.Event()
        self._listener = bound(serve.host, serve.port)
        self._server = HttpServer(server_options(self.app, serve.connections, serve.connections_of_one))
        self._threads = [
            threading.Thread(target=self._listen, name="relay-http", daemon=True),
            threading.Thread(target=self._follow, name="relay-follow", daemon=True),
            threading.Thread(target=self._announce, name="relay-announce", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End it, within a few seconds."""
        self._stop.set()
        self._server.should_exit = True
        self.flights.close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=5)

    def bring(self, key: str, limit: int, drafts: Callable[[], Draft]) -> PartialObject:
        """A shard in one of the `drafts`, by way of the shelf, from which it is served to others; for the process that
        it is part of. Raises what the sources raise."""
        if self.shelf.size(key) is None:
            self._name()  # the step may be newer than our last look
        whole = PartialObject(drafts=drafts)
        if self.shelf.copy(key, whole):
            return whole
        flight = self.flights.bring(key)
        if flight is not None:
            flight.ended.wait(_FLIGHT_SECONDS)
            if flight.data is not None:
                whole.append(flight.data)
                return whole
            if self.shelf.copy(key, whole):
                return whole
        whole.drop()
        return self._client.sources.spread.bring(key, limit, drafts)

    def _listen(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._listener]))

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                self._client.sources.look()
                self.once()
            except MusterError as error:
                log.info("%s", error)
            except Exception:  # what is served already stays served
                log.exception("following the pool failed")
            self._stop.wait(self._client.config.poll_seconds)

    def once(self) -> None:
        """Hold what the pool's newest steps name, and fetch what is missing."""
        version = self._client.state.version
        missing = self._name()
        self._bring([key for key in missing if key.startswith("shards/")], version)

    def _name(self) -> list[str]:
        """Put what the newest steps name on the shelf's list; the keys that are not here yet."""
        with self._naming:
            state, pool = self._client.state, self._client.pool()
            if pool is None or not pool.steps:
                return []
            scope = ManifestScope(self._client.pool_id, pool.owner)

            def look(step: int) -> Manifest | None:
                return self._manifest(pool.steps[step].manifest, scope)

            steps = list(until_snapshot(pool, wanted_steps(state, pool, self._serve.steps, time.time()), look))
            known = [pool.steps[step].manifest for step in steps if pool.steps[step].manifest in self._manifests]
            self._manifests = {digest: self._manifests[digest] for digest in known}
            missing = self.shelf.name(entry for digest in known for entry in objects_of(*self._manifests[digest]))
            for key, stored in self._fresh.items():
                self.shelf.put(key, stored)
            self._fresh.clear()
            self._step = max((one.step for one, _ in self._manifests.values()), default=-1)
            return missing

    def _manifest(self, digest: bytes, scope: ManifestScope) -> Manifest | None:
        """The step's manifest, checked."""
        if digest in self._manifests:
            return self._manifests[digest][0]
        if digest in self._left_out:
            return None
        key = object_key("manifests", digest)
        check = partial(unseal, expected=digest, scope=scope)
        try:
            stored = self._left(key, check) or self._client.sources.spread.checked(key, MAX_STORED_BYTES, check)
            manifest = check(stored)
        except MusterError as error:
            log.info("no manifest %s: %s", digest.hex()[:16], error)
            return None
        self._manifests[digest] = manifest, len(stored)
        self._fresh[key] = stored
        self._leave_out()
        return manifest if digest in self._manifests else None

    def _leave_out(self) -> None:
        """Give up the oldest steps where there is no memory for what all of them name."""
        named = {digest: len(one.every_shard()) for digest, (one, _) in self._manifests.items()}
        oldest = sorted(named, key=lambda digest: self._manifests[digest][0].step)
        while sum(named.values()) > MAX_NAMED and len(named) > 1:
            digest = oldest.pop(0)
            log.warning("step %d is not served: too many shards to be held", self._manifests.pop(digest)[0].step)
            self._fresh.pop(object_key("manifests", digest), None)
            self._left_out.add(digest)
            del named[digest]

    def _left(self, key: str, check: Callable[[bytes], object]) -> bytes | None:
        """A manifest that a former process left, if it is sound."""
        stored = self.shelf.stored(key)
        try:
            if stored is not None:
                check(stored)
        except MusterError:
            return None
        return stored

    def _bring(self, missing: list[str], version: int) -> None:
        """Fetch objects, a few at a time, until the chain has news."""
        waiting = []
        for key in missing:
            if (flight := self.flights.bring(key)) is not None:
                waiting.append(flight)
            while len(waiting) >= _AHEAD:
                if self._stop.wait(0.02) or self._client.state.version != version:
                    return
                waiting = [one for one in waiting if not one.ended.is_set()]

    def _announce(self) -> None:
        account, url = self._account, self._serve.public_url
        if account is None or not url:
            return
        pool = self._client.pool_id
        auth_scope = AuthScope.of(self._client.config.orchestrator, pool.chain_id, pool.pools)
        limits = ClientLimits(timeout=10.0, attempts=1, patience=10.0, exchange=15.0)
        service, failing = SignedClient(auth_scope.audience, RequestSigner(account, auth_scope), limits), False
        pause, step = 1.0, -1
        while not self._wait_to_announce(pause, step):
            step = self._step
            until = int(time.time()) + VALID_SECONDS
            said = announce(account, pool, url, until, step if step >= 0 else None)
            self.app.announcement = canonical_json(said.model_dump())
            try:
                pause = min(service.post(ANNOUNCE, said).next, VALID_SECONDS / 2)
                self._announced_until, failing = said.until, False
            except MusterError as error:
                if not failing:
                    log.warning("the service does not list this relay: %s", error)
                pause, failing = _AGAIN_SECONDS, True
        service.close()

    def _wait_to_announce(self, pause: float, step: int) -> bool:
        """Until it is time, or a newer step than the announced one has been here for a while; whether to stop."""
        end = time.monotonic() + pause
        soon = time.monotonic() + min(pause, _NEWS_SECONDS)
        while (now := time.monotonic()) < end and not (now >= soon and self._step > step):
            if self._stop.wait(min(1.0, end - now)):
                return True
        return self._stop.is_set()

    def _facts(self) -> dict[str, Any]:
        pool = self._client.pool_id
        facts = {"pool": pool.pool, "chain_id": pool.chain_id, "step": self._step}
        return facts | {"announced_until": self._announced_until, "url": self._serve.public_url}
