"""A node or validator as a peer: what it fetches for itself it serves to others, if its configuration says so."""

import logging

from protocol.accounts import LocalAccount
from runtime.pool_client import PoolClient
from runtime.relay.pool_relay import PoolRelay

log = logging.getLogger("muster.relay")


def serve_as_peer(client: PoolClient, account: LocalAccount | None) -> None:
    """Serve the pool's weights until the client is closed, and take its own from what is served, so that nothing is
    fetched twice. Raises ConfigError if the port is in use."""
    serve = client.config.serve_weights
    if serve is None:
        return
    relay = PoolRelay(client, serve, account)
    client.bring_weights = relay.bring
    client.before_close.append(relay.stop)
    relay.start()
    log.info("serving the weights of pool %d at %s:%d", client.config.pool, serve.host, serve.port)
