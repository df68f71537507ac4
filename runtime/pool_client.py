"""One process's connection to one pool: chain, projected state, public seeds, objects, weights."""

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path

from chain.indexer.records import Pool, Step
from chain.indexer.state import State
from protocol.accounts import LocalAccount
from protocol.api.endpoints import OBJECTS
from protocol.config import PoolConfig
from protocol.errors import IntegrityError, MusterError
from protocol.files import write_atomic
from protocol.identity import PoolId
from protocol.seeds import Work
from protocol.waits import wait_for
from runtime.chain_connection import ChainConnection
from runtime.environment_files import fetch_files
from runtime.pool_sources import OBJECT_SECONDS, PoolSources
from runtime.process import ProcessConfig
from storage.keys import object_key
from storage.transfers import HttpObjects
from storage.weights.cache import KEPT_VERSIONS
from storage.weights.fetch import FetchObject, fetch
from storage.weights.manifest import ManifestScope

log = logging.getLogger("muster.pool")
_MAX_CONFIG_BYTES = 1 << 20


class PoolClient:
    """What every daemon shares of its work for the pool `config.pool`: reading the chain, sending to it, fetching.

    `chain` may be shared with the clients of other pools; without one a connection is made, which sends as `account`.
    `objects`: the pool's files, from the orchestrator or a mirror, which have to be public if a stranger `announced`
    them and the configuration does not allow others.

    Only `state`, `refresh`, `pool`, `suite`, `objects`, `weights` and, once the pool is known, `pool_config` may be
    used from several threads. The constructor raises what that of `ChainConnection` does.
    """

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
        """Poll the chain once. After a rollback nothing read before holds."""
        return self.chain.refresh()

    def pool(self) -> Pool | None:
        return self.state.pools.get(self.config.pool)

    def seed(self, step: Step) -> bytes | None:
        """The step's public seed, once its block is `confirmations` deep."""
        if self.state.generation != self._generation:
            self._generation = self.state.generation
            self._seeds.clear()
        if step.step not in self._seeds and self.state.head >= step.seed_block + self.config.confirmations:
            seed = self.suite.step_seed(self.config.pool, step)
            if seed is not None:
                self._seeds[step.step] = seed
        return self._seeds.get(step.step)

    def seeds(self, behind: int) -> dict[int, bytes]:
        """Confirmed seeds of the newest `behind` + 1 steps."""
        pool = self.pool()
        steps = pool.steps[-behind - 1 :] if pool else []
        found = {step.step: self.seed(step) for step in steps}
        return {step: seed for step, seed in found.items() if seed is not None}

    def pool_config(self, timeout: float = 120.0) -> PoolConfig:
        """The pool's configuration document, by its hash on chain; kept in the home folder. Its environments' files are
        fetched, too."""

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
        """The folder of the model that the work is made with, fetched and checked. Safe in any thread. Raises
        IntegrityError or what fetching raises."""
        return self._fetched(work.manifest, work.id.step, keep)

    def step_weights(self, step: int, keep: int = KEPT_VERSIONS) -> Path:
        """The same of a policy step that is on chain."""
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
        opened = self.sources.spread.checked
        folder = fetch(
            manifest,
            self.sources.spread,
            self.config.cache,
            scope,
            step,
            keep,
            open_manifest=opened,
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
