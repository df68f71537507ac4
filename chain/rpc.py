"""The chain's JSON-RPC endpoints: errors by their meaning, failover between equal endpoints, and reads.

Every wait is bounded, an item of a batch that fails leaves the others' results, and nothing trusts an answer's shape.
"""

import itertools
import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import httpx

from chain.errors import ContractError
from protocol.encoding import parse_json
from protocol.errors import ConfigError, IntegrityError, MusterError, UnreachableError, printable
from protocol.http.transport import bounded_transport, exchange
from protocol.waits import WAITS, wait_for

log = logging.getLogger("muster.chain")
T = TypeVar("T")
Request = tuple[str, list[Any]]  # Method and parameters
_MAX_BODY = 256 * 1024 * 1024
_MAX_SECONDS = 120.0
_MAX_MESSAGE = 2000
_NUMBER = re.compile(r"0x[0-9a-fA-F]{1,64}")


class ErrorKind(Enum):
    """What an endpoint's error means, and so what to do about it."""

    REVERT = "revert"  # the contract refuses: raise its reason
    KNOWN_TRANSACTION = "known transaction"  # the endpoint already has the transaction: it is sent
    NONCE_USED = "nonce used"  # the nonce belongs to another transaction: find out which
    NO_FUNDS = "no funds"  # the account has too little ether
    LOG_RANGE = "log range"  # ask for the logs of fewer blocks
    BATCH_SIZE = "batch size"  # send fewer requests at once
    BUSY = "busy"  # a rate limit or a temporary failure: ask another endpoint, then this one again
    LAGGING = "lagging"  # a replica lacks a block that others have: ask another endpoint, then this one again
    ACCESS = "access"  # the endpoint refuses this user: ask another endpoint, or show its words
    OTHER = "other"  # show the endpoint's words


_MEANINGS: tuple[tuple[ErrorKind, str], ...] = (
    (ErrorKind.KNOWN_TRANSACTION, r"already ?known|already ?imported|already ?exists|known ?transaction|already in"),
    (ErrorKind.NONCE_USED, r"nonce ?(is ?)?too ?low|old ?nonce|nonce.{0,10}already|nonce \d+ below|same nonce|"
                           r"replace.*(underpriced|pending)|replacement ?not ?allowed|could not replace"),
    (ErrorKind.NO_FUNDS, r"insufficient ?(funds|balance)|(enough|lack of) funds|exceeds account balance"),
    (ErrorKind.LAGGING, r"beyond .*head|invalid block range|missing trie node|nonce ?(is ?)?too ?high|nonce ?gap"),
    (ErrorKind.LOG_RANGE, r"block range|range.*(limit|exceed|wide|large|between)|limited to.*(range|blocks)|"
                          r"ranges? over|returned more than|more than .* (results|logs)|max(imum)? results|"
                          r"exceeds.*limit of|number of requested blocks|response (size|is too|too)|"
                          r"too many (results|logs)|logs? .*too large|at most [\d,]+ blocks|time(d )?.?out|"
                          r"deadline exceeded"),
    (ErrorKind.BATCH_SIZE, r"\bbatch(es|ing)?\b.*(limit|more than|too many|not|only|exceed|size|large)|"
                           r"response too large|"
                           r"(limit|maximum|more than|too many|exceed).*\bbatch\b|array of requests|arrays? are not"),
    (ErrorKind.BUSY, r"rate.?limit|rate exceed|request limit|limit exceeded|(too many|max) (requests?|connections)|"
                     r"per second|\brps\b|slow down|high load|pool is full|complete request at|"
                     r"cannot fulfill request$|"
                     r"compute units|capacity|quota|throttl|daily|backend|time(d )?.?out|try again|"
                     r"temporar|overload|unavailable|gateway|internal server error|upstream|\bbusy\b|retry later|"
                     r"deadline exceeded|no available|^internal (json-rpc )?error\.?$"),
    (ErrorKind.LAGGING, r"header ?not ?found|unknown block|block .*not .*(found|available)|out of range|"
                        r"\bheight\b.*not .*available"),
    (ErrorKind.ACCESS, r"authenticat|unauthori[sz]ed|forbidden|api.?key|project id|not authorized|upgrade|tier\b|"
                       r"access denied|credits|app is inactive"),
    (ErrorKind.LAGGING, r"not find block|unfinalized|\bstate .*not .*(found|available)|is pruned|resource not found"),
)  # fmt: skip
"""Matched against the message in lower case, the first match wins. Messages say more than codes, which providers choose
freely. tests/chain/test_provider.py holds the providers' answers that these patterns were written for."""
_ONLY_OF = {
    ErrorKind.KNOWN_TRANSACTION: "eth_sendRawTransaction",
    ErrorKind.NONCE_USED: "eth_sendRawTransaction",
    ErrorKind.LOG_RANGE: "eth_getLogs",
}
_BUSY_CODES = frozenset({429, 15, 30, -32005, -32007, -32011, -32012, -32015, -32016, -32017, -32022, -32029, -32090,
                         -32097})  # fmt: skip
"""Codes of rate limits and absent backends whose message says nothing."""


def meaning(method: str, code: int, message: str, data: bytes) -> ErrorKind:
    """Return what a JSON-RPC error means that an endpoint answers to `method`; `data` is revert data, if any."""
    text = message.lower()
    if data or "revert" in text or "vm execution error" in text:
        return ErrorKind.REVERT
    for kind, pattern in _MEANINGS:
        if _ONLY_OF.get(kind, method) == method and re.search(pattern, text):
            return kind
    return ErrorKind.BUSY if code in _BUSY_CODES else ErrorKind.OTHER


class RpcError(MusterError):
    """The endpoint answered with a JSON-RPC error. `data` is the revert data, if any; `kind` what it means."""

    def __init__(self, method: str, code: int, message: str, data: bytes) -> None:
        super().__init__(f"{method}: {printable(message, 300)} (code {code})")
        self.method, self.code, self.message, self.data = method, code, message, data
        self.kind = meaning(method, code, message, data)

    @classmethod
    def of(cls, method: str, error: Any) -> "RpcError":
        """Return what an answer's `error` says, whatever its shape."""
        if not isinstance(error, dict):
            return cls(method, 0, str(error)[:_MAX_MESSAGE], b"")
        given = error.get("code")
        code = given if isinstance(given, int) and abs(given) < 1 << 64 else 0
        return cls(method, code, str(error.get("message", ""))[:_MAX_MESSAGE], revert_data(error.get("data")))

    @property
    def reverted(self) -> bool:
        return self.kind is ErrorKind.REVERT


@dataclass
class BadAnswer(Exception):
    """An endpoint did not give a usable answer; another may. `verdict` is raised when all endpoints have one: asking
    again would not change it."""

    why: str
    verdict: MusterError | None = None


def _result(method: str, answer: dict[str, Any] | None) -> Any:
    """Return a request's result, or its error. Raises BadAnswer for a malformed or missing answer, and for errors that
    another endpoint, or the same one later, may not give."""
    if answer is None:
        raise BadAnswer(f"no answer to {method}")
    error = answer.get("error")
    if error is None:
        if "result" not in answer:
            raise BadAnswer(f"neither result nor error for {method}")
        return answer["result"]
    problem = RpcError.of(method, error)
    if problem.kind is ErrorKind.BUSY:
        raise BadAnswer(f"busy: {problem.what}")
    if problem.kind is ErrorKind.ACCESS:
        refused = f"the chain's endpoint refuses access: {problem.what}"
        raise BadAnswer(refused, ConfigError(refused, "check the API key and the plan of the RPC URL"))
    # Whether the chain lost a block, or only this endpoint lacks it, is the follower's to find out.
    if problem.kind is ErrorKind.LAGGING and method != "eth_getLogs":
        raise BadAnswer(problem.what)
    return problem


def revert_data(data: Any) -> bytes:
    """Return revert data from the places where nodes put it; empty if there is none."""
    if isinstance(data, dict):
        data = data.get("data") or data.get("result")
    with suppress(ValueError):
        if isinstance(data, str) and data.removeprefix("Reverted ").startswith("0x"):
            return bytes.fromhex(data.removeprefix("Reverted ")[2:])
    return b""


def number(value: Any) -> int:
    """Return an integer below 2²⁵⁶ from JSON-RPC's hex. Raises UnreachableError if it is none."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return int(value, 16)
    raise UnreachableError(f"the chain's endpoint answers {repr(value)[:66]} for a number", "check the endpoint")


def shown(url: str) -> str:
    """Return a URL fit for messages: without user, password, path or query, where API keys live."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
        name = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{parts.scheme}://{name}{port}"
    except ValueError:
        return "(unreadable URL)"


class FailoverProvider:
    """Answers for the chain with id `chain_id` from the first of `urls` that works. `timeout` bounds each pause of an
    endpoint, `patience` a call with its retries (seconds). Thread-safe. Raises ConfigError for bad URLs."""

    def __init__(self, urls: Sequence[str], chain_id: int, *, timeout: float = 15.0, patience: float = 20.0) -> None:
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
        self._batch_sizes: dict[str, int] = {}
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """The endpoint in use, without credentials."""
        return shown(self.urls[self._current])

    def batch(
        self, requests: Sequence[Request], read: Callable[[list[Any]], list[Any]] = lambda answers: answers
    ) -> list[Any]:
        """Return the results in order, by one exchange if the endpoint takes so many; an item that failed is an
        RpcError, not raised. `read` converts an endpoint's results, and raises BadAnswer for dishonest ones. Raises
        UnreachableError (no answer in time) or ConfigError (wrong chain, no access)."""
        return self.ask(lambda url: read(self._verified_exchange(url, requests)))

    def ask(self, question: Callable[[str], T]) -> T:
        """Return what `question` gets from an endpoint's URL; when it raises BadAnswer, the next endpoint is asked."""
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
        """Change to the next endpoint, if there is one: this one's answer turned out to be wrong."""
        self._fail_over(self._current, why)

    def close(self) -> None:
        self._http.close()

    def _fail_over(self, position: int, why: str) -> None:
        with self._lock:
            if self._current == position and len(self.urls) > 1:
                self._current = (position + 1) % len(self.urls)
                log.warning("%s fails (%s); changing to %s", shown(self.urls[position]), why, self.url)

    # One endpoint

    def _verified_exchange(self, url: str, requests: Sequence[Request]) -> list[Any]:
        """In the first exchange with an endpoint, and in that after a failure, also ask for its chain."""
        if url in self._verified:
            return self._exchange(url, requests)
        answer, *answers = self._exchange(url, [("eth_chainId", []), *requests])
        try:
            actual = number(answer)
        except UnreachableError as error:
            raise BadAnswer(f"it does not tell its chain id: {error.what}") from None
        if actual != self.chain_id:
            wrong = f"{shown(url)} serves chain {actual}, not {self.chain_id}"
            raise BadAnswer(wrong, ConfigError(wrong, "name an RPC URL of the deployment's network"))
        self._verified.add(url)
        return answers

    def _exchange(self, url: str, requests: Sequence[Request]) -> list[Any]:
        """Send requests in batches of the size that the endpoint takes, found by trying."""
        answers: list[Any] = []
        while len(answers) < len(requests):
            size = self._batch_sizes.get(url, len(requests))
            part = requests[len(answers) : len(answers) + size]
            got = self._exchange_batch(url, part)
            if got is None:
                self._batch_sizes[url] = max(1, len(part) // 2)
                log.info("%s refuses batches of %d; sending at most %d", shown(url), len(part), self._batch_sizes[url])
            answers += got or ()
        return answers

    def _exchange_batch(self, url: str, requests: Sequence[Request]) -> list[Any] | None:
        """Results of one exchange; None if the endpoint refuses a batch of that size. Raises BadAnswer."""
        ids = [next(self._ids) for _ in requests]
        bodies = [
            {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            for number, (method, params) in zip(ids, requests, strict=True)
        ]
        document = self._post(url, bodies if len(bodies) > 1 else bodies[0])
        several = isinstance(document, list)
        answers = [answer for answer in (document if several else [document]) if isinstance(answer, dict)]
        if len(requests) > 1:
            errors = [RpcError.of("a batch", answer["error"]) for answer in answers if answer.get("error")]
            # One error for the whole batch is of the batch, or of the endpoint.
            if not several and errors and errors[0].kind is ErrorKind.BUSY:
                raise BadAnswer(f"busy: {errors[0].what}")
            if not several or any(error.kind is ErrorKind.BATCH_SIZE for error in errors):
                return None
        by_id = {answer["id"]: answer for answer in answers if isinstance(answer.get("id"), int)}
        return [_result(method, by_id.get(number)) for number, (method, _) in zip(ids, requests, strict=True)]

    def _post(self, url: str, body: Any) -> Any:
        try:
            answer = exchange(self._http, self._http.build_request("POST", url, json=body), _MAX_BODY, _MAX_SECONDS)
        except httpx.HTTPError as error:
            raise BadAnswer(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from None
        except IntegrityError:
            raise BadAnswer("the answer is too long") from None
        status = answer.status_code
        words = printable(" ".join(answer.text[:1000].split()), 200)
        try:
            document = parse_json(answer.content)
        except ValueError:
            document = None
        if isinstance(document, list):
            return document
        if isinstance(document, dict) and isinstance(document.get("error"), dict):
            # The error says more than the status; refusals often lack the request's id.
            return document if isinstance(body, list) else document | {"id": body["id"]}
        if isinstance(body, list) and (status == 413 or meaning("a batch", 0, words, b"") is ErrorKind.BATCH_SIZE):
            return {"error": {"code": status, "message": "batch too large"}}
        if status in (401, 403):
            refused = ConfigError(f"{shown(url)} refuses access ({status} {words})", "check the API key in the RPC URL")
            raise BadAnswer(refused.what, refused)
        if status == 429 or status >= 500:
            raise BadAnswer(f"status {status} {words}")
        if document is None:
            raise BadAnswer(f"status {status}, not JSON: is it an RPC endpoint?")
        if not isinstance(document, dict):
            raise BadAnswer("not a JSON-RPC answer")
        return document


# Reading


@dataclass(frozen=True)
class Block:
    """`hash` and `parent` (the hash of the block before) have 32 bytes, `time` is in Unix seconds."""

    number: int
    hash: bytes
    time: int
    parent: bytes


class ChainReader:
    """Reads through `provider`. Thread-safe. All methods raise UnreachableError when no endpoint answers (sensibly) in
    time."""

    def __init__(self, provider: FailoverProvider) -> None:
        self.provider = provider
        self.batch = provider.batch

    @property
    def url(self) -> str:
        return self.provider.url

    def request(
        self, method: str, params: Sequence[Any] = (), read: Callable[[Any], T] = lambda result: result, label: str = ""
    ) -> T:
        """Return the result of one method by `read`, which raises UnreachableError for a malformed one: then another
        endpoint is asked. Raises ContractError when a contract refuses, with `label` for what was called, and RpcError
        for other errors of the endpoint."""

        def checked(answers: list[Any]) -> list[Any]:
            try:
                return [answer if isinstance(answer, RpcError) else read(answer) for answer in answers]
            except UnreachableError as error:
                raise BadAnswer(f"a malformed answer to {method}: {error.what}") from None

        (answer,) = self.batch([(method, list(params))], checked)
        if isinstance(answer, RpcError):
            raise ContractError(label or method, answer.data) if answer.reverted else answer
        return cast(T, answer)

    def number(self, method: str, *params: Any) -> int:
        """Return a number below 2²⁵⁶; see `request`."""
        return self.request(method, params, number)

    def block(self, which: int | str = "latest") -> Block | None:
        """Return a block by number or tag; None when it does not exist (yet)."""
        return self.blocks([which])[0]

    def blocks(self, which: Sequence[int | str]) -> list[Block | None]:
        """Return several blocks in one exchange."""
        numbers = [hex(block_number) if isinstance(block_number, int) else block_number for block_number in which]
        requests: list[Request] = [("eth_getBlockByNumber", [block_number, False]) for block_number in numbers]
        return self.batch(requests, lambda answers: [_block(raw) for raw in answers])

    def head(self) -> Block:
        """Return the latest block."""
        block = self.block("latest")
        if block is None:
            raise UnreachableError(f"{self.url} has no latest block", "wait until the node has synced")
        return block

    def now(self) -> int:
        """Return chain time: the latest block's."""
        return self.head().time

    def balance(self, address: str) -> int:
        """Return an address's balance in wei."""
        return self.number("eth_getBalance", address, "latest")

    def wait_for_block(self, wanted: int, timeout: float = 120.0) -> Block:
        """Wait until the head is at or past block `wanted`, and return it."""

        def ready() -> Block | None:
            head = self.head()
            return head if head.number >= wanted else None

        return wait_for(f"block {wanted}", ready, timeout, poll=0.25, hint="is the chain producing blocks?")

    def close(self) -> None:
        self.provider.close()


def _block(raw: Any) -> Block | None:
    """A block of JSON-RPC; None for null. Raises BadAnswer."""
    if raw is None or isinstance(raw, RpcError):
        return None
    try:
        block_hash, parent = (bytes.fromhex(raw[name][2:]) for name in ("hash", "parentHash"))
        block = Block(number(raw["number"]), block_hash, number(raw["timestamp"]), parent)
    except (KeyError, TypeError, UnreachableError, ValueError):
        raise BadAnswer("a malformed block") from None
    if max(block.number, block.time) >= 1 << 62 or {len(block.hash), len(block.parent)} != {32}:
        raise BadAnswer("a malformed block")
    return block
