"""How fast the pool's storage is from here, for `muster doctor`: down, a piece of the newest weights, as everybody
fetches them; up, with the owner's access key."""

import os
import time
from pathlib import Path
from typing import Any

import httpx

from cli.checks import Check, failed, note, ok
from protocol.encoding import load_document
from protocol.errors import IntegrityError, MusterError, first_line

_MIB = 1 << 20
_MOST_DOWN, _DOWN_SECONDS = 16 * _MIB, 5.0
_SIZE_UP, _SLOWEST = 4 * _MIB, 0.25 * _MIB


def judge_speed(way: str, size: int, taken: float) -> Check:
    """Judge bytes and seconds. What is too small to time says nothing."""
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
        return failed("storage", f"down: {error.what}", error.hint or "see whether the pool's service is up")
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
    place, data = {"Bucket": settings.bucket, "Key": f"doctor/{os.urandom(8).hex()}"}, os.urandom(_SIZE_UP)
    try:
        started = time.monotonic()
        client.put_object(Body=data, **place)
        taken = time.monotonic() - started
        client.delete_object(**place)
    except (BotoCoreError, ClientError, OSError) as error:
        return failed("storage", f"up: {first_line(error)}", "check the access key's rights and the endpoint")
    return judge_speed("up", _SIZE_UP, taken)
