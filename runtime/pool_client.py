"""A process's connection to the chain and to one pool: projected state, public seeds, objects, weights, sources."""

import hashlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from chain.client import ChainClient
from chain.deployment import Deployment
from chain.indexer.follower import Follower
from chain.indexer.projection import Projection
from chain.indexer.records import Pool, Step
from chain.indexer.state import State
from chain.suite import Suite
from protocol.accounts import LocalAccount
from protocol.api.endpoints import OBJECTS, SOURCES
from protocol.api.work import Announcement
from protocol.config import PoolConfig
from protocol.errors import IntegrityError, MusterError
from protocol.files import write_atomic
from protocol.http.reach import Reach
from protocol.http.transport import bounded_transport
from protocol.identity import PoolId
from protocol.seeds import Work
from protocol.waits import wait_for
from runtime.environment_files import fetch_files
from runtime.process import ProcessConfig, make_home
from runtime.signed_client import ClientLimits, SignedClient
from storage.keys import object_key
from storage.sources import MultiSource
from storage.transfers import HttpObjects
from storage.weights.cache import KEPT_VERSIONS
from storage.weights.fetch import FetchObject, fetch
from storage.weights.manifest import ManifestScope

log = logging.getLogger("muster.pool")
LOOK_SECONDS = 60.0
OBJECT_SECONDS = 60.0  # time for one object from one source; another source continues from what came by then
AT_ONCE = 64  # announced sources that one process uses; each process draws its own
_MAX_CONFIG_BYTES, _PATIENCE = 1 << 20, 20.0


class ChainConnection:
    """The contracts as `suite`, which sends as `account`; `home`: this process's folder for this chain alone.
    `refresh`, `state` and `suite` are thread-safe. Raises ConfigError for a wrong deployment or chain, UnreachableError
    when no RPC endpoint answers."""

    def __init__(self, config: ProcessConfig, account: LocalAccount | None = None) -> None:
        self._config = config
        self.deployment = Deployment.load(config.deployment)
        self.client = ChainClient(config.rpc, self.deployment.chain_id, account, patience=_PATIENCE)
        self.suite = Suite(self.client, self.deployment)
        # A restarted chain, or contracts deployed again, must not find the state of the former ones.
        self.home = config.home / f"{self.deployment.genesis[2:10]}-{self.suite.court.address[2:10].lower()}"
        make_home(self.home)
        self._follower = Follower(self.client, self.deployment, self.home / "events.sqlite")
        self.projection = Projection(self._follower)
        self._refreshing = threading.Lock()

    @property
    def state(self) -> State:
        """The newest snapshot of the chain; a snapshot never changes (`chain.indexer.projection`)."""
        return self.projection.state

    @property
    def now(self) -> int:
        """Chain time as of the last refresh."""
        return self._follower.time

    def refresh(self) -> State:
        """Poll the chain once and return the newest state. After a reorganisation nothing read before holds."""
        with self._refreshing:
            before = self.state.generation
            self.projection.refresh()
            if self.state.generation != before:
                log.info("the chain was reorganised: continuing from block %d", self.state.head)
            return self.state

    def account_suite(self, account: LocalAccount) -> Suite:
        """Return the same contracts, sending as another account."""
        client = ChainClient(self._config.rpc, self.deployment.chain_id, account, patience=_PATIENCE)
        return Suite(client, self.deployment, check=False)

    def close(self) -> None:
        self.client.close()


class PoolSources:
    """Where a pool's objects come from: its service, the operator's mirrors (both in `objects`) and those who announced
    itself at the service. `own`: this process's own URL, which is left out. Where others serve, the service is asked
    last, except by a relay (`first_hand`), which fetches so that others need not. A `service` that a stranger
    `announced` has to be public unless `private`. Thread-safe."""

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
        """Ask the service, at most every LOOK_SECONDS, who announced itself. Without an answer the list stays."""
        with self._lock:
            if time.monotonic() < self._due:
                return
            self._due = time.monotonic() + LOOK_SECONDS
        try:
            announced = self._client.get(SOURCES).sources
        except MusterError as error:
            log.debug("no list of sources: %s", error)
            return
        self._use(self._chosen(announced))

    def _chosen(self, announced: Iterable[Announcement]) -> list[str]:
        """Return the URLs of at most AT_ONCE valid sources: those in use while they stay valid, then random ones."""
        valid = list[Announcement]()
        for announcement in {**self._held, **{announcement.url: announcement for announcement in announced}}.values():
            try:
                announcement.check(self._pool(), time.time())
            except MusterError as error:
                log.info("%s", error)
                continue
            if announcement.url != self.own:
                valid.append(announcement)
        in_use, salt = self._held, self._salt
        valid.sort(
            key=lambda announcement: (
                announcement.url not in in_use,
                hashlib.sha256(salt + announcement.address.encode()).digest(),
            )
        )
        self._held = {announcement.url: announcement for announcement in valid[:AT_ONCE]}
        return list(self._held)

    def _use(self, urls: list[str]) -> None:
        with self._lock:
            gone = [self._announced.pop(url) for url in set(self._announced) - set(urls)]
            for url in urls:
                if url not in self._announced:
                    objects = HttpObjects([url + OBJECTS], OBJECT_SECONDS, allow_private=self._private, announced=True)
                    self._announced[url] = objects
            others = {name: source for url in urls for name, source in self._announced[url].each().items()}
            others = {name: source for name, source in others.items() if name not in self._fixed}
            own = self.own + OBJECTS if self.own else ""
            if self.first_hand:
                self.spread.change(self._fixed | others, (), others, own)
            else:
                self.spread.change(others | self._fixed, [self._service] if others else (), others, own)
        for objects in gone:
            objects.close()

    def close(self) -> None:
        self._client.close()
        for objects in self._announced.values():
            objects.close()


class PoolClient:
    """What every daemon needs for the pool `config.pool`: reading the chain, sending to it, fetching objects. A `chain`
    may be shared by several; without one a connection is made, which sends as `account`. If a stranger `announced` the
    sources of `objects`, they have to be public unless the configuration allows others. Only `state`, `refresh`,
    `pool`, `suite`, `objects`, `weights` and, once the pool is known, `pool_config` are thread-safe. Raises what
    ChainConnection does."""

    def __init__(
        self,
        config: ProcessConfig,
        account: LocalAccount | None,
        chain: ChainConnection | None = None,
        announced: bool = False,
    ) -> None:
        self.config, self._shared = config, chain is not None
        self.chain = chain or ChainConnection(config, account)
        self.client, self.suite, self.home = self.chain.client, self.chain.suite, self.chain.home
        bases = [config.orchestrator.rstrip("/") + OBJECTS, *config.mirrors]
        private = config.allow_private_sources
        self.objects = HttpObjects(bases, OBJECT_SECONDS, allow_private=private, announced=announced)
        self.sources = PoolSources(self.objects, config.orchestrator, lambda: self.pool_id, private, announced)
        self.fetch_shard: FetchObject = self.sources.spread.fetch
        """Where `weights` come from; a process that serves them to others puts its relay in between."""
        self.newest_weights = -1
        """The newest policy step whose weights were fetched and checked."""
        self.before_close: list[Callable[[], None]] = []
        self._seeds: dict[int, bytes] = {}
        self._generation = self.state.generation

    @property
    def state(self) -> State:
        """The newest snapshot of the chain; a snapshot never changes (`chain.indexer.projection`)."""
        return self.chain.state

    @property
    def pool_id(self) -> PoolId:
        return PoolId(self.client.chain_id, self.suite.pools.address, self.config.pool)

    def refresh(self) -> State:
        """Poll the chain once and return the newest state. After a reorganisation nothing read before holds."""
        return self.chain.refresh()

    def pool(self) -> Pool | None:
        return self.state.pools.get(self.config.pool)

    def seed(self, step: Step) -> bytes | None:
        """Return the step's public seed, or None until its block is `confirmations` deep."""
        if self.state.generation != self._generation:
            self._generation = self.state.generation
            self._seeds.clear()
        if step.step not in self._seeds and self.state.head >= step.seed_block + self.config.confirmations:
            seed = self.suite.step_seed(self.config.pool, step)
            if seed is not None:
                self._seeds[step.step] = seed
        return self._seeds.get(step.step)

    def seeds(self, behind: int) -> dict[int, bytes]:
        """Return the confirmed seeds of the newest `behind` + 1 steps."""
        pool = self.pool()
        steps = pool.steps[-behind - 1 :] if pool else []
        seeds = {step.step: self.seed(step) for step in steps}
        return {step: seed for step, seed in seeds.items() if seed is not None}

    def pool_config(self, timeout: float = 120.0) -> PoolConfig:
        """Return the pool's configuration by its hash on chain, kept in the home folder, with its environments'
        files."""

        def published() -> Pool | None:
            if self.pool() is None:
                self.refresh()
            return self.pool()

        def document() -> bytes | None:
            try:
                return self.objects(object_key("configs", pool.config_hash), _MAX_CONFIG_BYTES)
            except MusterError as error:
                log.debug("%s", error)
                return None

        pool = wait_for(f"pool {self.config.pool} on chain", published, timeout, hint="check the pool's number")
        path = self.home / f"pool-{self.config.pool}.json"
        data = path.read_bytes() if path.exists() else b""
        if hashlib.sha256(data).digest() != pool.config_hash:
            data = wait_for("the pool's configuration document", document, timeout)
            write_atomic(path, data)
        config = PoolConfig.parse(data, "the pool's configuration document")
        fetch_files(config, self.objects)
        return config

    def weights(self, work: Work, keep: int = KEPT_VERSIONS) -> Path:
        """Return the folder of the model for this work, fetched and checked. Thread-safe."""
        return self._fetched(work.manifest, work.id.step, keep)

    def step_weights(self, step: int, keep: int = KEPT_VERSIONS) -> Path:
        """Return the folder of the model of a policy step on chain; see `weights`."""
        pool = self.pool()
        if pool is None or not 0 <= step < len(pool.steps):
            raise IntegrityError(f"policy step {step} is not on chain", "wait for it")
        return self._fetched(pool.steps[step].manifest, step, keep)

    def _fetched(self, manifest: bytes, step: int, keep: int) -> Path:
        pool = self.pool()
        if pool is None:
            raise IntegrityError(f"pool {self.config.pool} is not on chain", "wait for it")
        scope = ManifestScope(self.pool_id, pool.owner)
        self.sources.look()
        folder = fetch(
            manifest,
            self.sources.spread,
            self.config.cache,
            scope,
            step,
            keep,
            fetch_object=self.fetch_shard,
        )
        self.newest_weights = max(self.newest_weights, step)
        return folder

    def close(self) -> None:
        for end in self.before_close:
            end()
        self.sources.close()
        self.objects.close()
        if not self._shared:
            self.chain.close()
