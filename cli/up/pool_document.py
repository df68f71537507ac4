"""The pool's configuration document, from its service, by its hash on chain."""

import hashlib

from protocol.api.endpoints import OBJECTS
from protocol.config import PoolConfig
from protocol.errors import IntegrityError
from storage.keys import object_key
from storage.transfers import HttpObjects

_MAX_BYTES = 1 << 20


def fetch_pool_config(service: str, config_hash: bytes) -> PoolConfig:
    """Raises UnreachableError, or IntegrityError if what the service sends is not that document."""
    # Whoever asks named this service, so it may point to wherever its bucket is.
    objects = HttpObjects([service.rstrip("/") + OBJECTS], timeout=20.0, allow_private=True)
    try:
        data = objects(object_key("configs", config_hash), _MAX_BYTES)
    finally:
        objects.close()
    if hashlib.sha256(data).digest() != config_hash:
        raise IntegrityError(f"{service} sent another configuration than the pool's", "ask the pool's owner")
    return PoolConfig.parse(data, "the pool's configuration document")
