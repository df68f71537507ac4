"""The client's side of signed requests: bounded retries, each signed anew, and errors that name the service."""

import logging
import random
import time
from dataclasses import dataclass
from typing import TypeVar

import httpx
from pydantic import TypeAdapter

from protocol.accounts import LocalAccount
from protocol.api.base import ErrorBody, RequestBody, parse_response
from protocol.api.endpoints import Get, Post
from protocol.encoding import canonical_json
from protocol.errors import ConfigError, IntegrityError, MusterError, UnreachableError, printable
from protocol.http.signing import AuthScope, service_url, sign_request
from protocol.http.transport import bounded_transport, exchange
from protocol.waits import WAITS

log = logging.getLogger("muster.http")
Q = TypeVar("Q", bound=RequestBody)
A = TypeVar("A")
_RETRIED = frozenset({429, 502, 503, 504})
_LONGEST_DETAIL = 500
_ERROR = TypeAdapter(ErrorBody)


class ServiceError(MusterError):
    """The service answered and said no; `status` is the HTTP status, `detail` its explanation."""

    def __init__(self, status: int, detail: str, url: str) -> None:
        super().__init__(f"{url} answered {status}: {detail}")
        self.status = status
        self.detail = detail


@dataclass(frozen=True)
class RequestSigner:
    """Who signs requests, and for which service."""

    account: LocalAccount
    auth_scope: AuthScope


@dataclass(frozen=True)
class ClientLimits:
    """`attempts` tries within about `patience` seconds, each of at most `exchange`; `timeout` bounds each pause of the
    service."""

    timeout: float = 10.0
    attempts: int = 5
    patience: float = 30.0
    exchange: float = 60.0


class SignedClient:
    """Talks to one service as one account, or unsigned without a `signer`. Thread-safe.

    Requests may be sent more than once when an answer is lost, so every endpoint called must be idempotent. Raises
    ConfigError for a URL that is none.
    """

    def __init__(
        self,
        base_url: str,
        signer: RequestSigner | None = None,
        limits: ClientLimits | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.base_url = service_url(base_url)
        self._signer, self._limits = signer, limits or ClientLimits()
        self._http = httpx.Client(
            timeout=httpx.Timeout(self._limits.timeout, connect=3.0),
            follow_redirects=False,
            trust_env=False,
            transport=transport or bounded_transport(),
        )

    def get(self, endpoint: Get[A]) -> A:
        """The document at a public endpoint. Raises what `request` raises, and IntegrityError for nonsense."""
        answer = self.request("GET", endpoint.path, limit=endpoint.limit)
        return parse_response(endpoint.answer, answer.content, self.base_url + endpoint.path)

    def post(self, endpoint: Post[Q, A], body: Q) -> A:
        """The answer to `body`. Raises what `request` raises, and IntegrityError for nonsense."""
        answer = self.request("POST", endpoint.path, canonical_json(body.model_dump()), endpoint.limit)
        return parse_response(endpoint.answer, answer.content, self.base_url + endpoint.path)

    def request(self, method: str, path: str, body: bytes = b"", limit: int = 64 << 10) -> httpx.Response:
        """Send until answered. Raises ServiceError (4xx, 5xx), UnreachableError (after all attempts) or IntegrityError
        (an answer of more than `limit` bytes). Redirects are not followed."""
        limits = self._limits
        started, failure = time.monotonic(), "no attempt"
        for attempt in range(limits.attempts):
            try:
                answer = self._once(method, path, body, limit)
            except httpx.InvalidURL as error:
                raise ConfigError(f"{self.base_url}{path} is not a URL: {error}", "check the service's URL") from None
            except httpx.HTTPError as error:
                failure, delay = _describe(error), 0.2 * 2**attempt
            else:
                if answer.status_code not in _RETRIED:
                    return self._checked(answer)
                failure = f"status {answer.status_code}"
                delay = _retry_after(answer, 0.2 * 2**attempt)
            delay = min(delay, 5.0) * random.uniform(0.8, 1.2)
            if attempt + 1 == limits.attempts or time.monotonic() - started + delay > limits.patience:
                break
            log.debug("%s %s: %s; again in %.1f s", method, path, failure, delay)
            with WAITS.on(f"an answer of {self.base_url}{path}"):
                time.sleep(delay)
        raise UnreachableError(
            f"{self.base_url} does not answer {method} {path} ({failure})", "check the URL and that the service runs"
        )

    def close(self) -> None:
        self._http.close()

    def _once(self, method: str, path: str, body: bytes, limit: int) -> httpx.Response:
        request = self._http.build_request(method, self.base_url + path, content=body)
        if body:
            request.headers["Content-Type"] = "application/json"
        if self._signer is not None:
            raw, now = request.url.raw_path.decode("ascii"), time.time()
            headers = sign_request(self._signer.account, self._signer.auth_scope, method, raw, body, now)
            request.headers.update(headers)
        return exchange(self._http, request, limit, self._limits.exchange)

    def _checked(self, answer: httpx.Response) -> httpx.Response:
        if answer.status_code < 400:
            return answer
        url = f"{self.base_url}{answer.request.url.path}"
        try:
            said = parse_response(_ERROR, answer.content, url)
            text = "; ".join(words for words in (said.error, said.hint) if words)
        except IntegrityError:
            text = answer.text
        raise ServiceError(answer.status_code, printable(text, _LONGEST_DETAIL), url)


def _describe(error: httpx.HTTPError) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _retry_after(answer: httpx.Response, default: float) -> float:
    value = answer.headers.get("retry-after", "")
    return float(value) if value.isdigit() and len(value) < 4 else default
