"""How fast the pool's storage is from here, for `muster doctor`.

Down: a piece of the newest weights, as everybody fetches them. Up: with the owner's access key, or with a ticket of a
node for other bytes than are sent: storage takes them all in, finds that their hash differs, and keeps nothing.
"""

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from cli.checks import Check, failed, note, ok
from protocol.encoding import load_document
from protocol.errors import IntegrityError, MusterError, first_line

if TYPE_CHECKING:
    from cli.profile import Profile
    from protocol.api.work import UploadTicket
    from protocol.http.reach import Reach

_MIB = 1 << 20
_MOST_DOWN, _DOWN_SECONDS = 16 * _MIB, 5.0
SIZE, _UP_SECONDS, _ANSWER_SECONDS = 4 * _MIB, 10.0, 30.0
_SLOWEST = 0.25 * _MIB
_SERVICE_CURE = "see whether the pool's service is up"


def judge_speed(way: str, size: int, taken: float) -> Check:
    """Bytes and seconds. What is too small to time says nothing."""
    speed = size / max(taken, 1e-6)
    what = f"{way}: {speed / _MIB:.1f} MiB/s ({size / _MIB:.1f} MiB)"
    if size >= _MIB and speed < _SLOWEST:
        return failed("storage", what, f"use a connection of {_SLOWEST / _MIB:g} MiB/s at least")
    return ok("storage", what)


def down(service: str) -> Check:
    """Fetch at most 16 MiB, for at most five seconds and what an answer takes to begin."""
    from protocol.api.endpoints import OBJECTS

    try:
        key = newest_shard(service)
    except MusterError as error:
        return failed("storage", f"down: {error.what}", error.hint or _SERVICE_CURE)
    if key is None:
        return note("storage", "down: the pool has published no weights yet")
    size, url = 0, f"{service.rstrip('/')}{OBJECTS}/{key}"
    try:
        with httpx.stream("GET", url, timeout=20.0, follow_redirects=True, trust_env=False) as answer:
            answer.raise_for_status()
            started = time.monotonic()
            for chunk in answer.iter_bytes():
                size += len(chunk)
                if size >= _MOST_DOWN or time.monotonic() - started > _DOWN_SECONDS:
                    break
            taken = time.monotonic() - started
    except httpx.HTTPError as error:
        return failed("storage", f"down: {first_line(error)}", "see whether the pool's bucket can be reached from here")
    return judge_speed("down", size, taken)


def newest_shard(service: str) -> str | None:
    """Return the key of a shard that the newest policy step stored: of its full weights if it is a snapshot, else of
    its delta. Raises UnreachableError, IntegrityError, ConfigError."""
    from cli.session import ask_service
    from protocol.api.endpoints import DASHBOARD, OBJECTS
    from protocol.encoding import parse_json
    from storage.keys import object_key
    from storage.transfers import HttpObjects
    from storage.weights.manifest import MAX_STORED_BYTES, SignedManifest

    published = [one for one in ask_service(service, DASHBOARD).published if one.manifest]
    if not published:
        return None
    objects = HttpObjects([service.rstrip("/") + OBJECTS], timeout=20.0, allow_private=True)
    try:
        digest = bytes.fromhex(max(published, key=lambda one: one.step).manifest)
        stored = parse_json(objects(object_key("manifests", digest), MAX_STORED_BYTES))
        manifest = SignedManifest.model_validate(stored).manifest
        if manifest.snapshot or not manifest.deltas:
            return max(manifest.files, key=lambda file: file.size).shards[0].key
        return manifest.deltas[0].files[0].shards[0].key
    except (ValueError, IndexError):
        raise IntegrityError("the newest weights' manifest is not one", "tell the pool's owner") from None
    finally:
        objects.close()


def up(s3: Path) -> Check:
    """Store 4 MiB under a name of their own with the owner's access key, and remove them."""
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    from storage.s3 import S3Settings

    try:
        settings = load_document(s3, S3Settings)
        access = settings.access()
    except MusterError as error:
        return failed("storage", f"up: {error.what}", error.hint)
    client: Any = boto3.client(
        "s3",
        endpoint_url=settings.endpoint,
        aws_access_key_id=access.access_key,
        aws_secret_access_key=access.secret_key,
        region_name=settings.region,
        config=Config(
            s3={"addressing_style": "path"}, connect_timeout=5, read_timeout=30, retries={"total_max_attempts": 1}
        ),
    )
    place, data = {"Bucket": settings.bucket, "Key": f"doctor/{os.urandom(8).hex()}"}, os.urandom(SIZE)
    try:
        started = time.monotonic()
        client.put_object(Body=data, **place)
        taken = time.monotonic() - started
        client.delete_object(**place)
    except (BotoCoreError, ClientError, OSError) as error:
        return failed("storage", f"up: {first_line(error)}", "check the access key's rights and the endpoint")
    return judge_speed("up", SIZE, taken)


def up_with_ticket(service: str, profile: "Profile | None") -> Check:
    """Send at most 4 MiB, for at most ten seconds and what an answer takes, with a ticket of the profile's node."""
    from runtime.signed_client import ServiceError
    from storage.transfers import http_client

    if profile is None or profile.node is None or profile.deployment is None:
        how = "a node's key in a profile (muster init operator), or with the owner's access key (--s3)"
        return note("storage", f"up: measured with {how}")
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
        return failed("storage", f"up: {error.what}", _SERVICE_CURE)
    except MusterError as error:
        return failed("storage", f"up: {error.what}", error.hint or _SERVICE_CURE)


def promised(address: str) -> bytes:
    """Return the SHA-256 that the ticket is for: always the same of a node, so that it holds one ticket at most."""
    return hashlib.sha256(f"muster doctor measures the upload of {address}".encode()).digest()


def _ticket(service: str, profile: "Profile") -> "tuple[UploadTicket | None, Reach]":
    """Return a ticket of the node's, and where it may lead. Raises ServiceError, MusterError."""
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
    scope = AuthScope.of(service, deployment.chain_id, deployment.address("Pools"))
    digest, limits = promised(account.address), ClientLimits(timeout=5.0, attempts=1, exchange=20.0)
    client = SignedClient(scope.audience, RequestSigner(account, scope), limits)
    try:
        answer = client.post(UPLOADS, UploadRequest(kind="rollouts", sha256=digest.hex(), size=SIZE))
    finally:
        client.close()
    reach = Reach(own=(scope.audience,), private=profile.allow_private_sources)
    if isinstance(answer, UploadExists):
        return None, reach
    check_headers(answer, SIZE, digest)
    return answer, reach


def probe(ticket: "UploadTicket", client: httpx.Client) -> Check:
    """Send SIZE bytes that a ticket is not for. What storage answers says how far they came."""
    from protocol.http.transport import until
    from storage.transfers import host

    pieces, place = _Pieces(), host(ticket.url)
    try:
        with until(time.monotonic() + _UP_SECONDS + _ANSWER_SECONDS):
            answer = client.put(ticket.url, content=pieces, headers=ticket.headers)
    except _EnoughError:
        return judge_speed("up", pieces.sent, _UP_SECONDS)
    except (httpx.HTTPError, httpx.StreamError) as error:
        return failed("storage", f"up: {place}: {first_line(error)}", "see whether the pool's bucket can be reached")
    taken = time.monotonic() - pieces.started
    if answer.status_code == 400 and pieces.sent == SIZE:
        return judge_speed("up", SIZE, taken)
    if answer.is_success:
        what = f"up: {place} stores bytes whose hash its ticket does not name"
        return failed("storage", what, "tell the pool's owner: its bucket must check SHA-256 of uploads")
    what = f"up: {place} answers {answer.status_code} to the service's ticket"
    return failed("storage", what, "set the clock; if that is right, tell the pool's owner")


class _EnoughError(Exception):
    """As much was sent as the time allows."""


class _Pieces:
    """SIZE random bytes, piece by piece, for a few seconds at most; `started`: when the first was asked for."""

    def __init__(self) -> None:
        self.sent, self.started = 0, time.monotonic()

    def __iter__(self) -> Iterator[bytes]:
        self.started = time.monotonic()
        while self.sent < SIZE:
            if time.monotonic() - self.started > _UP_SECONDS:
                raise _EnoughError
            piece = os.urandom(64 << 10)
            yield piece
            self.sent += len(piece)
