"""Signing outside the isolation: an isolated role holds no key and asks this server over a Unix socket.

The server runs in the process that started the isolated one. It signs only what the role itself sends, by a table of
messages and contract calls. It gets every message in its parts and computes the digest itself. Whoever takes over the
engine can thus send worthless files or votes as this node or seat, but gets no key and no other signature.
"""

import json
import logging
import os
import shutil
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
from protocol.api.work import ANNOUNCEMENT_DOMAIN, ANNOUNCEMENT_STRUCT, MAX_SECONDS, SKEW_SECONDS
from protocol.encoding import parse_json, tagged_hash
from protocol.errors import MusterError, UnreachableError, printable
from protocol.http import signing as requests
from protocol.http.limits import Buckets
from runtime.entry import essential
from runtime.process import IsolatedConfig

log = logging.getLogger("muster.isolation")
SOCKET = "MUSTER_SIGNER"  # environment variable of an isolated process: the path of the signer's socket
_MOST_BYTES = 1 << 20
_SECONDS = 20.0
_CONNECTIONS = 16
_LINES_A_MINUTE = 20
_CLOCK_SECONDS = 120
Check = Callable[..., bool]


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
    gas: Annotated[int, Field(gt=0)]
    maxFeePerGas: _Amount
    maxPriorityFeePerGas: _Amount
    to: Annotated[str, Field(pattern=r"^0x[0-9a-fA-F]{40}$")]


def always(*_: object) -> bool:
    return True


@dataclass(frozen=True)
class SigningRules:
    """What a role of this configuration may have signed.

    `paths`: of requests, to the service at `audience` or, if None, to any. `structs`: (contract, domain, struct) of a
    message → whether an account may sign these values. `calls`: contract and function, such as `Pools.submitLane` →
    whether an account may send these arguments. `secrets`: tags of secrets that follow from a key. `most_gas`: of one
    transaction. At most `requests` in a minute are answered, and `transactions` of each account signed.
    """

    config: IsolatedConfig
    deployment: Deployment
    paths: tuple[str, ...]
    structs: Mapping[tuple[str, str, str], Check]
    calls: Mapping[str, Check]
    audience: str | None = None
    secrets: tuple[str, ...] = ()
    most_gas: int = 5_000_000
    requests: int = 600
    transactions: int = 120

    def check_message(self, address: str, domain: signing.Domain, struct: str, values: list[signing.Value]) -> None:
        """Raise SignatureRefused unless this is a request to a service, or a message of this role."""
        pools, contract = self.deployment.address("Pools"), domain.contract.lower()
        if (domain.version, domain.chain_id) != ("1", self.deployment.chain_id):
            raise SignatureRefused("a message for other contracts", "")
        if (domain.name, struct) == (requests.DOMAIN, requests.STRUCT) and contract == pools.lower():
            self._check_request(values)
            return
        if (domain.name, struct) == (ANNOUNCEMENT_DOMAIN, ANNOUNCEMENT_STRUCT) and contract == pools.lower():
            serve = self.config.serve_weights
            public_url = requests.service_url(serve.public_url) if serve and serve.public_url else None
            pool, url, until = values
            reach = MAX_SECONDS + SKEW_SECONDS
            if (pool, url) == (self.config.pool, public_url) and int(cast(int, until)) <= time.time() + reach:
                return
        for (name, *message), check in self.structs.items():
            known = message == [domain.name, struct] and contract == self.deployment.address(name).lower()
            if known and check(address, *values):
                return
        raise SignatureRefused(f"a message {struct.partition('(')[0]} of {domain.name}", "")

    def _check_request(self, values: list[signing.Value]) -> None:
        _, path, _, audience, at, _ = values
        route, prefix = str(path).partition("?")[0], urlsplit(str(audience)).path
        if self.audience not in (None, audience) or route not in [prefix + allowed for allowed in self.paths]:
            raise SignatureRefused(f"a request for {audience!r}, {route}", "")
        if not abs(int(cast(int, at)) - time.time()) <= _CLOCK_SECONDS:
            raise SignatureRefused("a request of another time", "")

    def check_transaction(self, address: str, fields: dict[str, Any]) -> None:
        """Raise SignatureRefused unless the transaction is a call of this role, or fills a nonce."""
        try:
            sent = _Transaction.model_validate(fields)
        except ValueError:
            raise SignatureRefused("a transaction of another form, or one that moves ether", "") from None
        if sent.chainId != self.deployment.chain_id or sent.maxFeePerGas > 4 * price_limit():
            raise SignatureRefused("a transaction of another chain, or at too high a price", "")
        if sent.gas > self.most_gas:
            raise SignatureRefused(f"a transaction of {sent.gas} gas", "")
        if sent.to.lower() == address.lower() and not sent.data:
            return  # fills a gap of nonces
        for call, check in self.calls.items():
            contract, _, name = call.partition(".")
            function = abi.load(contract)[name]
            is_call = (sent.to, sent.data[:4]) == (self.deployment.address(contract), bytes(function.selector))
            if is_call and check(address, function.inputs.named(sent.data[4:])):
                return
        raise SignatureRefused(f"a call of 0x{sent.data[:4].hex()} at {sent.to}", "")


def _a_minute(most: int) -> Buckets:
    """Return buckets of which no minute, the first included, brings more than `most`."""
    return Buckets(most / 120, most / 2)


class SignerServer:
    """Serves signatures of `accounts` at a socket in `folder`, by `rules`. A context manager."""

    def __init__(self, folder: Path, accounts: Sequence[LocalAccount], rules: SigningRules) -> None:
        self.path = folder / "signer.sock"
        self._accounts, self._rules = {str(account.address): account for account in accounts}, rules
        self._requests, self._transactions, self._lines = map(
            _a_minute, (rules.requests, rules.transactions, _LINES_A_MINUTE)
        )
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
        now = time.monotonic()
        if not self._requests.take("", now):
            raise SignatureRefused(f"more than {self._rules.requests} a minute", "wait")
        match request:
            case {"accounts": True}:
                return {"accounts": list(self._accounts)}
            case {"as": str(address), **asked} if address in self._accounts:
                return self._signed_as(self._accounts[address], cast(dict[str, Any], asked), now)
        raise SignatureRefused("an unknown request", "")

    def _signed_as(self, account: LocalAccount, request: dict[str, Any], now: float) -> dict[str, Any]:
        address = str(account.address)
        match request:
            case {"domain": [str(name), str(version), int(chain_id), str(contract)], "struct": str(struct), **rest}:
                domain = signing.Domain(name, version, chain_id, contract)
                values: list[signing.Value] = [_decoded(value) for value in cast(list[Any], rest["values"])]
                # It has to be a whole message before its parts are looked at.
                digest = signing.digest(domain, struct, *values)
                self._rules.check_message(address, domain, struct, values)
                return {"signature": signing.sign(account, digest).hex()}
            case {"transaction": dict(fields)}:
                whole = {name: _decoded(value) for name, value in fields.items()}
                self._rules.check_transaction(address, whole)
                if not self._transactions.take(address, now):
                    raise SignatureRefused(f"more than {self._rules.transactions} a minute", "wait")
                signed = account.sign_transaction(whole)
                return {"raw": bytes(signed.raw_transaction).hex(), "hash": bytes(signed.hash).hex()}
            case {"secret": str(tag), "pool": int(pool)} if tag in self._rules.secrets:
                if pool == self._rules.config.pool:
                    return {"secret": derived_secret(account, tag, pool).hex()}
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
        """Say nothing: a client that closes its end too early must not fill the log."""


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
    """An account of a signer, for a process without a key: it has the members of a LocalAccount that muster uses."""

    def __init__(self, path: str, address: str) -> None:
        self._path, self.address = path, address

    def unsafe_sign_hash(self, digest: bytes) -> Any:
        """Sign a message. Raises SignatureRefused for a digest whose message is not known."""
        if not isinstance(digest, signing.Digest):
            raise SignatureRefused("a digest without its message", "sign with protocol.signing")
        at, values = digest.domain, [_encoded(value) for value in digest.values]
        domain = [at.name, at.version, at.chain_id, at.contract]
        answer = self.ask({"domain": domain, "struct": digest.struct, "values": values})
        return SimpleNamespace(signature=bytes.fromhex(answer["signature"]))

    def sign_transaction(self, fields: dict[str, Any]) -> Any:
        answer = self.ask({"transaction": {name: _encoded(value) for name, value in fields.items()}})
        return SimpleNamespace(raw_transaction=bytes.fromhex(answer["raw"]), hash=bytes.fromhex(answer["hash"]))

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the signer's answer to a request as this account. Raises SignatureRefused, UnreachableError."""
        return _ask(self._path, {"as": self.address, **request})


def _ask(path: str, request: dict[str, Any]) -> dict[str, Any]:
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_SECONDS)
            with _short(Path(path)) as short:
                connection.connect(short)
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as stream:
                answer: dict[str, Any] = json.loads(stream.readline(_MOST_BYTES))
    except (OSError, ValueError) as error:
        raise UnreachableError(f"the signer does not answer: {error}", "start the process again") from None
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


def accounts_of(config: IsolatedConfig) -> list[LocalAccount]:
    """Return the accounts of a configuration's `keys`: the signer's in an isolated process, else those of the files."""
    if path := os.environ.get(SOCKET):
        named = _ask(path, {"accounts": True})["accounts"]
        return [cast(LocalAccount, RemoteAccount(path, address)) for address in named]
    return [key.open() for key in config.keys]


def derived_secret(account: LocalAccount, tag: str, pool: int) -> bytes:
    """Return 32 bytes that only an account's holder knows, the same at every start."""
    if isinstance(account, RemoteAccount):
        return bytes.fromhex(account.ask({"secret": tag, "pool": pool})["secret"])
    return tagged_hash(tag, bytes(account.key), pool)


def _encoded(value: Any) -> Any:
    return {"hex": bytes(value).hex()} if isinstance(value, bytes | bytearray) else value


def _decoded(value: Any) -> Any:
    match value:
        case {"hex": str(text)} if len(value) == 1:
            return bytes.fromhex(text)
        case bool() | int() | str():
            return value
    raise ValueError("a value of no known kind")
