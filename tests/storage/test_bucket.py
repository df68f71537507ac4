import hashlib
import json
import os
import stat
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from unittest import mock

import pytest

from protocol.errors import ConfigError, IntegrityError, UnreachableError
from storage.keys import MissingObjectError, object_key
from storage.s3 import Bucket, S3Settings
from storage.transfers import TicketRefusedError, download, upload
from tests.localnet.services.running import ServiceProcess, running, settings_of
from tests.storage.mirror import NEAR, mirror, send
from tests.storage.refusals import DATA, KEY, bucket_at


def fresh(size: int = 1000) -> tuple[str, bytes]:
    data = os.urandom(size)
    return object_key("shards", hashlib.sha256(data).digest()), data


def test_put_get_list(bucket: Bucket) -> None:
    key, data = fresh()
    assert bucket.size(key) is None
    with pytest.raises(MissingObjectError):
        bucket.get(key)
    assert bucket.put(key, data)
    assert not bucket.put(key, data), "a second time changes nothing"
    assert bucket.get(key) == data
    assert bucket.size(key) == 1000
    assert key in list(bucket.list("shards/"))


def test_a_place_is_taken_once(bucket: Bucket) -> None:
    run = os.urandom(32).hex()
    entry, note = f"diloco/{run}/log/0000000000", f"diloco/{run}/messages/0x{run[:40]}/0000000007"
    for place in (entry, note):
        assert bucket.read_document(place, 100) is None
        assert bucket.put_first(place, b"first")
        assert not bucket.put_first(place, b"second")
        assert bucket.read_document(place, 5) == b"first"
        with pytest.raises(IntegrityError, match="at most 4"):
            bucket.read_document(place, 4)
    for wrong in (f"{entry}/x", f"diloco/{run}/log/1", entry.replace(run, run[:-1]), "log/../x"):
        for call in (lambda place: bucket.put_first(place, b"x"), lambda place: bucket.read_document(place, 100)):
            with pytest.raises(ConfigError, match="is not the path"):
                call(wrong)


def test_refuses_what_the_key_does_not_name(bucket: Bucket) -> None:
    key, data = fresh()
    with pytest.raises(IntegrityError):
        bucket.put(key, data + b"x")
    with pytest.raises(ConfigError):
        bucket.put("shards/../etc/passwd", data)
    bucket.put(key, data)
    with pytest.raises(IntegrityError):
        bucket.get(key, limit=999)


def test_tampered_on_disk(s3: ServiceProcess, bucket: Bucket) -> None:
    key, data = fresh(5000)
    bucket.put(key, data)
    held = [path for path in (s3.data / "srv").rglob("*.data") if path.read_bytes() == data]
    assert held
    held[0].chmod(0o600)
    with held[0].open("r+b") as file:
        file.write(b"poison")
    with pytest.raises((IntegrityError, UnreachableError)):
        bucket.get(key)
    with pytest.raises((IntegrityError, UnreachableError, MissingObjectError)):
        download(bucket.presign_get(key), key, 5000, NEAR)
    assert bucket.put(key, data), "the server has put the damaged copy aside: storing it again heals it"
    assert bucket.get(key) == data


def test_ticket_round_trip(bucket: Bucket) -> None:
    key, data = fresh()
    ticket = bucket.presign_put(key, len(data), hashlib.sha256(data).digest())
    assert type(ticket).model_validate_json(ticket.model_dump_json()) == ticket
    assert upload(ticket, data, NEAR)
    assert not upload(ticket, data, NEAR), "after a crash the same upload is known to be done"
    assert download(bucket.presign_get(key), key, 1000, NEAR) == data
    with pytest.raises(IntegrityError):
        upload(ticket, data + b"x", NEAR)
    with pytest.raises(IntegrityError, match="more than"):
        download(bucket.presign_get(key), key, 999, NEAR)
    other, _ = fresh()
    with pytest.raises(IntegrityError, match="another hash"):
        download(bucket.presign_get(key), other, 1000, NEAR)
    with pytest.raises(MissingObjectError):
        download(bucket.presign_get(other), other, 1000, NEAR)


def test_expired_ticket(bucket: Bucket) -> None:
    key, data = fresh()
    old = datetime.now(UTC) - timedelta(hours=2)
    with mock.patch("botocore.auth.get_current_datetime", return_value=old):
        ticket = bucket.presign_put(key, len(data), hashlib.sha256(data).digest(), 60)
        url = bucket.presign_get(key, 60)
    ticket = ticket.model_copy(update={"expires": int(old.timestamp()) + 60})
    with pytest.raises(TicketRefusedError, match="expired"):
        upload(ticket, data, NEAR)
    with pytest.raises(UnreachableError, match="refuses"):
        download(url, key, 1000, NEAR)


def test_credentials_file(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    settings = S3Settings(endpoint="http://127.0.0.1:1", bucket="muster", credentials=path)
    with pytest.raises(ConfigError, match="cannot read"):
        settings.access()
    path.write_text(json.dumps({"access_key": "a", "secret_key": "hidden"}))
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        settings.access()
    path.chmod(stat.S_IRUSR)
    assert "hidden" not in repr(settings.access())
    for damaged in ("", "[]", '{"access_key": 1, "secret_key": "x"}', "[" * 10_000):
        path.chmod(0o600)
        path.write_text(damaged)
        with pytest.raises(ConfigError):
            settings.access()


@pytest.mark.parametrize("endpoint", ["", "ftp://x", "http://", "http://h/path", "127.0.0.1:9000"])
def test_endpoint(endpoint: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        S3Settings(endpoint=endpoint or "x", bucket="muster", credentials=tmp_path)


def test_data_survive_kill(tmp_path: Path) -> None:
    service = ServiceProcess("s3", tmp_path / "data")
    with running(service):
        bucket = Bucket(settings_of(service))
        stored = [fresh(3000) for _ in range(8)]
        for key, data in stored:
            bucket.put(key, data)
        service.kill()
        with pytest.raises(UnreachableError):
            bucket.size(stored[0][0])
        service.start()
        for key, data in stored:
            assert bucket.get(key) == data
        assert sorted(bucket.list("shards/")) == sorted(key for key, _ in stored)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_refused_with_its_target(status: int) -> None:
    def redirect(handler: BaseHTTPRequestHandler) -> None:
        handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        send(handler, status, Location="https://s3.example/elsewhere")

    with mirror(redirect) as url:
        bucket = bucket_at(url)
        for call in (
            lambda: bucket.size(KEY),
            lambda: bucket.get(KEY),
            lambda: bucket.put(KEY, DATA),
            lambda: list(bucket.list("shards/")),
        ):
            with pytest.raises(ConfigError, match=r"redirects to https://s3\.example/elsewhere"):
                call()


def test_a_redirect_to_another_region_names_it() -> None:
    with mirror(lambda handler: send(handler, 301, x_amz_bucket_region="eu-west-3")) as url:
        with pytest.raises(ConfigError, match="set region = 'eu-west-3'"):
            bucket_at(url).size(KEY)
