"""One process of the service: what it opens, and what it serves."""

import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

from fastapi import FastAPI

from chain.client import ChainClient
from chain.deployment import Deployment, known_rpc
from chain.indexer.follower import Follower
from chain.indexer.projection import Projection
from chain.suite import Suite
from orchestrator.app import create_app
from orchestrator.attestor import Attestor
from orchestrator.config import OrchestratorConfig
from orchestrator.db import Database, default_url
from orchestrator.guard import RequestGuard
from orchestrator.housekeeping import Housekeeper
from orchestrator.indexer import Indexer
from orchestrator.interpreter import settle
from orchestrator.leader import Leader
from orchestrator.nonces import NonceStore
from orchestrator.service import Service, ServiceParts
from orchestrator.shared_metrics import share_metrics
from orchestrator.solve_rates import SolveRateReader
from orchestrator.uploads import Uploads
from orchestrator.watch import Watch
from protocol.accounts import LocalAccount
from protocol.api.run import PoolAccess
from protocol.config import PoolConfig
from protocol.errors import ConfigError
from protocol.http.signing import Realm
from protocol.identity import PoolId
from protocol.receipts import ReceiptSigner
from runtime.environment_files import publish_files
from runtime.http_server import HttpServer, bound, server_options
from runtime.presence import keep_last_words
from runtime.process import make_home
from storage.keys import object_key
from storage.s3 import Bucket

log = logging.getLogger("muster.orchestrator")


class Orchestrator:
    """The HTTP server with everything that it opened. One `of` several processes listens when everything else is there,
    and keeps the events of the chain in a folder of its own, unless it is the first (`number` 0)."""

    def __init__(self, config: OrchestratorConfig, signer: LocalAccount, number: int = 0, of: int = 1) -> None:
        home = config.home / f"process-{number + 1}" if number else config.home
        make_home(home)
        with contextlib.ExitStack() as stack:
            if of > 1:
                share_metrics(config.home, number)
            else:
                self.listener = stack.enter_context(bound(config.host, config.port))
            app = build(config, signer, home, stack)
            if of > 1:
                self.listener = stack.enter_context(bound(config.host, config.port, shared=True))
                keep_last_words(config.home, "")  # another process's, before it was started again
            self.opened = stack.pop_all()
        self.server = HttpServer(server_options(app, config.connections))
        self.title = f"pool {config.pool} at {config.url}"

    def run(self) -> int:
        log.info("serving %s", self.title)
        with self.opened:
            self.server.run(sockets=[self.listener])
        log.info("stopped")
        return 0

    def stop(self) -> None:
        self.server.should_exit = True


def build(config: OrchestratorConfig, signer: LocalAccount, home: Path, stack: contextlib.ExitStack) -> FastAPI:
    """Open everything the service needs, with the events of the chain in `home`; `stack` closes it."""
    pool_config = PoolConfig.load(config.pool_config)
    deployment = Deployment.load(config.deployment)
    pools = deployment.address("Pools")
    db = Database(config.database or default_url(config.home))
    stack.callback(db.close)
    client = ChainClient(config.rpc, deployment.chain_id, signer, timeout=8.0, patience=10.0)
    stack.callback(client.close)
    suite = Suite(client, deployment)
    follower = Follower(client, deployment, home / "events.sqlite")
    stack.callback(follower.close)
    watch = Watch(Projection(follower), config.pool, config.confirmations)
    watch.refresh()
    check_pool(watch, pool_config, config.owner)
    db.bind_to({"chain": str(deployment.chain_id), "pools": pools, "pool": str(config.pool)})
    bucket = Bucket(config.s3)
    bucket.put(object_key("configs", pool_config.digest), pool_config.canonical())
    publish_files(pool_config, bucket)
    realm = Realm.of(config.url, deployment.chain_id, pools)
    receipts = ReceiptSigner(signer, PoolId(deployment.chain_id, realm.pools, config.pool))
    leader = Leader(db)
    stack.callback(leader.close)
    uploads = Uploads(db, watch, bucket, receipts, config.max_upload_bytes)
    attestor = Attestor(suite.court, config.pool, (uploads.has_receipt, uploads.is_stored))
    indexer = Indexer(watch, suite, attestor, config.poll_seconds, leader.leads)
    taken = {"lease_seconds", "lease_limit", "stall_seconds", "allow_private_sources", "processes"}
    limits = config.model_dump(include=taken)
    access = pool_access(config, deployment, pool_config)
    parts = ServiceParts(
        db, watch, bucket, pool_config, uploads, indexer=indexer, batched=True, access=access, **limits
    )
    service = Service(parts)
    nonces = NonceStore(db)
    keeper = Housekeeper(service.heartbeats, service.leases, nonces, leader, config.flush_seconds)
    rates = SolveRateReader(service.rates, leader.leads)
    guard = RequestGuard(realm, nonces, lambda address: address in config.relays or watch.knows(address))

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        settle()
        for thread in (indexer, keeper, rates):
            thread.start()
        yield
        for thread in (rates, keeper, indexer):
            thread.stop()

    return create_app(service, guard, rate=config.rate, burst=config.burst, lifespan=lifespan)


def pool_access(config: OrchestratorConfig, deployment: Deployment, pool_config: PoolConfig) -> PoolAccess:
    """What newcomers are told; never our own RPC URLs, which may hold a provider's key. Those of the deployment file
    are public with it."""
    announced = [url for url in deployment.services.get("rpc", "").split(",") if url]
    rpc = list(config.public_rpc) or announced or list(known_rpc(deployment.network))
    document = deployment.model_dump_json()
    return PoolAccess(pool=config.pool, rpc=rpc, config_hash=pool_config.digest.hex(), deployment=document)


def check_pool(watch: Watch, config: PoolConfig, owner: str) -> None:
    """Raise ConfigError unless the pool on chain has this configuration and (if given) owner."""
    state = watch.state
    pool = watch.pool(state)
    if pool is None:
        raise ConfigError(f"there is no pool {watch.pool_id} on this chain", "create it: muster pool create")
    if pool.config_hash != config.digest:
        chain, ours = pool.config_hash.hex()[:16], config.digest.hex()[:16]
        what = f"pool {watch.pool_id} was created with configuration {chain}…, the file is {ours}…"
        raise ConfigError(what, "name the document the pool was created with")
    if owner and owner.lower() != pool.owner.lower():
        raise ConfigError(f"pool {watch.pool_id} belongs to {pool.owner}, not {owner}", "mend `owner`")
