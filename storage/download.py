"""Download objects by content address from untrusted HTTP sources: size caps, redirects counted, hashes checked."""

import time
from collections.abc import Callable, Sequence
from functools import partial

import httpx

from protocol.errors import IntegrityError, MusterError, UnreachableError
from protocol.http.reach import Reach
from storage.keys import MissingObjectError, check_content, parse_key
from storage.transfer import Again, check_url, host, http_client, tries

MAX_REDIRECTS = 3
_REDIRECTS = (301, 302, 303, 307, 308)


def download(url: str, key: str, limit: int, client: httpx.Client, timeout: float = 300.0) -> bytes:
    """The bytes of object `key` from `url`, at most `limit`, checked against the hash in the key.

    Raises MissingObjectError (404), IntegrityError (too large, other bytes), UnreachableError after bounded tries.
    """
    parse_key(key)
    deadline = time.monotonic() + timeout

    def attempt() -> bytes:
        if client.is_closed:  # a source that was asked besides others may be answering still
            raise UnreachableError("nobody waits for this download any more", "ask again")
        data = _get(client, url, limit, deadline)
        check_content(key, data)
        return data

    return tries(f"read {key}", url, attempt, deadline)


def _get(client: httpx.Client, url: str, limit: int, deadline: float) -> bytes:
    """One try, following at most MAX_REDIRECTS redirects."""
    for _ in range(MAX_REDIRECTS + 1):
        with client.stream("GET", check_url(url), headers={"Accept-Encoding": "identity"}) as answer:
            if answer.status_code in _REDIRECTS:
                url = str(answer.url.join(answer.headers.get("location", "")))
                continue
            return _body(answer, limit, deadline)
    raise IntegrityError(f"{host(url)} redirects more than {MAX_REDIRECTS} times", "use another source")


def _body(answer: httpx.Response, limit: int, deadline: float) -> bytes:
    where, status = host(str(answer.url)), answer.status_code
    if status == 404:
        raise MissingObjectError(f"{where} has no such object", "it may appear later; try another source")
    if status in (408, 425, 429) or status >= 500:
        raise Again(f"status {status}")
    if status != 200:
        raise UnreachableError(f"{where} refuses to serve the object (status {status})", "ask for a fresh URL")
    chunks, size = [], 0
    for chunk in answer.iter_raw():
        size += len(chunk)
        if size > limit:
            raise IntegrityError(f"{where} sends more than the {limit} bytes expected", "use another source")
        if time.monotonic() > deadline:
            raise Again("too slow")
        chunks.append(chunk)
    return b"".join(chunks)


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
        self._outside = http_client(Reach(private=allow_private))

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

    def each(self) -> dict[str, Callable[[str, int], bytes]]:
        """Every base as a source of its own, by its URL."""
        return {base: partial(self._from, base) for base in self._bases}

    def _from(self, base: str, key: str, limit: int) -> bytes:
        return download(f"{base}/{key}", key, limit, self._client, self._timeout)

    def elsewhere(self, url: str, key: str, limit: int, timeout: float = 20.0) -> bytes:
        """As `download`, from a URL that a stranger announced: it has to be public, unless `allow_private`."""
        return download(url, key, limit, self._outside, timeout)

    def close(self) -> None:
        self._client.close()
        self._outside.close()
