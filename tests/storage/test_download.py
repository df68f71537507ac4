import gzip
import hashlib
import os
import time
from http.server import BaseHTTPRequestHandler

import pytest

from protocol.errors import IntegrityError, MusterError, UnreachableError
from storage.download import HttpObjects, download
from storage.keys import MissingObjectError, object_key
from tests.conftest import free_port
from tests.storage.mirror import NEAR, drip, endless, mirror, redirect_to, send

DATA = os.urandom(1000)
KEY = object_key("shards", hashlib.sha256(DATA).digest())


def honest(handler: BaseHTTPRequestHandler) -> None:
    send(handler, 200 if handler.path.endswith(KEY) else 404, DATA if handler.path.endswith(KEY) else b"")


def test_second_mirror_takes_over_and_is_preferred_afterwards() -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    with mirror(lambda h: send(h, 200, b"poison" * 100)) as poisoned, mirror(honest) as good:
        objects = HttpObjects([poisoned, dead, good])
        assert objects(KEY, 1000) == DATA
        start = time.monotonic()
        assert objects(KEY, 1000) == DATA
        assert time.monotonic() - start < 0.5, "the dead mirror is not asked again first"
        objects.close()


def test_no_good_mirror_raises_what_an_answering_one_said() -> None:
    with mirror(lambda h: send(h, 200, b"poison")) as poisoned, mirror(lambda h: send(h, 404)) as empty:
        with pytest.raises(MissingObjectError):
            HttpObjects([poisoned, empty])(KEY, 1000)
        with pytest.raises(IntegrityError, match="another hash"):
            HttpObjects([empty, poisoned])(KEY, 1000)
        dead = f"http://127.0.0.1:{free_port()}"
        for bases in ([dead, empty], [empty, dead]):
            with pytest.raises(MissingObjectError):
                HttpObjects(bases, timeout=1)(KEY, 1000)
        with pytest.raises(UnreachableError):
            HttpObjects([dead, dead], timeout=1)(KEY, 1000)


def test_passing_failures_are_retried() -> None:
    asked = []

    def flaky(handler: BaseHTTPRequestHandler) -> None:
        asked.append(1)
        send(handler, 503) if len(asked) < 3 else honest(handler)

    with mirror(flaky) as base:
        assert download(f"{base}/{KEY}", KEY, 1000, NEAR) == DATA
    assert len(asked) == 3


def test_endless_answer_is_cut() -> None:
    with mirror(endless) as base, pytest.raises(IntegrityError, match="more than"):
        download(f"{base}/{KEY}", KEY, 1000, NEAR)


def test_dripping_answer_is_bounded() -> None:
    start = time.monotonic()
    with mirror(drip) as base, pytest.raises(UnreachableError):
        download(f"{base}/{KEY}", KEY, 1000, NEAR, timeout=1.5)
    assert time.monotonic() - start < 10


def test_redirects() -> None:
    with mirror(honest) as good:
        with mirror(lambda h: send(h, 307, Location=f"{good}/{KEY}")) as service:
            assert download(f"{service}/v1/objects/{KEY}", KEY, 1000, NEAR) == DATA
    with mirror(lambda h: send(h, 302, Location="/again")) as loop, pytest.raises(IntegrityError, match="redirects"):
        download(f"{loop}/{KEY}", KEY, 1000, NEAR)
    for target in ("file:///etc/passwd", "ftp://x/y", "http://", "gopher://127.0.0.1:70/"):
        with mirror(redirect_to(target)) as odd, pytest.raises(MusterError):
            download(f"{odd}/{KEY}", KEY, 1000, NEAR, timeout=5)


def test_compressed_answers_are_not_unpacked() -> None:
    bomb = gzip.compress(bytes(10_000_000))
    with mirror(lambda h: send(h, 200, bomb, Content_Encoding="gzip")) as base, pytest.raises(IntegrityError):
        download(f"{base}/{KEY}", KEY, 20_000, NEAR)


@pytest.mark.parametrize("url", ["", "nonsense", "file:///etc/passwd", "http://", "http://[::1", "http://x:999999/"])
def test_odd_urls(url: str) -> None:
    with pytest.raises(MusterError):
        download(url, KEY, 1000, NEAR, timeout=2)


def test_secrets_of_urls_stay_out_of_errors() -> None:
    url = f"http://127.0.0.1:{free_port()}/{KEY}?X-Amz-Signature=SECRET"
    with pytest.raises(UnreachableError) as caught:
        download(url, KEY, 1000, NEAR, timeout=1)
    assert "SECRET" not in str(caught.value)
