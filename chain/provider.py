"""A web3 provider over several equal endpoints: bounded retries, failover, and errors that name the URL.

    w3 = Web3(FailoverProvider(urls, chain_id), middleware=[])

web3's own HTTPProvider asks one endpoint, repeats calls by rules of its own, waits for a dripping peer as long as it
drips, and its batches raise the first item's error in place of all results. Here it is ours to say which calls are
repeated, for how long, on which endpoint, and what is known when an answer is lost.
"""

import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
from web3.providers.base import JSONBaseProvider
from web3.types import RPCEndpoint, RPCError, RPCResponse

from chain.jsonrpc import BadAnswer, Request, RpcError, number, results, shown
from protocol.encoding import parse_json
from protocol.errors import ConfigError, IntegrityError, UnreachableError
from protocol.http.transport import bounded_transport, exchange
from protocol.waits import WAITS

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

    def is_connected(self, show_traceback: bool = False) -> bool:
        try:
            self.check()
        except (ConfigError, UnreachableError):
            if show_traceback:
                raise
            return False
        return True

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
