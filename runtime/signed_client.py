"""The client's side of signed requests: bounded retries, each signed anew, and errors that name the service."""

import json
import logging
import random
import time
from collections.abc import Mapping
from typing import Any

import httpx
from eth_account.signers.local import LocalAccount

from protocol.encoding import canonical_json, parse_json
from protocol.errors import ConfigError, IntegrityError, MusterError, UnreachableError, printable
from protocol.http.signing import Realm, sign_request
from protocol.http.transport import bounded_transport, exchange
from protocol.waits import WAITS

log = logging.getLogger("muster.http")
_RETRIED = frozenset({429, 502, 503, 504})
_MAX_BODY = 32 * 1024 * 1024
_EXCHANGE_SECONDS = 60.0
_LONGEST_DETAIL = 500


class ServiceError(MusterError):
    """The service answered and said no; `status` is the HTTP status, `detail` its explanation.

    Services explain themselves by {"error": what, "mend": how}; {"detail": …} is understood too.
    """

    def __init__(self, status: int, detail: str, url: str) -> None:
        super().__init__(f"{url} answered {status}: {detail}")
        self.status = status
        self.detail = detail


class SignedClient:
    """Talks to one service as one account (unsigned if `account` is None). Thread-safe.

    Requests may be sent more than once when an answer is lost, so every endpoint called must be idempotent.
    `attempts` tries within about `patience` seconds; `timeout` bounds each pause of the service, a minute each try.
    """

    def __init__(
        self,
        base_url: str,
        account: LocalAccount | None,
        chain_id: int,
        pools_address: str,
        *,
        audience: str = "",
        timeout: float = 10.0,
        attempts: int = 5,
        patience: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.account = account
        self.realm = Realm.of(audience or base_url, chain_id, pools_address)
        self._attempts = attempts
        self._patience = patience
        self._http = httpx.Client(
            timeout=httpx.Timeout(timeout, connect=3.0),
            follow_redirects=False,
            trust_env=False,
            transport=transport or bounded_transport(),
        )

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """JSON answer of GET."""
        return self._json(self.request("GET", path, params=params))

    def post(self, path: str, payload: Any) -> Any:
        """JSON answer of POST with `payload` as canonical JSON; None for an empty answer."""
        return self._json(self.request("POST", path, canonical_json(payload)))

    def location(self, path: str) -> str:
        """Where a GET redirects to (a pre-signed URL of the bucket); signed headers are never sent there."""
        answer = self.request("GET", path)
        if not answer.is_redirect or "location" not in answer.headers:
            raise IntegrityError(f"{self.base_url}{path} does not redirect", "check the service's version")
        return answer.headers["location"]

    def request(
        self, method: str, path: str, body: bytes = b"", params: Mapping[str, Any] | None = None
    ) -> httpx.Response:
        """Send until answered. Raises ServiceError (4xx, 5xx) or UnreachableError (after all attempts)."""
        started, failure = time.monotonic(), "no attempt"
        for attempt in range(self._attempts):
            try:
                answer = self._once(method, path, body, params)
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
            if attempt + 1 == self._attempts or time.monotonic() - started + delay > self._patience:
                break
            log.debug("%s %s: %s; again in %.1f s", method, path, failure, delay)
            with WAITS.on(f"an answer of {self.base_url}{path}"):
                time.sleep(delay)
        raise UnreachableError(
            f"{self.base_url} does not answer {method} {path} ({failure})", "check the URL and that the service runs"
        )

    def close(self) -> None:
        self._http.close()

    def _once(self, method: str, path: str, body: bytes, params: Mapping[str, Any] | None) -> httpx.Response:
        request = self._http.build_request(method, self.base_url + path, content=body, params=params)
        if body:
            request.headers["Content-Type"] = "application/json"
        if self.account is not None:
            raw = request.url.raw_path.decode("ascii")
            request.headers.update(sign_request(self.account, self.realm, method, raw, body, time.time()))
        return exchange(self._http, request, _MAX_BODY, _EXCHANGE_SECONDS)

    def _checked(self, answer: httpx.Response) -> httpx.Response:
        if answer.status_code < 400:
            return answer
        detail: Any = answer.text
        try:
            document = parse_json(answer.content)
            if isinstance(document, dict):
                said = [document[key] for key in ("error", "mend") if document.get(key)]
                detail = "; ".join(map(str, said)) or document.get("detail", detail)
        except ValueError:
            pass
        text = detail if isinstance(detail, str) else json.dumps(detail)
        raise ServiceError(
            answer.status_code, printable(text, _LONGEST_DETAIL), f"{self.base_url}{answer.request.url.path}"
        )

    def _json(self, answer: httpx.Response) -> Any:
        if not answer.content:
            return None
        try:
            return parse_json(answer.content)
        except ValueError:
            raise IntegrityError(f"{answer.request.url} does not answer JSON", "check that the URL is right") from None


def _describe(error: httpx.HTTPError) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _retry_after(answer: httpx.Response, default: float) -> float:
    value = answer.headers.get("retry-after", "")
    return float(value) if value.isdigit() and len(value) < 4 else default
