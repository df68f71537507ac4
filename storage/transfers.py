"""Upload and download single objects over HTTP.

Downloads come from untrusted sources: sizes are capped, redirects are counted, hashes are checked, and a transfer that
breaks off continues at its byte. Uploads use tickets: pre-signed URLs that are bound to size, SHA-256 and to not
overwriting.
"""

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
from protocol.errors import IntegrityError, MusterError, UnreachableError, printable
from protocol.http.reach import PUBLIC, Reach
from protocol.http.transport import MOST_CONNECTIONS, bounded_transport, until
from storage.keys import MissingObjectError, check_sha256, parse_key
from storage.partial import PartialDownload
from storage.sources import MultiSource, Source

T = TypeVar("T")
TRIES = 4
# HTTP statuses after which the same request may succeed; 501 and 505 say that the server lacks a feature.
TEMPORARY_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 507, 509, *range(520, 525), 529})
_REDIRECTS = (301, 302, 303, 307, 308)
_PAUSE = 0.25
_CONNECT_SECONDS = 5.0
_READ_SECONDS = 30.0


def http_client(reach: Reach = PUBLIC, connections: int | None = MOST_CONNECTIONS) -> httpx.Client:
    """Return a client for object transfers: bounded waits, addresses within `reach` only, at most that many
    `connections` at once (None: any number). It does not follow redirects."""
    timeout = httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS)
    transport = bounded_transport(reach, connections)
    return httpx.Client(transport=transport, timeout=timeout, follow_redirects=False, trust_env=False)


class Again(Exception):
    """A failure after which the next attempt may succeed."""


_TEMPORARY = (Again, httpx.HTTPError, httpx.StreamError)


def tries(what: str, url: str, attempt: Callable[[], T], deadline: float, most: int = TRIES) -> T:
    """Call `attempt` up to `most` times, with growing pauses, until `deadline` (monotonic). Raises UnreachableError."""
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
    """Return a URL's scheme, host and port, fit for logs: a signature in the query is a secret."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"[:200]
    except ValueError:
        return "a malformed URL"


def check_url(url: str) -> str:
    """Return the URL if it is a plain http(s) URL. Raises MusterError."""
    try:
        parsed = httpx.URL(url)
        plain = parsed.scheme in ("http", "https") and bool(parsed.host)  # reading it finds malformed names
    except (httpx.InvalidURL, TypeError, ValueError):
        plain = False
    if not plain or len(url) > 8192:
        raise MusterError(f"{url[:80]!r} is not an http(s) URL", "name another")
    return url


def server_words(body: bytes) -> str:
    """Return what an S3 server's error document says, `Code: Message`, or the beginning of another body; printable."""
    text = body[:4096].decode("utf-8", "replace")
    reasons = [match[1] for tag in ("Code", "Message") if (match := re.search(rf"<{tag}>([^<]*)</{tag}>", text))]
    return printable(": ".join(reasons) or " ".join(text.split()), 200)


def is_temporary(status: int, words: str) -> bool:
    """Return whether the same request may succeed later. S3 answers 400 when bytes come too slowly or damaged, too."""
    return status in TEMPORARY_STATUSES or (status == 400 and ("RequestTimeout" in words or "BadDigest" in words))


# Uploads


_ASK_AGAIN = "ask for a new upload ticket"


class TicketRefusedError(MusterError):
    """The server refuses this ticket for good (expired, or for other bytes): ask for a new one."""


def upload(ticket: UploadTicket, data: bytes, client: httpx.Client, timeout: float = 300.0) -> bool:
    """PUT `data`; return True if it is stored now, False if the key was stored before (by us, before a crash).

    Raises IntegrityError for a ticket that is for something else, TicketRefusedError, UnreachableError (or for a
    redirect, which the signature does not cover), MusterError for a server that cannot take such uploads.
    """
    check_headers(ticket, len(data), hashlib.sha256(data).digest())
    deadline = time.monotonic() + timeout

    def attempt() -> bool:
        answer = client.put(ticket.url, content=data, headers=ticket.headers)
        if answer.status_code == 412:
            return False
        if answer.status_code in (200, 201, 204):
            return True
        reason = f"status {answer.status_code} {server_words(answer.content)}"
        if is_temporary(answer.status_code, reason):
            raise Again(reason)
        if answer.status_code in _REDIRECTS:
            target = printable(answer.headers.get("location", "?").partition("?")[0], 200)
            what = f"{host(ticket.url)} redirects the upload to {target} ({answer.status_code})"
            raise UnreachableError(what, "the bucket is new, or at that address: try later, or tell the pool's owner")
        if answer.status_code == 501:
            what = f"{host(ticket.url)} does not implement what an upload takes: {reason}"
            raise MusterError(what, "tell the pool's owner to use one that takes If-None-Match and SHA-256 checksums")
        if ticket.expires < time.time():
            raise TicketRefusedError(f"the upload ticket for {host(ticket.url)} has expired", _ASK_AGAIN)
        raise TicketRefusedError(f"{host(ticket.url)} refuses the upload: {reason}", _ASK_AGAIN)

    return tries("upload", ticket.url, attempt, deadline)


def check_headers(ticket: UploadTicket, size: int, sha256: bytes) -> None:
    """Raise IntegrityError unless the ticket is for `size` bytes of that hash, and asks for nothing else."""
    check_url(ticket.url)
    headers = {name.lower(): value for name, value in ticket.headers.items()}
    checksum = base64.b64encode(sha256).decode()
    if headers.get("content-length") != str(size) or headers.get("x-amz-checksum-sha256") != checksum:
        raise IntegrityError("the upload ticket is for another file", _ASK_AGAIN)
    if set(headers) - {"content-length", "content-type", "if-none-match", "x-amz-checksum-sha256"}:
        raise IntegrityError("the upload ticket asks for headers it should not need", _ASK_AGAIN)


# Downloads


MAX_REDIRECTS = 3
# Tries and waits where another source can be asked instead.
FEW_TRIES = 2
_SHORT_TIMEOUT = httpx.Timeout(10.0, connect=5.0)
_RANGE = re.compile(r"bytes ([0-9]{1,15})-([0-9]{1,15})/([0-9]{1,15})")


def download(
    url: str, key: str, limit: int, client: httpx.Client, timeout: float = 300.0, partial: PartialDownload | None = None
) -> bytes:
    """Return the bytes of object `key` from `url`, at most `limit`, checked against the hash in the key.

    A transfer that breaks off continues at its byte. Raises MissingObjectError (404), IntegrityError (too large, other
    bytes), UnreachableError after bounded tries.
    """
    got = partial if partial is not None else PartialDownload()
    complete(url, key, limit, client, timeout, got)
    return got.whole()


def complete(url: str, key: str, limit: int, client: httpx.Client, timeout: float, got: PartialDownload) -> None:
    """Download an object into `got`; see `download`."""
    parse_key(key)
    deadline = time.monotonic() + timeout

    def attempt() -> None:
        if client.is_closed:  # a hedged source may still be answering
            raise UnreachableError("nobody waits for this download any more", "ask again")
        if len(got) < limit:
            _get(client, url, limit, deadline, got)
        try:
            check_sha256(key, got.sha256, got.whole)
        except IntegrityError:
            got.restart()
            raise

    tries(f"read {key}", url, attempt, deadline, FEW_TRIES if got.has_alternatives else TRIES)


def _get(client: httpx.Client, url: str, limit: int, deadline: float, got: PartialDownload) -> None:
    """One try for the bytes that follow, through at most MAX_REDIRECTS redirects."""
    headers = {"Accept-Encoding": "identity"}
    if len(got):
        headers["Range"] = f"bytes={len(got)}-"
    timeout = _SHORT_TIMEOUT if got.has_alternatives else client.timeout
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
    """Shut the connection down while another thread waits for it."""
    stream = answer.extensions.get("network_stream")
    line = stream.get_extra_info("socket") if stream is not None else None
    if isinstance(line, socket.socket):
        with suppress(OSError):
            socket.socket.shutdown(line, socket.SHUT_RDWR)  # not TLS's shutdown, which would wait for the peer


def _begins(answer: httpx.Response, limit: int, download: PartialDownload) -> None:
    """Judge the answer's head; `got` restarts where the source does."""
    server, status = host(str(answer.url)), answer.status_code
    reason = ""
    if status >= 400:
        with suppress(httpx.HTTPError, httpx.StreamError):
            reason = server_words(next(answer.iter_raw(4096), b""))
    if status == 404 and "NoSuchBucket" in reason:
        raise UnreachableError(f"{server} has no such bucket ({reason})", "tell the pool's owner")
    if status == 404:
        raise MissingObjectError(f"{server} has no such object", "it may appear later; try another source")
    if status == 416 and len(download):
        download.restart()
        raise Again("there is nothing behind what came")
    if status in TEMPORARY_STATUSES:
        raise Again(f"status {status} {reason}")
    if status not in (200, 206):
        raise UnreachableError(f"{server} refuses to serve the object ({status} {reason})", "ask for a fresh URL")
    if status == 206:
        match = _RANGE.fullmatch(answer.headers.get("content-range", ""))
        if match is None or int(match[1]) != len(download) or int(match[3]) > limit:
            download.restart()
            raise IntegrityError(f"{server} sends another part than was asked for", "use another source")
    elif len(download):
        download.restart()
    download.check()


def _body(answer: httpx.Response, limit: int, deadline: float, got: PartialDownload) -> None:
    for piece in answer.iter_raw():
        if len(got) + len(piece) > limit:
            got.restart()
            where = host(str(answer.url))
            raise IntegrityError(f"{where} sends more than the {limit} bytes expected", "use another source")
        if time.monotonic() > deadline:
            raise Again("too slow")
        got.append(piece)


class HttpObjects:
    """Objects from a list of base URLs such as `https://service/v1/objects` or a mirror; each serves `<base>/<key>`.

    Call it as `objects(key, limit) -> bytes`, which raises what `MultiSource.fetch` does. The bases are the operator's
    choice, unless a stranger `announced` them; redirects must lead to public addresses or to the operator's, unless
    `allow_private`. Thread-safe.
    """

    def __init__(
        self, bases: Sequence[str], timeout: float = 300.0, allow_private: bool = False, announced: bool = False
    ) -> None:
        if not bases:
            raise ValueError("at least one base URL is needed")
        self._bases = [check_url(base.rstrip("/")) for base in bases]
        self._timeout = timeout
        self._client = http_client(Reach(own=() if announced else tuple(self._bases), private=allow_private))
        # Strangers who never end their answers must not use up the connections to honest sources.
        self._outside = http_client(Reach(private=allow_private), connections=None)
        self._all = MultiSource(self.each())

    def __call__(self, key: str, limit: int) -> bytes:
        return self._all(key, limit)

    def each(self) -> dict[str, Source]:
        """Return every base as a source of its own, by URL."""
        return {base: partial(self._complete, base) for base in self._bases}

    def _complete(self, base: str, key: str, limit: int, got: PartialDownload) -> None:
        complete(f"{base}/{key}", key, limit, self._client, self._timeout, got)

    def elsewhere(
        self, url: str, key: str, limit: int, timeout: float = 20.0, partial: PartialDownload | None = None
    ) -> bytes:
        """Return an object from a URL that a stranger announced, at a public address unless `allow_private`."""
        return download(url, key, limit, self._outside, timeout, partial)

    def close(self) -> None:
        self._client.close()
        self._outside.close()
