import contextlib
import gzip
import hashlib
import os
import time
from http.server import BaseHTTPRequestHandler

import pytest

from protocol.errors import IntegrityError, MusterError, UnreachableError
from storage.keys import MissingObjectError, object_key
from storage.transfers import HttpObjects, download
from tests.conftest import free_port
from tests.storage.mirror import NEAR, Answer, drip, endless, mirror, redirect_to, send

DATA = os.urandom(1000)
KEY = object_key("shards", hashlib.sha256(DATA).digest())


def honest(handler: BaseHTTPRequestHandler) -> None:
    send(handler, *((200, DATA) if handler.path.endswith(KEY) else (404,)))


def test_second_mirror_takes_over_and_is_preferred_afterwards() -> None:
    asked = []

    def poison(handler: BaseHTTPRequestHandler) -> None:
        asked.append("poisoned")
        send(handler, 200, b"poison" * 100)

    def good_one(handler: BaseHTTPRequestHandler) -> None:
        asked.append("good")
        honest(handler)

    dead = f"http://127.0.0.1:{free_port()}"
    with mirror(poison) as poisoned, mirror(good_one) as good:
        objects = HttpObjects([poisoned, dead, good])
        assert objects(KEY, 1000) == DATA
        assert asked[0] == "poisoned"
        assert asked[-1] == "good"
        asked.clear()
        assert objects(KEY, 1000) == DATA
        assert asked == ["good"], "the others are not asked again first"
        objects.close()


def test_no_good_mirror_raises_what_an_answering_one_said() -> None:
    with mirror(lambda h: send(h, 200, b"poison")) as poisoned, mirror(lambda h: send(h, 404)) as empty:
        with pytest.raises(IntegrityError, match="another hash"):
            HttpObjects([poisoned, empty])(KEY, 1000)
        with pytest.raises(MissingObjectError):
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


LARGE = os.urandom(6_000_000)
LARGE_KEY = object_key("shards", hashlib.sha256(LARGE).digest())
"""More than what httpx reads by itself."""


def drip_after_a_part(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(LARGE)))
    handler.end_headers()
    handler.wfile.write(LARGE[:100_000])
    with contextlib.suppress(OSError):
        while True:
            handler.wfile.write(b"x")
            time.sleep(0.05)


def one_byte_more(handler: BaseHTTPRequestHandler) -> None:
    send(handler, 200, LARGE + b"x")


@pytest.mark.parametrize("answer", [drip, drip_after_a_part])
def test_a_dripping_answer_is_bounded(answer: Answer) -> None:
    start = time.monotonic()
    with mirror(answer) as base, pytest.raises(UnreachableError):
        download(f"{base}/{LARGE_KEY}", LARGE_KEY, len(LARGE), NEAR, timeout=1.5)
    assert time.monotonic() - start < 60


GOES_ON = [(endless, KEY, 1000), (one_byte_more, LARGE_KEY, len(LARGE))]


@pytest.mark.parametrize(("answer", "key", "size"), GOES_ON, ids=["endless", "one byte more"])
def test_an_answer_that_goes_on_is_cut(answer: Answer, key: str, size: int) -> None:
    with mirror(answer) as base, pytest.raises(IntegrityError, match="more than"):
        download(f"{base}/{key}", key, size, NEAR)
