"""What uploads and downloads share: the HTTP client's settings, bounded retries, and one-line errors."""

import base64
import hashlib
import re
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar
from urllib.parse import urlsplit

import httpx
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_before_delay, wait_exponential_jitter

from protocol.api.work import UploadTicket
from protocol.errors import IntegrityError, MusterError, UnreachableError
from protocol.http.reach import PUBLIC, Reach
from protocol.http.transport import MOST_CONNECTIONS, bounded_transport, pieces, until
from storage.keys import MissingObjectError, check_content, check_sha256, parse_key
from storage.partial import PartialDownload
from storage.sources import Source

T = TypeVar("T")
TRIES = 4
_PAUSE = 0.25
_CONNECT_SECONDS = 5.0
_READ_SECONDS = 30.0


def http_client(reach: Reach = PUBLIC, connections: int | None = MOST_CONNECTIONS) -> httpx.Client:
    """A client for object transfers: bounded waits, addresses within `reach` only, at most that many `connections` at
    once (None: any number), no proxies from the environment, redirects followed by us."""
    timeout = httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS)
    transport = bounded_transport(reach, connections)
    return httpx.Client(transport=transport, timeout=timeout, follow_redirects=False, trust_env=False)


class Again(Exception):
    """A failure that may be gone at the next attempt."""


_TEMPORARY = (Again, httpx.HTTPError, httpx.StreamError)


def tries(what: str, url: str, attempt: Callable[[], T], deadline: float, most: int = TRIES) -> T:
    """Call `attempt` up to `most` times, with growing pauses, until `deadline` (monotonic seconds).

    Again and httpx's transport errors are retried. Raises UnreachableError naming the host and the last reason.
    """
    left = max(0.0, deadline - time.monotonic())
    retrying = Retrying(
        retry=retry_if_exception_type(_TEMPORARY),
        wait=wait_exponential_jitter(multiplier=_PAUSE, jitter=_PAUSE),
        stop=stop_after_attempt(most) | stop_before_delay(left),
        reraise=True,
    )

    def once() -> T:
        with until(deadline):
            return attempt()

    try:
        return retrying(once)
    except _TEMPORARY as error:
        reason = str(error) or type(error).__name__
    raise UnreachableError(f"cannot {what} at {host(url)}: {reason}", "check that it runs and can be reached")


def host(url: str) -> str:
    """Scheme, host and port of a URL, without path and query: fit for logs (a signature is a secret)."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"[:200]
    except ValueError:
        return "a malformed URL"


def check_url(url: str) -> str:
    """The URL if it is a plain http(s) URL. Raises MusterError."""
    try:
        parsed = httpx.URL(url)
        plain = parsed.scheme in ("http", "https") and bool(parsed.host)  # a malformed name is found out by reading it
    except (httpx.InvalidURL, TypeError, ValueError):
        plain = False
    if not plain or len(url) > 8192:
        raise MusterError(f"{url[:80]!r} is not an http(s) URL", "name another")
    return url


# ---- Upload one object with a ticket (a pre-signed URL bound to size, SHA-256 and to not overwriting)


_ASK_AGAIN = "ask for a new upload ticket"


class TicketRefusedError(MusterError):
    """The server refuses this ticket for good (expired, or for other bytes): ask for a new one."""


def upload(ticket: UploadTicket, data: bytes, client: httpx.Client, timeout: float = 300.0) -> bool:
    """PUT `data`. True if stored now, False if the very same key was stored before (by us, before a crash).

    The ticket is checked against `data` first, so that a service cannot lend a ticket for something else. Raises
    IntegrityError, TicketRefusedError, or UnreachableError after bounded tries.
    """
    check_ticket(ticket, data)
    deadline = time.monotonic() + timeout

    def attempt() -> bool:
        answer = client.put(ticket.url, content=data, headers=ticket.headers)
        if answer.status_code == 412:
            return False
        if answer.status_code in (200, 201, 204):
            return True
        reason = f"status {answer.status_code} {answer.text[:200]}"
        if answer.status_code in (408, 409, 425, 429) or answer.status_code >= 500:
            raise Again(reason)
        if ticket.expires < time.time():
            raise TicketRefusedError(f"the upload ticket for {host(ticket.url)} has expired", _ASK_AGAIN)
        raise TicketRefusedError(f"{host(ticket.url)} refuses the upload: {reason}", _ASK_AGAIN)

    return tries("upload", ticket.url, attempt, deadline)


def check_ticket(ticket: UploadTicket, data: bytes) -> None:
    """Raise IntegrityError unless the ticket's headers name exactly these bytes."""
    check_headers(ticket, len(data), hashlib.sha256(data).digest())


def check_headers(ticket: UploadTicket, size: int, sha256: bytes) -> None:
    """Raise IntegrityError unless the ticket is for `size` bytes of that hash, and asks for nothing else."""
    check_url(ticket.url)
    headers = {name.lower(): value for name, value in ticket.headers.items()}
    checksum = base64.b64encode(sha256).decode()
    if headers.get("content-length") != str(size) or headers.get("x-amz-checksum-sha256") != checksum:
        raise IntegrityError("the upload ticket is for another file", _ASK_AGAIN)
    if set(headers) - {"content-length", "content-type", "if-none-match", "x-amz-checksum-sha256"}:
        raise IntegrityError("the upload ticket asks for headers it should not need", _ASK_AGAIN)


# ---- Download objects by content address from untrusted HTTP sources


MAX_REDIRECTS = 3
HURRIED_TRIES = 2
"""Where another source can be asked instead."""
_HURRIED_READ = httpx.Timeout(10.0, connect=5.0)
"""Where another source can be asked instead, nobody waits longer for a source that says nothing."""
_REDIRECTS = (301, 302, 303, 307, 308)
_RANGE = re.compile(r"bytes ([0-9]{1,15})-([0-9]{1,15})/([0-9]{1,15})")


def download(
    url: str, key: str, limit: int, client: httpx.Client, timeout: float = 300.0, partial: PartialDownload | None = None
) -> bytes:
    """The bytes of object `key` from `url`, at most `limit`, checked against the hash in the key.

    A transfer that breaks off continues at its byte, as does a `partial` download of another source. If such an object
    lacks its hash, it is fetched once more from its first byte. Raises MissingObjectError (404), IntegrityError (too
    large, other bytes), UnreachableError after bounded tries; what came stays in `partial` if it may be right.
    """
    got = partial if partial is not None else PartialDownload()
    complete(url, key, limit, client, timeout, got)
    return got.whole()


def complete(url: str, key: str, limit: int, client: httpx.Client, timeout: float, got: PartialDownload) -> None:
    """The same, with the bytes left in `got`."""
    parse_key(key)
    deadline = time.monotonic() + timeout

    def attempt() -> None:
        if client.is_closed:  # a source that was asked besides others may be answering still
            raise UnreachableError("nobody waits for this download any more", "ask again")
        for last in (False, True):
            if len(got) < limit:
                _get(client, url, limit, deadline, got)
            try:
                _check(key, got)
            except IntegrityError:
                if not got.refuse() or last:
                    raise
            else:
                break

    tries(f"read {key}", url, attempt, deadline, HURRIED_TRIES if got.has_alternatives else TRIES)


def _check(key: str, got: PartialDownload) -> None:
    if parse_key(key).is_sha256:
        check_sha256(key, got.sha256)
    else:
        check_content(key, got.whole())


def _get(client: httpx.Client, url: str, limit: int, deadline: float, got: PartialDownload) -> None:
    """One try for the bytes that follow, through at most MAX_REDIRECTS redirects."""
    headers = {"Accept-Encoding": "identity"}
    if len(got):
        headers["Range"] = f"bytes={len(got)}-"
    timeout = _HURRIED_READ if got.has_alternatives else client.timeout
    for _ in range(MAX_REDIRECTS + 1):
        got.check()
        with client.stream("GET", check_url(url), headers=headers, timeout=timeout) as answer:
            if answer.status_code in _REDIRECTS:
                url = str(answer.url.join(answer.headers.get("location", "")))
                continue
            _begins(answer, limit, got)
            with got.ended_by(partial(_hang_up, answer)):
                _body(answer, limit, deadline, got)
            return
    raise IntegrityError(f"{host(url)} redirects more than {MAX_REDIRECTS} times", "use another source")


def _hang_up(answer: httpx.Response) -> None:
    """End the answer's connection under the thread that waits for it, which then finds it ended."""
    stream = answer.extensions.get("network_stream")
    line = stream.get_extra_info("socket") if stream is not None else None
    if isinstance(line, socket.socket):
        with suppress(OSError):
            socket.socket.shutdown(line, socket.SHUT_RDWR)  # not that of TLS, which would wait for the other side


def _begins(answer: httpx.Response, limit: int, got: PartialDownload) -> None:
    """Judge the answer's head; `got` starts anew where the source does."""
    where, status = host(str(answer.url)), answer.status_code
    if status == 404:
        raise MissingObjectError(f"{where} has no such object", "it may appear later; try another source")
    if status == 416 and len(got):
        got.restart()
        raise Again("there is nothing behind what came")
    if status in (408, 425, 429) or status >= 500:
        raise Again(f"status {status}")
    if status not in (200, 206):
        raise UnreachableError(f"{where} refuses to serve the object (status {status})", "ask for a fresh URL")
    if status == 206:
        start, total = _range(answer)
        if start != len(got) or total > limit:
            got.restart()
            raise IntegrityError(f"{where} sends another part than was asked for", "use another source")
    elif len(got):
        got.restart()
    got.begin_answer()


def _range(answer: httpx.Response) -> tuple[int, int]:
    """The first byte and the object's size as a partial answer says."""
    match = _RANGE.fullmatch(answer.headers.get("content-range", ""))
    return (int(match[1]), int(match[3])) if match else (-1, 0)


def _body(answer: httpx.Response, limit: int, deadline: float, got: PartialDownload) -> None:
    for piece in pieces(answer):
        if len(got) + len(piece) > limit:
            got.restart()
            where = host(str(answer.url))
            raise IntegrityError(f"{where} sends more than the {limit} bytes expected", "use another source")
        if time.monotonic() > deadline:
            raise Again("too slow")
        got.append(piece)


class HttpObjects:
    """Objects from a list of bases such as `https://service/v1/objects` or a mirror; each holds `<base>/<key>`.

    Call it as `objects(key, limit) -> bytes`; bases are tried in order, the last that worked first. The bases are the
    operator's own choice, unless a stranger `announced` them; what they redirect to has to be public or at one of the
    operator's addresses, unless `allow_private`. Thread-safe.
    """

    def __init__(
        self, bases: Sequence[str], timeout: float = 300.0, allow_private: bool = False, announced: bool = False
    ) -> None:
        if not bases:
            raise ValueError("at least one base URL is needed")
        self._bases = [check_url(base.rstrip("/")) for base in bases]
        self._timeout = timeout
        self._client = http_client(Reach(own=() if announced else tuple(self._bases), private=allow_private))
        # Strangers who never end their answers must not take the connections that one who has the bytes needs.
        self._outside = http_client(Reach(private=allow_private), connections=None)

    def __call__(self, key: str, limit: int) -> bytes:
        """If no base has the right bytes, raises MissingObjectError or IntegrityError if any base answered,
        UnreachableError if none did."""
        failure: MusterError | None = None
        for base in self._bases:
            try:
                data = self._from(base, key, limit)
            except MusterError as error:
                if failure is None or isinstance(failure, UnreachableError) or not isinstance(error, UnreachableError):
                    failure = error
                continue
            self._bases = sorted(self._bases, key=lambda other: other != base)
            return data
        assert failure is not None
        raise failure

    def each(self) -> dict[str, Source]:
        """Every base as a source of its own, by its URL."""
        return {base: partial(self._complete, base) for base in self._bases}

    def _from(self, base: str, key: str, limit: int) -> bytes:
        return download(f"{base}/{key}", key, limit, self._client, self._timeout)

    def _complete(self, base: str, key: str, limit: int, got: PartialDownload) -> None:
        complete(f"{base}/{key}", key, limit, self._client, self._timeout, got)

    def elsewhere(
        self, url: str, key: str, limit: int, timeout: float = 20.0, partial: PartialDownload | None = None
    ) -> bytes:
        """As `download`, from a URL that a stranger announced: it has to be public, unless `allow_private`."""
        return download(url, key, limit, self._outside, timeout, partial)

    def close(self) -> None:
        self._client.close()
        self._outside.close()
