"""The client of signed requests: bounded retries, each signed again, and errors that name the service."""

import random
import time
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import httpx
from pydantic import TypeAdapter
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, stop_before_delay

from protocol.accounts import LocalAccount
from protocol.api.base import ErrorBody, RequestBody, parse_response
from protocol.api.endpoints import Get, Post
from protocol.encoding import canonical_json
from protocol.errors import ConfigError, IntegrityError, MusterError, UnreachableError, printable
from protocol.http.signing import AuthScope, service_url, sign_request
from protocol.http.transport import bounded_transport, exchange
from protocol.waits import WAITS

Q = TypeVar("Q", bound=RequestBody)
A = TypeVar("A")
_RETRIED = frozenset({429, 502, 503, 504})
_LONGEST_DETAIL = 500
_ERROR = TypeAdapter(ErrorBody)
_HINT = "check the URL and that the service runs"


class ServiceError(MusterError):
    """The service answered with an error; `status` is the HTTP status, `detail` its explanation."""

    def __init__(self, status: int, detail: str, url: str) -> None:
        super().__init__(f"{url} answered {status}: {detail}")
        self.status = status
        self.detail = detail


@dataclass(frozen=True)
class RequestSigner:
    """The account that signs requests, and for which service."""

    account: LocalAccount
    auth_scope: AuthScope


@dataclass(frozen=True)
class ClientLimits:
    """Limits of a client, in seconds: at most `attempts` tries within about `patience`, each of at most `exchange`;
    `timeout` bounds each silence of the service."""

    timeout: float = 10.0
    attempts: int = 5
    patience: float = 30.0
    exchange: float = 60.0


class SignedClient:
    """Talks to one service as one account, or unsigned without a `signer`. Thread-safe. Requests may be sent more than
    once when an answer is lost, so every endpoint must be idempotent. Raises ConfigError for an invalid URL."""

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
        """Return the document at a public endpoint. Raises what `request` raises, and IntegrityError."""
        answer = self.request("GET", endpoint.path, limit=endpoint.limit)
        return parse_response(endpoint.answer, answer.content, self.base_url + endpoint.path)

    def post(self, endpoint: Post[Q, A], body: Q) -> A:
        """Send `body` and return the answer. Raises what `request` raises, and IntegrityError for an invalid answer."""
        answer = self.request("POST", endpoint.path, canonical_json(body.model_dump()), endpoint.limit)
        return parse_response(endpoint.answer, answer.content, self.base_url + endpoint.path)

    def request(self, method: str, path: str, body: bytes = b"", limit: int = 64 << 10) -> httpx.Response:
        """Send until answered. Raises ServiceError (4xx, 5xx), UnreachableError (after all attempts) or IntegrityError
        (an answer of more than `limit` bytes). Redirects are not followed."""
        retrying = Retrying(
            retry=retry_if_exception_type((httpx.HTTPError, BusyError)),
            stop=stop_after_attempt(self._limits.attempts) | stop_before_delay(self._limits.patience),
            wait=_pause,
            sleep=partial(self._sleep, path),
            reraise=True,
        )
        try:
            return self._checked(retrying(self._once, method, path, body, limit))
        except httpx.InvalidURL as error:
            raise ConfigError(f"{self.base_url}{path} is not a URL: {error}", "check the service's URL") from None
        except httpx.HTTPError as error:
            why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise UnreachableError(f"{self.base_url} does not answer {method} {path} ({why})", _HINT) from None

    def _sleep(self, path: str, seconds: float) -> None:
        with WAITS.on(f"an answer of {self.base_url}{path}"):
            time.sleep(seconds)

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
        answer = exchange(self._http, request, limit, self._limits.exchange)
        if answer.status_code in _RETRIED:
            raise BusyError(f"{self.base_url} does not answer {method} {path}", answer)
        return answer

    def _checked(self, answer: httpx.Response) -> httpx.Response:
        if answer.status_code < 400:
            return answer
        url = f"{self.base_url}{answer.request.url.path}"
        try:
            error = parse_response(_ERROR, answer.content, url)
            text = "; ".join(words for words in (error.error, error.hint) if words)
        except IntegrityError:
            text = answer.text
        raise ServiceError(answer.status_code, printable(text, _LONGEST_DETAIL), url)


class BusyError(UnreachableError):
    """The service answers, but only that it cannot serve now: its database may be down."""

    def __init__(self, what: str, answer: httpx.Response) -> None:
        super().__init__(f"{what} (status {answer.status_code})", _HINT)
        after = answer.headers.get("retry-after", "")
        self.retry_after = float(after) if after.isdecimal() and len(after) < 4 else None


def _pause(attempt: RetryCallState) -> float:
    """Return the seconds before the next attempt: as asked, or 0.2 s doubled each time; at most 5 s, spread at
    random."""
    error = attempt.outcome.exception() if attempt.outcome is not None else None
    wanted = error.retry_after if isinstance(error, BusyError) else None
    pause = 0.2 * 2 ** (attempt.attempt_number - 1) if wanted is None else wanted
    return min(pause, 5.0) * random.uniform(0.8, 1.2)
