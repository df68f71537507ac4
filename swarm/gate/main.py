"""`run(config_path)`: a swarm's gate."""

import logging
from contextlib import ExitStack
from pathlib import Path

from fastapi import FastAPI

from chain.client import ChainClient
from chain.contracts.swarms import Swarms
from chain.deployment import Deployment
from orchestrator.auth import RequestGuard
from protocol.documents import load_document
from protocol.errors import ConfigError
from protocol.http.signing import AuthScope
from protocol.swarm.document import SwarmDocument
from protocol.swarm.envelope import EnvelopeLimits
from protocol.swarm.identity import NO_CHAIN, SwarmId
from runtime.http_server import HttpServer, bound, server_options
from runtime.process import start
from storage.bucket import Bucket
from swarm.config import SwarmChainConfig
from swarm.gate.config import GateConfig
from swarm.gate.index import EnvelopeIndex
from swarm.gate.members import Members, NamedMembers, StakedMembers
from swarm.gate.nonces import RecentNonces
from swarm.gate.routes import create_app
from swarm.gate.service import SwarmGate

log = logging.getLogger("muster.swarm")
_PATIENCE = 5.0


class GateDaemon:
    """The HTTP server with everything that it opened."""

    def __init__(self, config: GateConfig) -> None:
        with ExitStack() as stack:
            self._listener = stack.enter_context(bound(config.host, config.port))
            self._server = HttpServer(server_options(build(config, stack), config.connections))
            self._opened = stack.pop_all()
        self._url = config.url

    def run(self) -> int:
        log.info("serving %s", self._url)
        with self._opened:
            self._server.run(sockets=[self._listener])
        return 0

    def stop(self) -> None:
        self._server.should_exit = True


def run(config_path: Path) -> None:
    """Serve until SIGINT or SIGTERM. Raises MusterError, before anything is served, for what a user can mend."""
    start(config_path, GateConfig, GateDaemon)


def build(config: GateConfig, stack: ExitStack) -> FastAPI:
    """Open everything the gate needs; `stack` closes it."""
    document = load_document(config.document, SwarmDocument)
    swarm, members = _whose(config, document, stack)
    index = EnvelopeIndex(config.home / "gate.sqlite")
    stack.callback(index.close)
    limits = EnvelopeLimits.of(swarm, document)
    gate = SwarmGate(limits, members, Bucket(config.s3), index, config.per_hour, config.bytes_per_hour)
    guard = RequestGuard(AuthScope.of(config.url, swarm.chain_id, swarm.swarms), RecentNonces())
    return create_app(gate, guard, config.rate, config.burst)


def _whose(config: GateConfig, document: SwarmDocument, stack: ExitStack) -> tuple[SwarmId, Members]:
    if config.chain is None:
        return NO_CHAIN, NamedMembers(config.members)
    swarms = _swarms(config.chain, stack)
    number = config.chain.swarm
    if swarms.swarm_of(number).document != document.digest:
        raise ConfigError(f"swarm {number} has another document than {config.document}", "name that swarm's")
    staked = StakedMembers(swarms, number, config.chain.confirmations, config.chain.refresh_seconds)
    return swarms.swarm_id(number), staked


def _swarms(chain: SwarmChainConfig, stack: ExitStack) -> Swarms:
    deployment = Deployment.load(chain.deployment)
    client = ChainClient(chain.rpc, deployment.chain_id, None, patience=_PATIENCE, timeout=_PATIENCE)
    stack.callback(client.close)
    deployment.check_genesis(client)
    return Swarms(client, deployment)
