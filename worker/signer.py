"""Signing outside the isolation: an isolated worker holds no key and asks this server over a Unix socket.

The server runs in the process that started the isolated worker. It signs only what a worker of its pool sends: HTTP
requests to the pool's service, submissions of its files, announcements of the weights that it serves, and the
transactions by which it submits with a receipt. It gets every message in its parts and computes the digest itself.
Whoever takes over the engine can thus send worthless files as this node, but gets no key and no other signature.
"""

import json
import logging
import os
import shutil
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal, cast
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from chain import abi
from chain.deployment import Deployment
from chain.transactions import price_limit
from protocol import signing
from protocol.accounts import LocalAccount
from protocol.api.work import (
    ANNOUNCEMENT_DOMAIN,
    ANNOUNCEMENT_STRUCT,
    MAX_SECONDS,
    POOLS_DOMAIN,
    SKEW_SECONDS,
    SUBMISSION_STRUCT,
)
from protocol.encoding import parse_json
from protocol.errors import MusterError, UnreachableError, printable
from protocol.http import signing as requests
from protocol.http.limits import Buckets
from runtime.entry import essential
from worker.config import WorkerConfig

log = logging.getLogger("muster.isolation")
SOCKET = "MUSTER_SIGNER"  # environment variable of an isolated worker: the path of the signer's socket
_MOST_BYTES = 1 << 20
_SECONDS = 20.0
_CONNECTIONS = 16
_REQUESTS_A_MINUTE, _TRANSACTIONS_A_MINUTE, _LINES_A_MINUTE = 600, 60, 20
_MOST_GAS = 5_000_000
_CLOCK_SECONDS = 120
_PATHS = ("/v1/leases", "/v1/uploads", "/v1/submissions", "/v1/heartbeats", "/v1/sources")


class SignatureRefused(MusterError):
    """Something that the signer does not sign."""


_Amount = Annotated[int, Field(ge=0, lt=1 << 256)]


class _Transaction(BaseModel):
    """The only form of transaction that is signed."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal[2]
    chainId: _Amount
    nonce: Annotated[int, Field(ge=0, lt=1 << 64)]
    value: Annotated[int, Field(ge=0, le=0)]
    data: bytes
    gas: Annotated[int, Field(gt=0, le=_MOST_GAS)]
    maxFeePerGas: _Amount
    maxPriorityFeePerGas: _Amount
    to: Annotated[str, Field(pattern=r"^0x[0-9a-fA-F]{40}$")]


class SigningRules:
    """What a worker of this configuration may have signed as `address`."""

    def __init__(self, config: WorkerConfig, deployment: Deployment, address: str) -> None:
        self._pool, self._chain_id, self._address = config.pool, deployment.chain_id, address
        self._pools = deployment.address("Pools")
        self._audience = requests.service_url(config.orchestrator)
        self._prefix = urlsplit(self._audience).path
        serve = config.serve_weights
        self._public_url = requests.service_url(serve.public_url) if serve and serve.public_url else None
        self._submit = abi.load("Pools")["submitLane"]

    def check_message(self, domain: signing.Domain, struct: str, values: list[signing.Value]) -> None:
        """Raise SignatureRefused unless this is a request to the pool's service, or a submission or announcement of
        this worker."""
        if (domain.version, domain.chain_id, domain.contract.lower()) != ("1", self._chain_id, self._pools.lower()):
            raise SignatureRefused("a message for other contracts", "")
        if (domain.name, struct) == (requests.DOMAIN, requests.STRUCT):
            _, path, _, audience, at, _ = values
            route = str(path).partition("?")[0]
            if audience != self._audience or not any(route == self._prefix + allowed for allowed in _PATHS):
                raise SignatureRefused(f"a request for {audience!r}, {route}", "")
            if not abs(int(cast(int, at)) - time.time()) <= _CLOCK_SECONDS:
                raise SignatureRefused("a request of another time", "")
            return
        if (domain.name, struct) == (POOLS_DOMAIN, SUBMISSION_STRUCT):
            pool, node, *_ = values
            if (pool, str(node).lower()) == (self._pool, self._address.lower()):
                return
        if (domain.name, struct) == (ANNOUNCEMENT_DOMAIN, ANNOUNCEMENT_STRUCT):
            pool, url, until = values
            reach = MAX_SECONDS + SKEW_SECONDS
            if (pool, url) == (self._pool, self._public_url) and int(cast(int, until)) <= time.time() + reach:
                return
        raise SignatureRefused(f"a message {struct.partition('(')[0]} of {domain.name}", "")

    def check_transaction(self, fields: dict[str, Any]) -> None:
        """Raise SignatureRefused unless the transaction submits a file of this node in the pool, or fills a nonce."""
        try:
            asked = _Transaction.model_validate(fields)
        except ValueError:
            raise SignatureRefused("a transaction of another form, or one that moves ether", "") from None
        if asked.chainId != self._chain_id or asked.maxFeePerGas > 4 * price_limit():
            raise SignatureRefused("a transaction of another chain, or at too high a price", "")
        if asked.to.lower() == self._address.lower() and not asked.data:
            return  # fills a gap of nonces
        if (asked.to, asked.data[:4]) != (self._pools, bytes(self._submit.selector)):
            raise SignatureRefused(f"a call of 0x{asked.data[:4].hex()} at {asked.to}", "")
        named = self._submit.inputs.named(asked.data[4:])
        nodes = {str(file["node"]).lower() for file in named["files"]}
        if named["pool"] != self._pool or nodes != {self._address.lower()}:
            raise SignatureRefused(f"a submission for pool {named['pool']} or another node", "")


class SignerServer:
    """Serves signatures of `account` at a socket in `folder`, by `rules`. A context manager."""

    def __init__(self, folder: Path, account: LocalAccount, rules: SigningRules) -> None:
        self.path = folder / "signer.sock"
        self._account, self._rules = account, rules
        self._requests = Buckets(_REQUESTS_A_MINUTE / 60, _REQUESTS_A_MINUTE)
        self._transactions = Buckets(_TRANSACTIONS_A_MINUTE / 60, _TRANSACTIONS_A_MINUTE)
        self._lines = Buckets(_LINES_A_MINUTE / 120, _LINES_A_MINUTE / 2)
        self._remove_socket()
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
        self._remove_socket()

    def _remove_socket(self) -> None:
        """Remove whatever lies there: the isolated worker may write to the folder."""
        if self.path.is_dir() and not self.path.is_symlink():
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            self.path.unlink(missing_ok=True)

    def answer(self, line: bytes) -> dict[str, Any]:
        """Return the answer to one line of JSON, whatever a stranger sends."""
        try:
            return self._signed(parse_json(line))
        except SignatureRefused as error:
            what = printable(error.what, 200)
            if self._lines.take("", time.monotonic()):
                log.warning("the signer refuses %s", what)
            return {"refused": what}
        except Exception as error:
            return {"refused": f"a malformed request: {type(error).__name__}"}

    def _signed(self, request: Any) -> dict[str, Any]:
        if not self._requests.take("", time.monotonic()):
            raise SignatureRefused(f"more than {_REQUESTS_A_MINUTE} a minute", "wait")
        match request:
            case {"address": True}:
                return {"address": str(self._account.address)}
            case {"domain": [str(name), str(version), int(chain_id), str(contract)], "struct": str(struct), **rest}:
                domain = signing.Domain(name, version, chain_id, contract)
                values: list[signing.Value] = [_decoded(value) for value in cast(list[Any], rest["values"])]
                # It has to be a whole message before its parts are looked at.
                digest = signing.digest(domain, struct, *values)
                self._rules.check_message(domain, struct, values)
                return {"signature": signing.sign(self._account, digest).hex()}
            case {"transaction": dict(fields)}:
                whole = {name: _decoded(value) for name, value in fields.items()}
                self._rules.check_transaction(whole)
                if not self._transactions.take("", time.monotonic()):
                    raise SignatureRefused(f"more than {_TRANSACTIONS_A_MINUTE} a minute", "wait")
                signed = self._account.sign_transaction(whole)
                return {"raw": bytes(signed.raw_transaction).hex(), "hash": bytes(signed.hash).hex()}
        raise SignatureRefused("an unknown request", "")


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads, request_queue_size = True, 64

    def __init__(self, path: str, signer: SignerServer) -> None:
        self.signer, self._free = signer, threading.BoundedSemaphore(_CONNECTIONS)
        super().__init__(path, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: whoever closes its end too early must not fill the log."""


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        """Answer one line, all of it within _SECONDS."""
        assert isinstance(self.server, _Server)
        deadline, line = time.monotonic() + _SECONDS, b""
        while not line.endswith(b"\n") and len(line) <= _MOST_BYTES:
            self.request.settimeout(max(0.01, deadline - time.monotonic()))
            if not (piece := self.request.recv(1 << 16)):
                break
            line += piece
        answer = self.server.signer.answer(line)
        self.request.settimeout(max(0.01, deadline - time.monotonic()))
        self.request.sendall(json.dumps(answer).encode() + b"\n")


class RemoteAccount:
    """The account of a signer, for whoever holds no key: it has the members of a LocalAccount that muster uses."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.address = str(self._ask({"address": True})["address"])

    def unsafe_sign_hash(self, digest: bytes) -> Any:
        """Sign a message. Raises SignatureRefused for a digest whose message is not known."""
        if not isinstance(digest, signing.Digest):
            raise SignatureRefused("a digest without its message", "sign with protocol.signing")
        at, values = digest.domain, [_encoded(value) for value in digest.values]
        domain = [at.name, at.version, at.chain_id, at.contract]
        answer = self._ask({"domain": domain, "struct": digest.struct, "values": values})
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
    raise ValueError("a value of no known kind")
