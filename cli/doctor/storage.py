"""How fast is the pool's storage from here? Down: a piece of the newest weights, as everybody fetches them. Up: with
the owner's access key (a node's way: cli.doctor.upload)."""

import os
import time
from pathlib import Path
from typing import Any

from cli.doctor.base import Prerequisite, failed, note, ok
from cli.doctor.services import ask_orchestrator
from protocol.encoding import load_document
from protocol.errors import MusterError, first_line

_MIB = 1 << 20
_MOST_DOWN, _MOST_SECONDS = 16 * _MIB, 5.0
_UP = 4 * _MIB
_SLOWEST = 0.25 * _MIB


def down(service: str) -> Prerequisite:
    """At most 16 MiB, at most five seconds and what an answer takes to begin."""
    try:
        key = newest_shard(service)
        return note("storage", "down: the pool has published no weights yet") if key is None else _fetch(service, key)
    except MusterError as error:
        return failed("storage", f"down: {error.what}", error.hint or "see whether the pool's service is up")


def newest_shard(service: str) -> str | None:
    """The key of the first shard of the newest weights. Raises UnreachableError, IntegrityError, ConfigError."""
    from protocol.api.endpoints import DASHBOARD, OBJECTS
    from protocol.encoding import parse_json
    from protocol.errors import IntegrityError
    from storage.keys import object_key
    from storage.transfers import HttpObjects
    from storage.weights.manifest import MAX_STORED_BYTES, SignedManifest

    published = [one for one in ask_orchestrator(service, DASHBOARD).published if one.manifest]
    if not published:
        return None
    objects = HttpObjects([service.rstrip("/") + OBJECTS], timeout=20.0, allow_private=True)
    try:
        digest = bytes.fromhex(max(published, key=lambda one: one.step).manifest)
        stored = parse_json(objects(object_key("manifests", digest), MAX_STORED_BYTES))
        manifest = SignedManifest.model_validate(stored).manifest
        return max(manifest.files, key=lambda file: file.size).shards[0].key
    except (ValueError, IndexError):
        raise IntegrityError("the newest weights' manifest is not one", "tell the pool's owner") from None
    finally:
        objects.close()


def _fetch(service: str, key: str) -> Prerequisite:
    import httpx

    from protocol.api.endpoints import OBJECTS

    got, url = 0, f"{service.rstrip('/')}{OBJECTS}/{key}"
    try:
        with httpx.stream("GET", url, timeout=20.0, follow_redirects=True, trust_env=False) as answer:
            answer.raise_for_status()
            started = time.monotonic()
            for chunk in answer.iter_bytes():
                got += len(chunk)
                if got >= _MOST_DOWN or time.monotonic() - started > _MOST_SECONDS:
                    break
            taken = time.monotonic() - started
    except httpx.HTTPError as error:
        return failed("storage", f"down: {first_line(error)}", "see whether the pool's bucket can be reached from here")
    return judge_speed("down", got, taken)


def up(s3: Path) -> Prerequisite:
    """4 MiB under a name of their own, removed again."""
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
    place, data = {"Bucket": settings.bucket, "Key": f"doctor/{os.urandom(8).hex()}"}, os.urandom(_UP)
    try:
        started = time.monotonic()
        client.put_object(Body=data, **place)
        taken = time.monotonic() - started
        client.delete_object(**place)
    except (BotoCoreError, ClientError, OSError) as error:
        return failed("storage", f"up: {first_line(error)}", "check the access key's rights and the endpoint")
    return judge_speed("up", _UP, taken)


def judge_speed(way: str, size: int, taken: float) -> Prerequisite:
    """Bytes and seconds. What is too small to time says nothing."""
    speed = size / max(taken, 1e-6)
    what = f"{way}: {speed / _MIB:.1f} MiB/s ({size / _MIB:.1f} MiB)"
    if size >= _MIB and speed < _SLOWEST:
        return failed("storage", what, f"use a connection of {_SLOWEST / _MIB:g} MiB/s at least")
    return ok("storage", what)
