"""What schemathesis loads before it calls the service: every POST is signed by one of the pool's nodes."""

import itertools
import os
import time
from typing import Any

import schemathesis

from benchmarks.load_pool import CHAIN_ID, POOLS, node_keys
from protocol.http.signing import Realm

NODES = 200


class NodeSignature:
    """An auth of the library requests: signs exactly the bytes that are about to be sent."""

    def __init__(self, url: str) -> None:
        self._realm, self._keys = Realm.of(url, CHAIN_ID, POOLS), itertools.cycle(node_keys(NODES))

    def __call__(self, request: Any) -> Any:
        if request.method == "POST":
            body = request.body or b""
            data = body.encode() if isinstance(body, str) else body
            lines = next(self._keys).sign(self._realm, request.path_url, data, time.time(), os.urandom(32))
            request.headers.update(line.split(": ", 1) for line in lines.decode().splitlines())
        return request


schemathesis.auth.set_from_requests(NodeSignature(os.environ["MUSTER_SCHEMA_URL"]))
