"""Signing outside the isolation: an isolated worker holds no key and asks this server over a Unix socket.

The server runs in the process that started the isolated worker. It signs only what a worker of its pool sends: HTTP
requests to the pool's service, announcements of the weights that this worker serves, and the transactions by which it
submits, claims and attests. It gets every message in its parts and computes the digest itself, so it cannot be made to
sign anything else. Signatures are limited per minute. Whoever takes over the engine can thus send worthless files as
this node, but gets no key, no other signature and no other transaction.
"""

import json
import logging
import os
import socket
import socketserver
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast
from urllib.parse import urlsplit

from chain import abi
from chain.deployment import Deployment
from chain.transactions import price_limit
from protocol import signing
from protocol.accounts import LocalAccount
from protocol.api.work import ANNOUNCEMENT_DOMAIN, ANNOUNCEMENT_STRUCT
from protocol.errors import MusterError, UnreachableError
from protocol.http import signing as requests
from runtime.threads import essential
from worker.config import WorkerConfig

log = logging.getLogger("muster.isolation")
SOCKET = "MUSTER_SIGNER"
"""Environment variable of an isolated worker: the path of the signer's socket."""
_MOST_BYTES = 1 << 20
_SECONDS = 20.0
_REQUESTS_A_MINUTE, _TRANSACTIONS_A_MINUTE = 600, 60
_MOST_GAS = 5_000_000
_CLOCK_SECONDS = 120
_PATHS = ("/v1/leases", "/v1/uploads", "/v1/receipts", "/v1/heartbeats", "/v1/sources")


class SignatureRefused(MusterError):
    """Something that the signer does not sign."""


class _RateLimit:
    def __init__(self, most: int) -> None:
        self._most, self._times = most, deque[float]()
        self._lock = threading.Lock()

    def take(self) -> None:
        """Count one signature. Raises SignatureRefused if there were too many in the last minute."""
        with self._lock:
            now = time.monotonic()
            while self._times and self._times[0] < now - 60:
                self._times.popleft()
            if len(self._times) >= self._most:
                raise SignatureRefused(f"more than {self._most} signatures a minute", "wait")
            self._times.append(now)


class SigningRules:
    """What a worker of this configuration may have signed as `address`."""

    def __init__(self, config: WorkerConfig, deployment: Deployment, address: str) -> None:
        self._pool, self._chain_id, self._address = config.pool, deployment.chain_id, address
        self._pools, self._court = deployment.address("Pools"), deployment.address("Court")
        self._audience = requests.service_url(config.orchestrator)
        self._prefix = urlsplit(self._audience).path
        serve = config.serve_weights
        self._public_url = requests.service_url(serve.public_url) if serve and serve.public_url else None
        self._functions = {
            (contract, bytes(function.selector)): function
            for name, contract, functions in (
                ("Pools", self._pools, ("submit", "submitWithReceipt", "claim")),
                ("Court", self._court, ("attestByReceipt",)),
            )
            for function in (abi.load(name)[one] for one in functions)
        }

    def check_message(self, domain: signing.Domain, struct: str, values: list[signing.Value]) -> None:
        """Raise SignatureRefused unless this is a request to the pool's service or an announcement of this worker."""
        if (domain.chain_id, domain.contract.lower()) != (self._chain_id, self._pools.lower()):
            raise SignatureRefused("a message for other contracts", "")
        if (domain.name, struct) == (requests.DOMAIN, requests.STRUCT):
            _, path, _, audience, at, _ = values
            route = str(path).partition("?")[0]
            if audience != self._audience or not any(route == self._prefix + one for one in _PATHS):
                raise SignatureRefused(f"a request for {audience!r}, {route}", "")
            if not abs(int(cast(int, at)) - time.time()) <= _CLOCK_SECONDS:
                raise SignatureRefused("a request of another time", "")
            return
        if (domain.name, struct) == (ANNOUNCEMENT_DOMAIN, ANNOUNCEMENT_STRUCT):
            pool, url, _ = values
            if (pool, url) == (self._pool, self._public_url):
                return
        raise SignatureRefused(f"a message {struct.partition('(')[0]} of {domain.name}", "")

    def check_transaction(self, fields: dict[str, Any]) -> None:
        """Raise SignatureRefused unless the transaction submits, claims or attests in the pool, or fills a nonce."""
        if set(fields) - {"type", "chainId", "nonce", "value", "data", "gas", "to"} != {
            "maxFeePerGas",
            "maxPriorityFeePerGas",
        }:
            raise SignatureRefused("a transaction of another form", "")
        if (fields["type"], fields["chainId"], fields["value"]) != (2, self._chain_id, 0):
            raise SignatureRefused("a transaction that moves ether, or of another chain", "")
        if not (0 < fields["gas"] <= _MOST_GAS and 0 <= fields["maxFeePerGas"] <= 4 * price_limit()):
            raise SignatureRefused("a transaction that costs too much gas", "")
        data, to = bytes(fields["data"]), str(fields.get("to", ""))
        if to.lower() == self._address.lower() and not data:
            return  # fills a gap of nonces
        function = self._functions.get((to, data[:4]))
        if function is None:
            raise SignatureRefused(f"a call of 0x{data[:4].hex()} at {to}", "")
        named = function.inputs.named(data[4:])
        pool = named["work"]["packed"] >> 128 if "work" in named else named["pool"]
        if pool != self._pool or str(named.get("node", self._address)).lower() != self._address.lower():
            raise SignatureRefused(f"a call of {function.name} for pool {pool} or another node", "")


class SignerServer:
    """Serves signatures of `account` at a socket in `folder`, by `rules`. A context manager."""

    def __init__(self, folder: Path, account: LocalAccount, rules: SigningRules) -> None:
        self.path = folder / "signer.sock"
        self._account, self._rules = account, rules
        self._requests, self._transactions = _RateLimit(_REQUESTS_A_MINUTE), _RateLimit(_TRANSACTIONS_A_MINUTE)
        self.path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            with _short(self.path) as path:
                self._server = _Server(path, self)
        finally:
            os.umask(before)
        essential("signer", self._server.serve_forever).start()

    def __enter__(self) -> "SignerServer":
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.path.unlink(missing_ok=True)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request. Raises SignatureRefused, or any other error if malformed."""
        match request:
            case {"address": True}:
                return {"address": str(self._account.address)}
            case {"domain": list(domain), "struct": str(struct), "values": list(values)}:
                name, version, chain_id, contract = domain
                made = signing.Domain(str(name), str(version), int(chain_id), str(contract))
                given: list[signing.Value] = [_decoded(one) for one in values]
                # It has to be a whole message before its parts are looked at.
                digest = signing.digest(made, struct, *given)
                self._rules.check_message(made, struct, given)
                self._requests.take()
                return {"signature": signing.sign(self._account, digest).hex()}
            case {"transaction": dict(fields)}:
                whole = {name: _decoded(value) for name, value in fields.items()}
                self._rules.check_transaction(whole)
                self._transactions.take()
                signed = self._account.sign_transaction(whole)
                return {"raw": bytes(signed.raw_transaction).hex(), "hash": bytes(signed.hash).hex()}
        raise SignatureRefused("an unknown request", "")


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads, request_queue_size = True, 64

    def __init__(self, path: str, signer: SignerServer) -> None:
        self.signer = signer
        super().__init__(path, _Handler)


class _Handler(socketserver.StreamRequestHandler):
    timeout = _SECONDS

    def handle(self) -> None:
        assert isinstance(self.server, _Server)
        try:
            line = self.rfile.readline(_MOST_BYTES)
            answer = self.server.signer.answer(json.loads(line))
        except SignatureRefused as error:
            log.warning("the signer refuses %s", error.what)
            answer = {"refused": error.what}
        except Exception as error:  # whatever a stranger sends
            answer = {"refused": f"a malformed request: {type(error).__name__}"}
        self.wfile.write(json.dumps(answer).encode() + b"\n")


class RemoteAccount:
    """The account of a signer, for whoever holds no key: it has the members of a LocalAccount that muster uses."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.address = str(self._ask({"address": True})["address"])

    def unsafe_sign_hash(self, digest: bytes) -> Any:
        """Sign a message. Raises SignatureRefused for a digest whose message is not known."""
        if not isinstance(digest, signing.Digest):
            raise SignatureRefused("a digest without its message", "sign with protocol.signing")
        at = digest.domain
        answer = self._ask(
            {
                "domain": [at.name, at.version, at.chain_id, at.contract],
                "struct": digest.struct,
                "values": [_encoded(value) for value in digest.values],
            }
        )
        return SimpleNamespace(signature=bytes.fromhex(answer["signature"]))

    def sign_transaction(self, fields: dict[str, Any]) -> Any:
        answer = self._ask({"transaction": {name: _encoded(value) for name, value in fields.items()}})
        return SimpleNamespace(raw_transaction=bytes.fromhex(answer["raw"]), hash=bytes.fromhex(answer["hash"]))

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(_SECONDS)
                with _short(Path(self._path)) as path:
                    connection.connect(path)
                connection.sendall(json.dumps(request).encode() + b"\n")
                with connection.makefile("rb") as stream:
                    answer: dict[str, Any] = json.loads(stream.readline(_MOST_BYTES))
        except (OSError, ValueError) as error:
            raise UnreachableError(f"the signer does not answer: {error}", "start the worker again") from None
        if "refused" in answer:
            raise SignatureRefused(f"the signer refuses {answer['refused']}", "see its log")
        return answer


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """A path of at most 108 bytes, which is what a socket's may have."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def node_account(config: WorkerConfig) -> LocalAccount:
    """Return the node's account: the signer's for an isolated worker, else that of the key file."""
    path = os.environ.get(SOCKET)
    return cast(LocalAccount, RemoteAccount(path)) if path else config.node.open()


def _encoded(value: Any) -> Any:
    return {"hex": bytes(value).hex()} if isinstance(value, bytes | bytearray) else value


def _decoded(value: Any) -> Any:
    match value:
        case {"hex": str(text)} if len(value) == 1:
            return bytes.fromhex(text)
        case bool() | int() | str():
            return value
    _malformed()


def _malformed() -> NoReturn:
    raise ValueError("a value of no known kind")
