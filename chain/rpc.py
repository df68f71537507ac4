"""What JSON-RPC endpoints answer, read with suspicion: results, errors, numbers, and URLs fit for messages.

Nothing here trusts the shape of an answer, which web3's own formatters do: they pass on what is missing, null or of
another type than the specification says.
"""

import itertools
import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
from eth_abi.exceptions import DecodingError
from web3 import Web3
from web3.eth import Eth
from web3.exceptions import ContractLogicError, Web3Exception, Web3RPCError
from web3.providers.base import JSONBaseProvider
from web3.types import RPCEndpoint, RPCError, RPCResponse

from chain.errors import ContractError
from protocol.encoding import parse_json
from protocol.errors import ConfigError, IntegrityError, MusterError, UnreachableError
from protocol.http.transport import bounded_transport, exchange
from protocol.waits import WAITS, wait_for

_BUSY_CODES = frozenset({-32005, -32097, 429})
_MAX_MESSAGE = 2000
_MAX_SHOWN = 66
_NUMBER = re.compile(r"0x[0-9a-fA-F]{1,64}")

Request = tuple[str, list[Any]]
"""Method and parameters."""


class RpcError(MusterError):
    """The endpoint answered with a JSON-RPC error; `data` is the revert data, if any."""

    def __init__(self, method: str, code: int, message: str, data: bytes) -> None:
        super().__init__(f"{method}: {message} (code {code})")
        self.method, self.code, self.message, self.data = method, code, message, data

    @property
    def reverted(self) -> bool:
        return bool(self.data) or "revert" in self.message.lower()


@dataclass
class BadAnswer(Exception):
    """An endpoint that did not give a usable answer; another may. `verdict` is raised when all endpoints fail for such
    a reason, which asking again would not change; without one they are asked until patience ends."""

    why: str
    verdict: MusterError | None = None


def results(requests: Sequence[Request], ids: Sequence[int], document: Any) -> list[Any]:
    """The requests' results in order; an item that failed is an RpcError instance, not raised. Raises BadAnswer."""
    answers = document if isinstance(document, list) else [document]
    by_id: dict[int, dict[str, Any]] = {
        name: answer for answer in answers if isinstance(answer, dict) and isinstance(name := answer.get("id"), int)
    }
    missing = [method for number, (method, _) in zip(ids, requests, strict=True) if number not in by_id]
    if missing:
        raise BadAnswer(f"no answer to {missing[0]}")
    return [_result(method, by_id[number]) for number, (method, _) in zip(ids, requests, strict=True)]


def _result(method: str, answer: dict[str, Any]) -> Any:
    error = answer.get("error")
    if error is None:
        if "result" not in answer:
            raise BadAnswer(f"neither result nor error for {method}")
        return answer["result"]
    if not isinstance(error, dict):
        return RpcError(method, 0, str(error)[:_MAX_MESSAGE], b"")
    given, message = error.get("code"), str(error.get("message", ""))[:_MAX_MESSAGE]
    code = given if isinstance(given, int) and abs(given) < 1 << 64 else 0
    if code in _BUSY_CODES:
        raise BadAnswer(f"busy: {message or code}")
    return RpcError(method, code, message, revert_data(error.get("data")))


def revert_data(data: Any) -> bytes:
    """Revert data from the places where nodes put it."""
    if isinstance(data, dict):
        data = data.get("data") or data.get("result")
    if isinstance(data, str) and data.startswith("0x"):
        try:
            return bytes.fromhex(data[2:])
        except ValueError:
            return b""
    return b""


def number(value: Any) -> int:
    """An integer below 2²⁵⁶ from JSON-RPC's hex. Raises UnreachableError if it is none."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return int(value, 16)
    shown_value = repr(value)[:_MAX_SHOWN]
    raise UnreachableError(f"the chain's endpoint answers {shown_value} for a number", "check the endpoint")


def shown(url: str) -> str:
    """A URL fit for messages: without user, password, path or query, where API keys live."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}"
    except ValueError:
        return "(unreadable URL)"


# ---- A web3 provider over several equal endpoints


log = logging.getLogger("muster.chain")
_MAX_BODY = 256 * 1024 * 1024
_LONGEST = 120.0

T = TypeVar("T")


class FailoverProvider(JSONBaseProvider):
    """Calls to a chain with id `chain_id` through the first of `urls` that works. Thread-safe.

    `timeout` bounds each pause of an endpoint, `patience` a call with its retries (seconds); no exchange takes longer
    than two minutes. Raises ConfigError for URLs that cannot be right.
    """

    # A contract's answer must not make us fetch URLs that it names (EIP-3668).
    global_ccip_read_enabled = False

    def __init__(self, urls: Sequence[str], chain_id: int, *, timeout: float = 15.0, patience: float = 20.0) -> None:
        super().__init__()
        if not urls:
            raise ConfigError("no RPC URL is configured", "name one, such as http://127.0.0.1:8545")
        for url in urls:
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
                raise ConfigError(f"{shown(url)} is not an http(s) URL", "check the RPC URL")
        self.urls = list(urls)
        self.chain_id = chain_id
        self.patience = patience
        self._http = httpx.Client(
            timeout=httpx.Timeout(timeout, connect=3.0), trust_env=False, transport=bounded_transport()
        )
        self._ids = itertools.count(1)
        self._current = 0
        self._verified: set[str] = set()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """The endpoint in use, without credentials."""
        return shown(self.urls[self._current])

    # ---- What web3 asks for

    def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        return self.make_batch_request([(method, params)])[0]

    def make_batch_request(self, requests: list[tuple[RPCEndpoint, Any]]) -> list[RPCResponse]:
        return [_response(answer) for answer in self.batch([(method, list(params)) for method, params in requests])]

    # ---- What web3 has no words for

    def batch(
        self, requests: Sequence[Request], read: Callable[[list[Any]], list[Any]] = lambda answers: answers
    ) -> list[Any]:
        """Results in order, by one exchange; an item that failed is an RpcError instance, not raised. `read` makes what
        is returned of an endpoint's results, and raises BadAnswer for some that no honest endpoint gives.

        Raises UnreachableError (no answer in time) or ConfigError (wrong chain).
        """
        return self.ask(lambda url: read(self._verified_exchange(url, requests)))

    def ask(self, question: Callable[[str], T]) -> T:
        """What `question` gets from an endpoint's URL; when it raises BadAnswer, it is put to the next endpoint."""
        deadline = time.monotonic() + self.patience
        delay, failure = 0.1, ""
        with WAITS.on(f"the chain at {self.url}"):
            while True:
                verdicts = []
                for _ in self.urls:
                    position = self._current
                    try:
                        return question(self.urls[position])
                    except BadAnswer as caught:
                        failure = caught.why
                        verdicts.append(caught.verdict)
                        self._verified.discard(self.urls[position])
                        self._fail_over(position, failure)
                if all(verdicts) and verdicts[0] is not None:
                    raise verdicts[0]
                if time.monotonic() + delay > deadline:
                    break
                time.sleep(delay)
                delay = min(delay * 1.7, 2.0)
        names = ", ".join(shown(url) for url in self.urls)
        raise UnreachableError(f"the chain does not answer at {names} ({failure})", "check the RPC URL and the network")

    def check(self) -> None:
        """Raise unless an endpoint answers and serves the configured chain."""
        self.batch([("eth_chainId", [])])

    def distrust(self, why: str) -> None:
        """Change to the next endpoint, if there is one: what this one answered turned out to be wrong."""
        self._fail_over(self._current, why)

    def close(self) -> None:
        self._http.close()

    # ---- One endpoint

    def _fail_over(self, position: int, why: str) -> None:
        with self._lock:
            if self._current == position and len(self.urls) > 1:
                self._current = (position + 1) % len(self.urls)
                log.warning("%s fails (%s); changing to %s", shown(self.urls[position]), why, self.url)

    def _verified_exchange(self, url: str, requests: Sequence[Request]) -> list[Any]:
        if url in self._verified:
            return self._exchange(url, requests)
        answers = self._exchange(url, [("eth_chainId", []), *requests])
        self._verify(url, answers[0])
        return answers[1:]

    def _verify(self, url: str, answer: Any) -> None:
        if isinstance(answer, RpcError) or not isinstance(answer, str):
            raise BadAnswer(f"it does not tell its chain id: {answer}")
        try:
            actual = number(answer)
        except UnreachableError as error:
            raise BadAnswer(error.what) from None
        if actual != self.chain_id:
            wrong = f"{shown(url)} serves chain {actual}, not {self.chain_id}"
            raise BadAnswer(wrong, ConfigError(wrong, "name an RPC URL of the deployment's network"))
        self._verified.add(url)

    def _exchange(self, url: str, requests: Sequence[Request]) -> list[Any]:
        first = next(self._ids)
        ids = [first + (n << 32) for n in range(len(requests))]
        bodies = [
            {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            for number, (method, params) in zip(ids, requests, strict=True)
        ]
        document = self._post(url, bodies if len(bodies) > 1 else bodies[0])
        if len(requests) > 1 and not isinstance(document, list):
            # An endpoint that refuses batches.
            return [self._exchange(url, [request])[0] for request in requests]
        return results(requests, ids, document)

    def _post(self, url: str, body: Any) -> Any:
        try:
            answer = exchange(self._http, self._http.build_request("POST", url, json=body), _MAX_BODY, _LONGEST)
        except httpx.HTTPError as error:
            raise BadAnswer(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from None
        except IntegrityError:
            raise BadAnswer("the answer is too long") from None
        if answer.status_code == 429 or answer.status_code >= 500:
            raise BadAnswer(f"status {answer.status_code}")
        try:
            document = parse_json(answer.content)
        except ValueError:
            raise BadAnswer(f"status {answer.status_code}, not JSON: is it an RPC endpoint?") from None
        if not isinstance(document, dict | list):
            raise BadAnswer("not a JSON-RPC answer")
        return document


def _response(answer: Any) -> RPCResponse:
    """A result or an RpcError in web3's form."""
    if not isinstance(answer, RpcError):
        return {"jsonrpc": "2.0", "id": 1, "result": answer}
    error: RPCError = {"code": answer.code, "message": answer.message}
    if answer.data:
        error["data"] = "0x" + answer.data.hex()
    return {"jsonrpc": "2.0", "id": 1, "error": error}


# ---- Questions to the chain


_MALFORMED = (Web3Exception, DecodingError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What web3's formatters raise for answers of another shape than they expect."""


@dataclass(frozen=True)
class Block:
    """`hash` and `parent` (the hash of the block before) 32 bytes, `time` Unix seconds."""

    number: int
    hash: bytes
    time: int
    parent: bytes


class ChainReader:
    """Reads through `provider`; `w3` is a web3 instance over the same endpoints, without middleware. Thread-safe.

    All raise UnreachableError when no endpoint answers (sensibly) in time.
    """

    def __init__(self, provider: FailoverProvider) -> None:
        self.provider = provider
        self.w3 = Web3(provider, middleware=[])
        self.batch = provider.batch

    @property
    def url(self) -> str:
        """The endpoint in use, without credentials."""
        return self.provider.url

    def ask(self, label: str, question: Callable[[Eth], T]) -> T:
        """The answer to one question, such as `lambda eth: eth.get_code(address)`; `label` names it in errors. Raises
        ContractError when a contract refuses, RpcError for other errors of the endpoint."""

        def answer(_url: str) -> T:
            try:
                return question(self.w3.eth)
            except ContractLogicError as error:
                raise ContractError(label, revert_data(error.data)) from None
            except Web3RPCError as error:
                raise _rpc_error(label, error) from None
            except _MALFORMED as error:
                raise BadAnswer(f"a malformed answer to {label}: {str(error)[:200]}") from None

        return self.provider.ask(answer)

    def number(self, label: str, question: Callable[[Eth], int]) -> int:
        """As `ask`, for a number below 2²⁵⁶."""

        def checked(eth: Eth) -> int:
            value = question(eth)
            if type(value) is not int or not 0 <= value < 1 << 256:
                raise ValueError(f"{repr(value)[:80]} is not a number")
            return value

        return self.ask(label, checked)

    def block(self, which: int | str = "latest") -> Block | None:
        """A block by number or tag; None when it does not exist (yet)."""
        return self.blocks([which])[0]

    def blocks(self, which: Sequence[int | str]) -> list[Block | None]:
        """Several blocks in one exchange."""
        at = [hex(one) if isinstance(one, int) else one for one in which]
        requests: list[Request] = [("eth_getBlockByNumber", [one, False]) for one in at]
        return self.batch(requests, lambda answers: [_block(raw) for raw in answers])

    def head(self) -> Block:
        """The latest block."""
        block = self.block("latest")
        if block is None:
            raise UnreachableError(f"{self.url} has no latest block", "wait until the node has synced")
        return block

    def now(self) -> int:
        """Chain time: the latest block's."""
        return self.head().time

    def balance(self, address: str) -> int:
        """Wei."""
        return self.number("eth_getBalance", lambda eth: eth.get_balance(Web3.to_checksum_address(address)))

    def has_code(self, address: str) -> bool:
        return bool(self.ask("eth_getCode", lambda eth: eth.get_code(Web3.to_checksum_address(address))))

    def wait_for_block(self, wanted: int, timeout: float = 120.0) -> Block:
        """The head, once it is at or past block `wanted`."""

        def ready() -> Block | None:
            head = self.head()
            return head if head.number >= wanted else None

        return wait_for(f"block {wanted}", ready, timeout, poll=0.25, hint="is the chain producing blocks?")

    def request(self, method: str, params: Sequence[Any]) -> Any:
        """The result of a JSON-RPC method that web3 has no function for."""
        return self.w3.manager.request_blocking(RPCEndpoint(method), list(params))

    def close(self) -> None:
        self.provider.close()


def _rpc_error(label: str, error: Web3RPCError) -> MusterError:
    raw: Any = (error.rpc_response or {}).get("error") or {"code": 0, "message": str(error)}
    plain = RpcError(label, raw["code"], raw["message"], revert_data(raw.get("data")))
    return ContractError(label, plain.data) if plain.reverted else plain


def _block(raw: Any) -> Block | None:
    """A block of JSON-RPC; None for null. Raises BadAnswer."""
    if raw is None or isinstance(raw, RpcError):
        return None
    try:
        block_hash, parent = (bytes.fromhex(raw[name][2:]) for name in ("hash", "parentHash"))
        found = Block(number(raw["number"]), block_hash, number(raw["timestamp"]), parent)
    except (KeyError, TypeError, UnreachableError, ValueError):
        raise BadAnswer("a malformed block") from None
    if max(found.number, found.time) >= 1 << 62 or {len(found.hash), len(found.parent)} != {32}:
        raise BadAnswer("a malformed block")
    return found
