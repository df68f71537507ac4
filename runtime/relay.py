"""Relays and peers: follow the chain, hold what the newest steps' manifests name, serve it, and announce it."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from chain.indexer.records import Pool
from chain.indexer.state import State
from protocol.accounts import LocalAccount
from protocol.api.endpoints import ANNOUNCE
from protocol.api.work import announce
from protocol.encoding import canonical_json
from protocol.errors import MusterError
from protocol.http.signing import AuthScope
from protocol.waits import WAITS
from runtime.entry import essential
from runtime.pool_client import PoolClient
from runtime.process import KeyConfig, ProcessConfig, start
from runtime.server import HttpServer, bound, server_options
from runtime.signed_client import ClientLimits, RequestSigner, SignedClient
from storage.keys import object_key
from storage.partial import PartFile, PartialDownload
from storage.relay.cache import RelayCache, RelayFetches
from storage.relay.server import RelayApp, ServeWeights
from storage.weights.manifest import MAX_STORED_BYTES, Manifest, ManifestScope, unseal

log = logging.getLogger("muster.relay")


class RelayConfig(ProcessConfig):
    """A relay for one pool. `cache` keeps what it serves; `key` signs its announcements and holds no money: without it
    the relay serves those who name it among their `mirrors`."""

    key: KeyConfig | None = None
    serve_weights: ServeWeights = ServeWeights()


# --- What is held


LOOK_BACK = 64  # steps before the newest at which a relay looks at all
_FILES = 2000


def wanted_steps(state: State, pool: Pool, steps: int, now: float) -> list[int]:
    """Return the newest `steps`, and those of files that are not final at `now`, newest first; none older than
    LOOK_BACK."""
    oldest = max(0, pool.step - LOOK_BACK)
    judged = {
        file.step
        for file in (state.submissions[pool.pool, sequence] for sequence in pool.sequences[-_FILES:])
        if not file.is_final(int(now)) and file.step >= oldest
    }
    newest = range(max(oldest, pool.step - steps + 1), pool.step + 1)
    return sorted({*newest, *judged}, reverse=True)


def until_snapshot(pool: Pool, steps: list[int], look: Callable[[int], Manifest | None]) -> Iterator[int]:
    """Yield `steps`, then the earlier ones back to the last snapshot, which those who join late begin with."""
    seen, earlier = False, range(min(steps, default=0) - 1, max(0, pool.step - LOOK_BACK) - 1, -1)
    for step in (*steps, *earlier):
        if seen and step not in steps:
            return
        manifest = look(step)
        seen = seen or (manifest is not None and manifest.snapshot)
        yield step


def objects_of(manifest: Manifest, stored: int) -> Iterator[tuple[str, int]]:
    """Yield (key, bytes) of what was published of a step: its manifest of `stored` bytes, its deltas, then its
    files."""
    yield object_key("manifests", manifest.digest), stored
    shards = [shard for delta in manifest.deltas for shard in delta.shards]
    for shard in (*shards, *(manifest.shards() if manifest.snapshot else ())):
        yield shard.key, shard.size


VALID_SECONDS = 600
_AGAIN_SECONDS = 30.0
RESTART_SECONDS = 2.0  # before a thread that failed begins again
_NEWS_SECONDS = 15.0  # between two announcements, if there is a new step to tell of
_FETCH_SECONDS = 600.0
MAX_NAMED = 1 << 19  # shards that the manifests in memory name at most, all together: each takes about a kilobyte there
_AHEAD = 3  # objects that are fetched before anybody asks for them, at once


class PoolRelay:
    """Holds and serves what the newest steps of a pool name. Whoever owns `client` keeps its view of the chain fresh;
    `account` signs announcements. The constructor takes the port: raises ConfigError if it is in use, or the folder
    cannot be made."""

    def __init__(self, client: PoolClient, serve: ServeWeights, account: LocalAccount | None) -> None:
        self._client, self._serve, self._account = client, serve, account
        folder = client.config.cache / "served" / f"{client.pool_id.chain_id}-{client.pool_id.pool}"
        self.cache = RelayCache(folder, serve.disk_bytes)
        self.fetches = RelayFetches(client.sources.spread, self.cache)
        self.app = RelayApp(self.cache, self.fetches, serve, self._facts)
        client.sources.own = serve.public_url
        self._manifests: dict[bytes, tuple[Manifest, int]] = {}
        self._fresh: dict[str, bytes] = {}
        self._left_out: set[bytes] = set()
        self._naming = threading.Lock()
        self._step, self._announced_until = -1, 0
        self._stop = threading.Event()
        self._problems: dict[str, str] = {}
        self._listener = bound(serve.host, serve.port)
        self._options = server_options(self.app, serve.connections, serve.connections_of_one)
        self._server = HttpServer(self._options)
        works = {"serving": self._listen, "following the pool": self._follow, "announcing": self._announce}
        self._threads = [
            essential(f"relay: {name}", partial(self._supervised, name, work)) for name, work in works.items()
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._server.should_exit = True
        self.fetches.close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=5)

    def fetch(self, key: str, limit: int, part_files: Callable[[], PartFile]) -> PartialDownload:
        """Fetch a shard into one of the `part_files` through the cache, from which it is served to others; for the
        process that it is part of. Raises what the sources raise."""
        if self.cache.size(key) is None:
            self._name()  # the step may be newer than our last look
        whole = PartialDownload(part_files=part_files)
        if self.cache.copy(key, whole):
            return whole
        fetch = self.fetches.start(key)
        if fetch is not None:
            wait([fetch], _FETCH_SECONDS)
            if self.cache.copy(key, whole):
                return whole
        whole.drop()
        return self._client.sources.spread.fetch(key, limit, part_files)

    def _supervised(self, name: str, work: Callable[[], None]) -> None:
        """Run `work` to its end, again whenever it raises; the status and this process's waits say so until it has
        worked for a while."""
        while not self._stop.is_set():
            try:
                work()
                return
            except BaseException as error:  # not even SystemExit may end this thread unnoticed
                log.error("%s failed", name, exc_info=error)
                self._problems[name] = f"{type(error).__name__}: {error}"
                with WAITS.on(f"{name} to succeed"):
                    self._stop.wait(RESTART_SECONDS)

    def _listen(self) -> None:
        if self._listener.fileno() < 0:  # the last server closed it
            self._listener = bound(self._serve.host, self._serve.port)
            self._server = HttpServer(self._options)
        self._problems.pop("serving", None)
        asyncio.run(self._server.serve(sockets=[self._listener]))
        if not self._stop.is_set():
            raise MusterError("the server has ended")

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                self._client.sources.look()
                self.once()
                self._problems.pop("following the pool", None)
            except MusterError as error:
                log.info("%s", error)
            self._stop.wait(self._client.config.poll_seconds)

    def once(self) -> None:
        """Hold what the pool's newest steps name, and fetch what is missing."""
        version = self._client.state.version
        missing = self._name()
        self._prefetch([key for key in missing if key.startswith("shards/")], version)

    def _name(self) -> list[str]:
        """Put what the newest steps name on the cache's list; return the keys that are not here yet."""
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
            missing = self.cache.name(entry for digest in known for entry in objects_of(*self._manifests[digest]))
            for key, stored in self._fresh.items():
                self.cache.put(key, stored)
            self._fresh.clear()
            self._step = max((manifest.step for manifest, _ in self._manifests.values()), default=-1)
            return missing

    def _manifest(self, digest: bytes, scope: ManifestScope) -> Manifest | None:
        if digest in self._manifests:
            return self._manifests[digest][0]
        if digest in self._left_out:
            return None
        key = object_key("manifests", digest)
        check = partial(unseal, expected=digest, scope=scope)
        try:
            stored = self._left(key, check) or self._client.sources.spread(key, MAX_STORED_BYTES, check)
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
        named = {digest: len(manifest.every_shard()) for digest, (manifest, _) in self._manifests.items()}
        oldest = sorted(named, key=lambda digest: self._manifests[digest][0].step)
        while sum(named.values()) > MAX_NAMED and len(named) > 1:
            digest = oldest.pop(0)
            log.warning("step %d is not served: too many shards to be held", self._manifests.pop(digest)[0].step)
            self._fresh.pop(object_key("manifests", digest), None)
            self._left_out.add(digest)
            del named[digest]

    def _left(self, key: str, check: Callable[[bytes], object]) -> bytes | None:
        """Return a manifest that a former process left, if it is sound."""
        stored = self.cache.stored(key)
        try:
            if stored is not None:
                check(stored)
        except MusterError:
            return None
        return stored

    def _prefetch(self, missing: list[str], version: int) -> None:
        waiting = []
        for key in missing:
            if (fetch := self.fetches.start(key)) is not None:
                waiting.append(fetch)
            while len(waiting) >= _AHEAD:
                if self._stop.wait(0.02) or self._client.state.version != version:
                    return
                waiting = [transfer for transfer in waiting if not transfer.done()]

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
            announcement = announce(account, pool, url, until, step if step >= 0 else None)
            self.app.announcement = canonical_json(announcement.model_dump())
            try:
                pause = min(service.post(ANNOUNCE, announcement).next, VALID_SECONDS / 2)
                self._announced_until, failing = announcement.until, False
                self._problems.pop("announcing", None)
            except MusterError as error:
                if not failing:
                    log.warning("the service does not list this relay: %s", error)
                pause, failing = _AGAIN_SECONDS, True
        service.close()

    def _wait_to_announce(self, pause: float, step: int) -> bool:
        """Wait until it is time, or a newer step than the announced one has been here for a while; whether to stop."""
        end = time.monotonic() + pause
        soon = time.monotonic() + min(pause, _NEWS_SECONDS)
        while (now := time.monotonic()) < end and not (now >= soon and self._step > step):
            if self._stop.wait(min(1.0, end - now)):
                return True
        return self._stop.is_set()

    def _facts(self) -> dict[str, Any]:
        pool = self._client.pool_id
        facts = {"pool": pool.pool, "chain_id": pool.chain_id, "step": self._step, "url": self._serve.public_url}
        return facts | {"announced_until": self._announced_until, "problems": dict(self._problems)}


def run(config_path: Path) -> NoReturn:
    """Serve until SIGINT or SIGTERM. Raises MusterError, before anything is served, for what a user can mend."""
    start(config_path, RelayConfig, Relay)


class Relay:
    """The process: its connection to the pool, and what it serves."""

    def __init__(self, config: RelayConfig) -> None:
        account = config.key.open() if config.key is not None else None
        self._config, self._stop = config, threading.Event()
        self._client = PoolClient(config, None)
        self._client.sources.first_hand = True
        self._relay = PoolRelay(self._client, config.serve_weights, account)

    def run(self) -> int:
        serve = self._config.serve_weights
        self._refresh()
        self._relay.start()
        log.info("serving pool %d at %s:%d", self._config.pool, serve.host, serve.port)
        while not self._stop.wait(self._config.poll_seconds):
            self._refresh()
        self._relay.stop()
        self._client.close()
        return 0

    def stop(self) -> None:
        self._stop.set()

    def _refresh(self) -> None:
        try:
            self._client.refresh()
        except MusterError as error:
            log.info("%s", error)


def serve_as_peer(client: PoolClient, account: LocalAccount | None) -> None:
    """Serve the pool's weights until the client is closed, and take its own from what is served, so that nothing is
    fetched twice. Raises ConfigError if the port is in use."""
    serve = client.config.serve_weights
    if serve is None:
        return
    relay = PoolRelay(client, serve, account)
    client.fetch_shard = relay.fetch
    client.before_close.append(relay.stop)
    relay.start()
    log.info("serving the weights of pool %d at %s:%d", client.config.pool, serve.host, serve.port)
