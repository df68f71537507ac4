"""`muster relay run`: one relay for one pool."""

import logging
import sys
import threading
from pathlib import Path
from typing import NoReturn

from protocol.errors import MusterError
from runtime.pool_client import PoolClient
from runtime.process import start
from runtime.relay.config import RelayConfig
from runtime.relay.pool_relay import PoolRelay
from storage.relay.flights import SWITCH_SECONDS

log = logging.getLogger("muster.relay")


def run(config_path: Path) -> NoReturn:
    """Serve until SIGINT or SIGTERM. Raises MusterError, before anything is served, for what a user can mend."""
    sys.setswitchinterval(SWITCH_SECONDS)
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
