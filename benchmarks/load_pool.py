"""The pool that the load benchmark's replicas serve: 10,000 nodes, and files that go on chain by the clock.

Every process derives the same chain from the same addresses and start, so replicas need not talk to one another.
"""

import hashlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from coincurve import PrivateKey
from eth_utils.address import to_checksum_address

from benchmarks.made_up_chain import TERMS, address
from chain.indexer.logs import Batch, Event
from chain.indexer.records import Terms, pack_work
from protocol.config import ModelConfig, PoolConfig
from protocol.encoding import keccak
from protocol.environments import EnvironmentConfig
from protocol.http.signing import Realm, request_digest
from protocol.training import TrainConfig
from protocol.verdict import Code

CHAIN_ID, POOL = 31337, 1
POOLS = address(4)
FILES_PER_SECOND = 33
DECIDED_AFTER = 20 * FILES_PER_SECOND
CONFIG = PoolConfig(
    name="load",
    model=ModelConfig(source="tiny"),
    environments=(EnvironmentConfig(name="sums"),),
    train=TrainConfig(steps=1000, files_per_step=10_000, async_level=1),
)


class NodeKey:
    """A node's key: `address` (checksum) and what it needs to sign requests."""

    def __init__(self, number: int) -> None:
        self._key = PrivateKey(hashlib.sha256(b"load %d" % number).digest())
        self.address = str(to_checksum_address(keccak(self._key.public_key.format(compressed=False)[1:])[12:]))

    def sign(self, realm: Realm, path: str, body: bytes, now: float, nonce: bytes) -> bytes:
        """The four headers of a POST, as they go over the wire."""
        signature = self._key.sign_recoverable(request_digest(realm, "POST", path, body, int(now), nonce), hasher=None)
        made = signature[:64] + bytes([signature[64] + 27])
        return (
            f"X-Muster-Address: {self.address}\r\nX-Muster-Time: {int(now)}\r\n"
            f"X-Muster-Nonce: 0x{nonce.hex()}\r\nX-Muster-Signature: 0x{made.hex()}\r\n"
        ).encode()


def asking(nodes: int) -> int:
    """How many of the nodes ask for slots during the run; the others have one from the start."""
    return nodes // 5


def node_keys(count: int) -> list[NodeKey]:
    return [NodeKey(number) for number in range(count)]


def lease_id(node: int) -> str:
    """Of the lease that a node has from the start."""
    return hashlib.sha256(b"lease %d" % node).hexdigest()[:32]


@dataclass
class TimedPool:
    """An event source (`chain.indexer.projection.EventSource`): from Unix time `start` on, the nodes that had leases
    send their files one after another, and each is accepted twenty seconds later."""

    addresses: list[str]
    start: float
    head: int = 0
    _told: int = 0

    def history(self) -> Iterable[Event]:
        self._told = 0
        self.head = 10
        return list(self._founding())

    def poll(self) -> Batch:
        due = max(0, int((time.time() - self.start) * FILES_PER_SECOND))
        events = [event for number in range(self._told, due) for event in self._file(number)]
        self._told = max(self._told, due)
        if events:
            self.head += 1
        return Batch(None, events, self.head)

    def _founding(self) -> Iterator[Event]:
        owner = address(5000)
        terms = dict(zip((name.rstrip("_") for name in Terms.__annotations__), TERMS, strict=True))
        yield self._event(
            "Pools", "PoolCreated", pool=POOL, owner=owner, configHash=CONFIG.digest, terms=terms, unbonding=9
        )
        yield self._event("Pools", "PoolFunded", pool=POOL, amount=10**15, **{"from": owner})
        for node in self.addresses:
            yield self._event("Stakes", "NodeRegistered", node=node, operator=owner, stake=5000)
            yield self._event("Pools", "NodeJoined", pool=POOL, node=node, operator=owner, joinedStep=0, limit=10**9)
        step = {"step": 0, "manifestHash": b"\2" * 32, "canaryRoot": b"\3" * 32, "seedBlock": 5}
        yield self._event("Pools", "StepPublished", pool=POOL, **step)

    def _file(self, number: int) -> Iterator[Event]:
        first = asking(len(self.addresses))
        leased = len(self.addresses) - first
        node, counter = self.addresses[first + number % leased], number // leased
        placed = number << 96 | pack_work(POOL, 0, counter, 100, 8)
        sha = hashlib.sha256(b"file %d" % number).digest()
        yield self._event("Pools", "WorkSubmitted", node=node, placed=placed, root=sha, fileHash=sha)
        old = number - DECIDED_AFTER
        if old >= 0:
            done = {"file": POOL << 32 | old, "code": int(Code.ACCEPT), "time": int(time.time())}
            yield self._event("Pools", "FileSettled", **done)

    def _event(self, contract: str, name: str, **args: Any) -> Event:
        return Event(self.head, bytes(32), "0x" + "00" * 32, 0, contract, name, args, int(time.time()))
