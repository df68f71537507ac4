"""JSON-RPC over HTTP to one of several equal endpoints: bounded retries, failover, and errors that name the URL.

This is our own thin transport rather than web3's provider, because retries must be ours: which calls are repeated, for
how long, on which endpoint, and what is known when an answer is lost. Several calls travel in one batch.
"""

import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from protocol.encoding import parse_json
from protocol.errors import ConfigError, IntegrityError, MusterError, UnreachableError
from protocol.http.transport import bounded_transport, exchange
from protocol.waits import WAITS

log = logging.getLogger("muster.chain")
_BUSY_CODES = frozenset({-32005, -32097, 429})
_MAX_BODY = 256 * 1024 * 1024
_LONGEST = 120.0
_MAX_MESSAGE = 2000
_MAX_HEX = 66

Call = tuple[str, list[Any]]


class RpcError(MusterError):
    """The endpoint answered with a JSON-RPC error; `data` is the revert data, if any."""

    def __init__(self, method: str, code: int, message: str, data: bytes) -> None:
        super().__init__(f"{method}: {message} (code {code})")
        self.method, self.code, self.message, self.data = method, code, message, data


@dataclass
class BadAnswer(Exception):
    """An endpoint that did not give a usable answer; another may. `verdict` is raised when all endpoints fail for such
    a reason, which asking again would not change; without one they are asked until patience ends."""

    why: str
    verdict: MusterError | None = None


class Rpc:
    """Calls to a chain with id `chain_id` through the first of `urls` that works. Thread-safe.

    `timeout` bounds each pause of an endpoint, `patience` a call with its retries (seconds); no exchange takes longer
    than two minutes.
    """

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
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """The endpoint in use, without credentials."""
        return shown(self.urls[self._current])

    def call(self, method: str, *params: Any) -> Any:
        """Result of one call. Raises RpcError, UnreachableError (no answer in time) or ConfigError (wrong chain)."""
        (answer,) = self.batch([(method, list(params))])
        if isinstance(answer, RpcError):
            raise answer
        return answer

    def batch(
        self, calls: Sequence[Call], read: Callable[[list[Any]], list[Any]] = lambda answers: answers
    ) -> list[Any]:
        """Results in order; an item that failed is an RpcError instance, not raised. `read` makes what is returned of
        an endpoint's results, and raises BadAnswer for some that no honest endpoint gives: then the next is asked."""
        deadline = time.monotonic() + self.patience
        delay, failure = 0.1, ""
        with WAITS.on(f"the chain at {self.url}"):
            while True:
                verdicts = []
                for _ in self.urls:
                    position = self._current
                    try:
                        return read(self._try(self.urls[position], calls))
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
        self.call("eth_chainId")

    def distrust(self, why: str) -> None:
        """Change to the next endpoint, if there is one: what this one answered turned out to be wrong."""
        self._fail_over(self._current, why)

    def close(self) -> None:
        self._http.close()

    def _fail_over(self, position: int, why: str) -> None:
        with self._lock:
            if self._current == position and len(self.urls) > 1:
                self._current = (position + 1) % len(self.urls)
                log.warning("%s fails (%s); changing to %s", shown(self.urls[position]), why, self.url)

    def _try(self, url: str, calls: Sequence[Call]) -> list[Any]:
        if url in self._verified:
            return self._exchange(url, calls)
        answers = self._exchange(url, [("eth_chainId", []), *calls])
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

    def _exchange(self, url: str, calls: Sequence[Call]) -> list[Any]:
        first = next(self._ids)
        requests = [
            {"jsonrpc": "2.0", "id": first + (n << 32), "method": method, "params": params}
            for n, (method, params) in enumerate(calls)
        ]
        answer = self._post(url, requests if len(requests) > 1 else requests[0])
        answers = answer if isinstance(answer, list) else [answer]
        if len(calls) > 1 and not isinstance(answer, list):
            return [self._single(url, call) for call in calls]
        by_id: dict[Any, dict[str, Any]] = {
            name: a for a in answers if isinstance(a, dict) and isinstance(name := a.get("id"), int)
        }
        results = []
        for request, (method, _) in zip(requests, calls, strict=True):
            item = by_id.get(request["id"])
            if item is None:
                raise BadAnswer(f"no answer to {method}")
            results.append(_result(method, item))
        return results

    def _single(self, url: str, call: Call) -> Any:
        """For endpoints that refuse batches."""
        return self._exchange(url, [call])[0]

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


def _result(method: str, item: dict[str, Any]) -> Any:
    error = item.get("error")
    if error is None:
        if "result" not in item:
            raise BadAnswer(f"neither result nor error for {method}")
        return item["result"]
    if not isinstance(error, dict):
        return RpcError(method, 0, str(error)[:_MAX_MESSAGE], b"")
    given, message = error.get("code"), str(error.get("message", ""))[:_MAX_MESSAGE]
    code = given if isinstance(given, int) and abs(given) < 1 << 64 else 0
    if code in _BUSY_CODES:
        raise BadAnswer(f"busy: {message or code}")
    return RpcError(method, code, message, _revert_data(error.get("data")))


def _revert_data(data: Any) -> bytes:
    """Revert data from the places where nodes put it."""
    if isinstance(data, dict):
        data = data.get("data") or data.get("result")
    if isinstance(data, str) and data.startswith("0x"):
        try:
            return bytes.fromhex(data[2:])
        except ValueError:
            return b""
    return b""


def shown(url: str) -> str:
    """A URL fit for messages: without user, password, path or query, where API keys live."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}"
    except ValueError:
        return "(unreadable URL)"


def number(value: Any) -> int:
    """An integer below 2²⁵⁶ from JSON-RPC's hex. Raises UnreachableError if it is none."""
    try:
        if len(value) <= _MAX_HEX:
            return int(value, 16)
    except (TypeError, ValueError):
        pass
    shown_value = repr(value)[:_MAX_HEX]
    raise UnreachableError(f"the chain's endpoint answers {shown_value} for a number", "check the endpoint")
