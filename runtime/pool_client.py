"""One process's connection to one pool: chain, projected state, public seeds, objects, weights."""

import hashlib
import logging
from pathlib import Path

from eth_account.signers.local import LocalAccount

from chain.client import ChainClient
from chain.deployment import Deployment
from chain.follower import Follower
from chain.projection import Projection
from chain.records import Pool, Step
from chain.state import State
from chain.suite import Suite
from protocol.api.endpoints import OBJECTS
from protocol.config import PoolConfig
from protocol.errors import IntegrityError, MusterError
from protocol.files import write_atomic
from protocol.identity import PoolId
from protocol.seeds import Work
from protocol.waits import wait_for
from runtime.process import ProcessConfig, make_home
from storage.download import HttpObjects
from storage.keys import object_key
from storage.weights.cache import KEPT_VERSIONS
from storage.weights.fetch import fetch
from storage.weights.manifest import ManifestScope

log = logging.getLogger("muster.pool")
_MAX_CONFIG_BYTES = 1 << 20
_PATIENCE = 20.0


class PoolClient:
    """What every daemon shares of its work for the pool `config.pool`: reading the chain, sending to it, fetching.

    `suite`: the contracts; transactions are sent as `account`, if there is one. `state`: the newest state projected
    from events; `refresh` advances it. `objects`: the pool's files, from the orchestrator or a mirror. `home`: this
    process's folder for state that is valid on this chain only.

    Only `state`, `pool`, `suite`, `objects` and `weights` may be used from several threads. The constructor raises
    ConfigError for a wrong deployment or chain, UnreachableError when no RPC endpoint answers.
    """

    def __init__(self, config: ProcessConfig, account: LocalAccount | None) -> None:
        self.config = config
        self.deployment = Deployment.load(config.deployment)
        self.client = ChainClient(config.rpc, self.deployment.chain_id, account, patience=_PATIENCE)
        self.suite = Suite(self.client, self.deployment)
        # A chain that was started anew, or contracts deployed again, must not find the state of the former ones.
        self.home = config.home / f"{self.deployment.genesis[2:10]}-{self.suite.court.address[2:10].lower()}"
        make_home(self.home)
        self.projection = Projection(Follower(self.client, self.deployment, self.home / "events.sqlite"))
        bases = [config.orchestrator.rstrip("/") + OBJECTS, *config.mirrors]
        self.objects = HttpObjects(bases, timeout=60.0, allow_private=config.allow_private_sources)
        self._seeds: dict[int, bytes] = {}
        self._generation = self.projection.state.generation

    @property
    def state(self) -> State:
        """The newest snapshot of the chain; a snapshot never changes (`chain.projection`)."""
        return self.projection.state

    @property
    def pool_id(self) -> PoolId:
        return PoolId(self.deployment.chain_id, self.suite.pools.address, self.config.pool)

    def account_client(self, account: LocalAccount) -> Suite:
        """The same suite, sending as another account."""
        client = ChainClient(self.config.rpc, self.deployment.chain_id, account, patience=_PATIENCE)
        return Suite(client, self.deployment, check=False)

    def refresh(self) -> State:
        """Poll the chain once. After a rollback nothing read before holds."""
        self.projection.refresh()
        if self.projection.state.generation != self._generation:
            log.info("the chain was reorganised: going on from block %d", self.state.head)
            self._generation = self.projection.state.generation
            self._seeds.clear()
        return self.state

    def pool(self) -> Pool | None:
        return self.state.pools.get(self.config.pool)

    def seed(self, step: Step) -> bytes | None:
        """The step's public seed, once its block is `confirmations` deep."""
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
        """The pool's configuration document, by its hash on chain; kept in the home folder."""

        def published() -> Pool | None:
            self.refresh()
            return self.pool()

        def document() -> bytes | None:
            try:
                return self.objects(object_key("configs", pool.config_hash), _MAX_CONFIG_BYTES)
            except MusterError as error:
                log.debug("%s", error)
                return None

        pool = wait_for(f"pool {self.config.pool} on chain", published, timeout, hint="check the pool's number")
        path = self.home / "pool.json"
        data = path.read_bytes() if path.exists() else b""
        if hashlib.sha256(data).digest() != pool.config_hash:
            data = wait_for("the pool's configuration document", document, timeout)
            write_atomic(path, data)
        return PoolConfig.parse(data, "the pool's configuration document")

    def weights(self, work: Work, keep: int = KEPT_VERSIONS) -> Path:
        """The folder of the model that the work is made with, fetched and checked. Safe in any thread. Raises
        IntegrityError or what fetching raises."""
        pool = self.pool()
        if pool is None:
            raise IntegrityError(f"pool {self.config.pool} is not on chain", "wait for it")
        scope = ManifestScope(self.pool_id, pool.owner)
        return fetch(work.manifest, self.objects, self.config.cache, scope, step=work.id.step, keep=keep)

    def close(self) -> None:
        self.objects.close()
        self.client.close()
