"""How fast does a node's upload to the pool's storage go? Measured with a ticket for other bytes than are sent: the
storage takes them all in, finds that their hash is another, and keeps nothing."""

import hashlib
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cli.doctor.base import Prerequisite, failed, note
from cli.doctor.storage import judge_speed
from protocol.errors import MusterError, first_line

if TYPE_CHECKING:
    import httpx

    from cli.profile import Profile
    from protocol.api.work import UploadTicket
    from protocol.http.reach import Reach

SIZE = 4 << 20
_PIECE = 64 << 10
_MOST_SECONDS = 10.0
_ANSWER_SECONDS = 30.0
_ELSEWHERE = "up: measured with the node's key of a profile (muster init operator), or the owner's access key (--s3)"


class _EnoughError(Exception):
    """As much was sent as the time allows."""


def up(service: str, profile: "Profile | None") -> Prerequisite:
    """At most 4 MiB, at most ten seconds and what an answer takes."""
    from runtime.signed_client import ServiceError
    from storage.transfers import http_client

    if profile is None or profile.node is None or profile.deployment is None:
        return note("storage", _ELSEWHERE)
    if profile.node.password_file is None or not profile.node.keystore.exists():
        return note("storage", "up: not measured, for the node's key has no password file, or is not there yet")
    try:
        ticket, reach = _ticket(service, profile)
        if ticket is None:
            return note("storage", "up: not measured, for the service has no ticket for what is sent")
        with http_client(reach) as client:
            return probe(ticket, client)
    except ServiceError as error:
        if error.status == 403:
            return note("storage", f"up: measured once the node is in the pool ({error.detail})")
        return failed("storage", f"up: {error.what}", "see whether the pool's service is up")
    except MusterError as error:
        return failed("storage", f"up: {error.what}", error.hint or "see whether the pool's service is up")


def promised(address: str) -> bytes:
    """The SHA-256 that the ticket is for: always the same of a node, so that it holds one ticket at most by this."""
    return hashlib.sha256(f"muster doctor measures the upload of {address}".encode()).digest()


def _ticket(service: str, profile: "Profile") -> "tuple[UploadTicket | None, Reach]":
    """A ticket of the node's, and where it may lead. Raises ServiceError, MusterError."""
    from chain.deployment import Deployment
    from protocol.api.endpoints import UPLOADS
    from protocol.api.work import UploadExists, UploadRequest
    from protocol.http.reach import Reach
    from protocol.http.signing import AuthScope
    from runtime.keystore import open_key
    from runtime.signed_client import ClientLimits, RequestSigner, SignedClient
    from storage.transfers import check_headers

    assert profile.node is not None
    assert profile.deployment is not None
    deployment = Deployment.load(profile.deployment)
    account = open_key(profile.node.keystore, profile.node.password_file)
    auth_scope = AuthScope.of(service, deployment.chain_id, deployment.address("Pools"))
    digest, limits = promised(account.address), ClientLimits(timeout=5.0, attempts=1, exchange=20.0)
    client = SignedClient(auth_scope.audience, RequestSigner(account, auth_scope), limits)
    try:
        answer = client.post(UPLOADS, UploadRequest(kind="rollouts", sha256=digest.hex(), size=SIZE))
    finally:
        client.close()
    reach = Reach(own=(auth_scope.audience,), private=profile.allow_private_sources)
    if isinstance(answer, UploadExists):
        return None, reach
    check_headers(answer, SIZE, digest)
    return answer, reach


def probe(ticket: "UploadTicket", client: "httpx.Client") -> Prerequisite:
    """Send SIZE bytes that a ticket is not for. What storage makes of them says how far they came."""
    import httpx

    from protocol.http.transport import until
    from storage.transfers import host

    pieces = _Pieces()
    place = host(ticket.url)
    try:
        with until(time.monotonic() + _MOST_SECONDS + _ANSWER_SECONDS):
            answer = client.put(ticket.url, content=pieces, headers=ticket.headers)
    except _EnoughError:
        return judge_speed("up", pieces.sent, _MOST_SECONDS)
    except (httpx.HTTPError, httpx.StreamError) as error:
        return failed("storage", f"up: {place}: {first_line(error)}", "see whether the pool's bucket can be reached")
    taken = time.monotonic() - pieces.started
    if answer.status_code == 400 and pieces.sent == SIZE:
        return judge_speed("up", SIZE, taken)
    if answer.is_success:
        what = f"up: {place} stores bytes whose hash its ticket does not name"
        return failed("storage", what, "tell the pool's owner: docs/storage.md says what a bucket must check")
    what = f"up: {place} answers {answer.status_code} to the service's ticket"
    return failed("storage", what, "set the clock; if that is right, tell the pool's owner")


class _Pieces:
    """SIZE random bytes, piece by piece, for a few seconds at most; `started`: when the first was asked for."""

    def __init__(self) -> None:
        self.sent, self.started = 0, time.monotonic()

    def __iter__(self) -> Iterator[bytes]:
        self.started = time.monotonic()
        while self.sent < SIZE:
            if time.monotonic() - self.started > _MOST_SECONDS:
                raise _EnoughError
            yield os.urandom(_PIECE)
            self.sent += _PIECE
