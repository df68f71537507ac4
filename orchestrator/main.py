"""`muster pool serve`: the service in one process, or in several workers that share its port."""

import logging
import os
import shutil
import socket
from contextlib import ExitStack, closing
from pathlib import Path

from fastapi import FastAPI
from uvicorn.supervisors import Multiprocess

from chain.client import ChainClient
from chain.deployment import Deployment, known_rpc
from chain.indexer.follower import Follower
from chain.indexer.projection import Projection
from chain.suite import Suite
from orchestrator.app import create_app
from orchestrator.auth import NonceStore, RequestGuard
from orchestrator.background import BackgroundTask, Leader
from orchestrator.chain import ChainWatcher, PoolView
from orchestrator.config import RELEASES_FILE, OrchestratorConfig
from orchestrator.db import Database, default_url
from orchestrator.relay import Claims, Relay
from orchestrator.service import Service
from orchestrator.sponsor import Sponsor
from orchestrator.uploads import Uploads
from protocol.accounts import LocalAccount
from protocol.api.endpoints import JOINS
from protocol.api.run import PoolAccess
from protocol.api.work import ReceiptSigner
from protocol.config import PoolConfig
from protocol.encoding import load_document
from protocol.errors import ConfigError, MusterError
from protocol.files import allow_files, die_with_parent, explained, is_locked
from protocol.http.signing import AuthScope
from protocol.identity import PoolId
from protocol.rollout_file.rows import Limits
from runtime.entry import end_with_threads, run_role, start_logging
from runtime.environment_files import publish_files
from runtime.process import Daemon, make_home, start
from runtime.server import SPARE_FILES, HttpDaemon, address_of, bound, server_options
from storage.keys import object_key
from storage.s3 import Bucket

log = logging.getLogger("muster.orchestrator")
PRUNE_SECONDS = 30.0
# By which workers find their configuration file.
_WORKER_CONFIG = "MUSTER_ORCHESTRATOR_CONFIG"


def run(config_path: Path) -> None:
    """Serve until a signal. Raises MusterError, before anything is served, for what a user can mend."""

    def make(config: OrchestratorConfig) -> Daemon:
        return Orchestrator(config) if config.workers == 1 else Workers(config, config_path)

    start(config_path, OrchestratorConfig, make)


class Orchestrator(HttpDaemon):
    """The service in this process."""

    def __init__(self, config: OrchestratorConfig) -> None:
        with ExitStack() as stack:
            listener = stack.enter_context(bound(config.host, config.port))
            app = build(config, config.key.open(), config.home, stack)
            opened = stack.pop_all()
        super().__init__(
            server_options(app, config.connections, trusted_proxies=config.trusted_proxies), listener, opened
        )
        log_address(config, listener)


class Workers:
    """Uvicorn's supervisor of several replicas. Everything is opened here first, so that what is wrong is said once."""

    def __init__(self, config: OrchestratorConfig, config_path: Path) -> None:
        if config.key.password_file is None:
            raise ConfigError("several workers need `key.password_file`", "name it, or set `workers` to 1")
        if is_locked(config.home / "events.sqlite.lock"):
            raise ConfigError(f"another process works in {config.home}", "stop it, or give each a `home` of its own")
        listener = bound(config.host, config.port)
        with ExitStack() as stack:
            build(config, config.key.open(), config.home, stack)
        metrics = config.home / "metrics"
        with explained(f"empty {metrics}", "check `home`"):
            shutil.rmtree(metrics, ignore_errors=True)
            metrics.mkdir(parents=True)
        # prometheus_client shares counters among processes by its variable.
        os.environ |= {_WORKER_CONFIG: str(config_path.resolve()), "PROMETHEUS_MULTIPROC_DIR": str(metrics)}
        proxies, factory = config.trusted_proxies, "orchestrator.main:worker_app"
        options = server_options(factory, config.connections, trusted_proxies=proxies, workers=config.workers)
        allow_files(2 * config.connections + SPARE_FILES)  # workers inherit it
        self._supervisor = Multiprocess(options, [listener])
        log_address(config, listener)

    def run(self) -> int:
        self._supervisor.run()
        log.info("stopped")
        return 0

    def stop(self) -> None:
        self._supervisor.should_exit.set()


def worker_app() -> FastAPI:
    """Build the application of one worker; uvicorn calls it in the worker's process."""
    die_with_parent()
    start_logging()
    try:
        config = load_document(Path(os.environ[_WORKER_CONFIG]), OrchestratorConfig)
        home = _worker_home(config.home)
        end_with_threads(home)  # uvicorn starts another worker
        return build(config, config.key.open(), home, ExitStack())
    except MusterError as error:
        log.error("this worker cannot start: %s", error)
        raise SystemExit(1) from None  # uvicorn starts another


def _worker_home(home: Path) -> Path:
    """Return a folder for the chain's events that no other worker uses; the first is the service's own."""
    number, folder = 1, home
    while is_locked(folder / "events.sqlite.lock"):
        number += 1
        folder = home / f"process-{number}"
    make_home(folder)
    return folder


def log_address(config: OrchestratorConfig, listener: socket.socket) -> None:
    """Log where the service listens, and where clients reach it if a reverse proxy has to lead there."""
    address = address_of(listener)
    log.info("listening on http://%s for pool %d", address, config.pool)
    if config.public_url:
        log.info("clients reach this service at %s: the reverse proxy there must forward to %s", config.url, address)


def build(config: OrchestratorConfig, signer: LocalAccount, home: Path, stack: ExitStack) -> FastAPI:
    """Open everything the service needs, with the events of the chain in `home`; `stack` closes it."""
    pool_config = PoolConfig.load(config.pool_config)
    deployment = Deployment.load(config.deployment)
    pools = deployment.address("Pools")
    db = stack.enter_context(closing(Database(config.database or default_url(config.home))))
    client = ChainClient(config.rpc, deployment.chain_id, signer, timeout=8.0, patience=10.0)
    stack.callback(client.close)
    suite = Suite(client, deployment)
    follower = stack.enter_context(closing(Follower(client, deployment, home / "events.sqlite")))
    view = PoolView(Projection(follower), config.pool, config.confirmations)
    view.refresh()
    check_pool(view, pool_config, config.owner)
    db.bind_to({"chain": str(deployment.chain_id), "pools": pools, "pool": str(config.pool)})
    bucket = Bucket(config.s3)
    bucket.put(object_key("configs", pool_config.digest), pool_config.canonical())
    publish_files(pool_config, bucket)
    auth_scope = AuthScope.of(config.url, deployment.chain_id, pools)
    receipts = ReceiptSigner(signer, PoolId(deployment.chain_id, auth_scope.pools, config.pool))
    leader = stack.enter_context(closing(Leader(db)))
    uploads = Uploads(db, view, bucket, receipts, Limits.of(pool_config.work).file_bytes)
    service = Service(
        db,
        view,
        bucket,
        pool_config,
        uploads,
        Relay(db, view, uploads, suite, config.lane_seconds, leader.leads),
        Sponsor(db, view, suite, config.most_loans, config.loans_a_day, leader.leads),
        chain_watcher=ChainWatcher(view, suite),
        heartbeat_seconds=config.heartbeat_seconds,
        lease_seconds=config.lease_seconds,
        access=pool_access(config, deployment, pool_config),
        allow_private_sources=config.allow_private_sources,
        workers=config.workers,
        releases_file=config.home / RELEASES_FILE,
    )
    nonces = NonceStore(db)
    service.tasks = background_tasks(service, nonces, leader, Claims(view, suite.pools, leader.leads), config)
    open_to_all = frozenset({JOINS.path} if config.most_loans else ())
    known = lambda address: address in config.relays or view.knows(address)  # noqa: E731
    guard = RequestGuard(auth_scope, nonces.use, known, open_to_all)
    return create_app(service, guard, rate=config.rate, burst=config.burst)


def background_tasks(
    service: Service, nonces: NonceStore, leader: Leader, claims: Claims, config: OrchestratorConfig
) -> list[BackgroundTask]:
    """Return the threads of a replica, not started."""

    def prune() -> None:
        leads = leader.leads()
        service.leases.prune(leads)
        if leads:
            nonces.prune(service.clock())
            service.uploads.prune()

    assert service.chain_watcher is not None
    return [
        BackgroundTask("chain", service.chain_watcher.work, config.poll_seconds),
        BackgroundTask("pruning", prune, PRUNE_SECONDS),
        BackgroundTask("relay", service.relay.turn, config.poll_seconds),
        BackgroundTask("claims", claims.turn, config.claim_seconds),
        BackgroundTask("membership", service.sponsor.turn, config.poll_seconds),
        BackgroundTask("loans", service.sponsor.take_back, config.claim_seconds),
    ]


def pool_access(config: OrchestratorConfig, deployment: Deployment, pool_config: PoolConfig) -> PoolAccess:
    """Return what newcomers are told; never our own RPC URLs, which may hold a provider's key."""
    announced = [url for url in deployment.services.get("rpc", "").split(",") if url]
    rpc = list(config.public_rpc) or announced or list(known_rpc(deployment.network))
    document = deployment.model_dump_json()
    lends = config.most_loans > 0
    return PoolAccess(pool=config.pool, rpc=rpc, config_hash=pool_config.digest.hex(), deployment=document, lends=lends)


def check_pool(view: PoolView, config: PoolConfig, owner: str) -> None:
    """Raise ConfigError unless the pool on chain has this configuration and (if given) owner."""
    pool = view.pool(view.state)
    if pool is None:
        raise ConfigError(f"there is no pool {view.pool_id} on this chain", "create it: muster pool create")
    if pool.config_hash != config.digest:
        chain, ours = pool.config_hash.hex()[:16], config.digest.hex()[:16]
        what = f"pool {view.pool_id} was created with configuration {chain}…, the file is {ours}…"
        raise ConfigError(what, "name the document the pool was created with")
    if owner and owner.lower() != pool.owner.lower():
        raise ConfigError(f"pool {view.pool_id} belongs to {pool.owner}, not {owner}", "correct `owner`")


if __name__ == "__main__":
    run_role(run)
