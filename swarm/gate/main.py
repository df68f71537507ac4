"""`run(config_path)`: a swarm's gate."""

import logging
from contextlib import ExitStack
from pathlib import Path

from fastapi import FastAPI

from orchestrator.auth import RequestGuard
from protocol.encoding import load_document
from protocol.http.signing import AuthScope
from protocol.swarm.document import SwarmDocument
from protocol.swarm.envelope import DOMAIN, EnvelopeLimits
from runtime.process import start
from runtime.server import HttpServer, bound, server_options
from storage.s3 import Bucket
from swarm.gate.config import GateConfig
from swarm.gate.index import EnvelopeIndex
from swarm.gate.nonces import RecentNonces
from swarm.gate.routes import create_app
from swarm.gate.service import SwarmGate

log = logging.getLogger("muster.swarm")


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
    index = EnvelopeIndex(config.home / "gate.sqlite")
    stack.callback(index.close)
    gate = SwarmGate(
        EnvelopeLimits.of(document), config.members, Bucket(config.s3), index, config.per_hour, config.bytes_per_hour
    )
    guard = RequestGuard(AuthScope.of(config.url, DOMAIN.chain_id, DOMAIN.contract), RecentNonces())
    return create_app(gate, guard, config.rate, config.burst)
