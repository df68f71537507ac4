"""A bucket that lists without an end, and names nothing."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path

import pytest

from protocol.errors import UnreachableError
from storage import s3 as bucket_module
from storage.s3 import MAX_EMPTY_PAGES, AccessKey, Bucket, S3Settings

PAGE = (
    '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><MaxKeys>1000</MaxKeys>'
    "<IsTruncated>{more}</IsTruncated>{keys}<NextContinuationToken>{at}</NextContinuationToken></ListBucketResult>"
)


class Lister:
    """Answers page after page: `keys` of each, by its number; `last` is the last one's, -1 for none."""

    def __init__(self) -> None:
        self.keys: dict[int, str] = {}
        self.last, self.pages, self.seconds = -1, 0, 0.0
        outer, numbers = self, count()

        class Answering(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.pages += 1
                at = next(numbers)
                time.sleep(outer.seconds)
                named = f"<Contents><Key>{outer.keys[at]}</Key></Contents>" if at in outer.keys else ""
                more = "false" if at == outer.last else "true"
                data = PAGE.format(more=more, keys=named, at=at).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def bucket(self) -> Bucket:
        endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"
        settings = S3Settings(endpoint=endpoint, bucket="bucket", credentials=Path("nowhere"))
        return Bucket(settings, AccessKey(access_key="key", secret_key="secret"))


@pytest.fixture
def lister() -> Iterator[Lister]:
    made = Lister()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_empty_pages_without_an_end_are_given_up(lister: Lister) -> None:
    lister.last = 50 * MAX_EMPTY_PAGES  # so that a listing that does not give up ends, too
    with pytest.raises(UnreachableError, match="without an end"):
        list(lister.bucket.list("envelopes/"))
    assert lister.pages <= MAX_EMPTY_PAGES + 2


def test_slow_empty_pages_are_given_up_sooner(lister: Lister, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_module, "EMPTY_SECONDS", 0.2)
    lister.last, lister.seconds = MAX_EMPTY_PAGES - 2, 0.1
    with pytest.raises(UnreachableError, match="without an end"):
        list(lister.bucket.list("envelopes/"))
    assert lister.pages < MAX_EMPTY_PAGES - 2


def test_some_empty_pages_between_keys_are_no_fault(lister: Lister) -> None:
    lister.keys = {at: f"envelopes/{at}" for at in (0, 40, 90)}
    lister.last = 90
    assert list(lister.bucket.list("envelopes/")) == list(lister.keys.values())
    assert lister.pages == 91


def test_a_slow_listing_that_goes_on_is_no_fault(lister: Lister, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty pages take longer in all than they may without a key between them."""
    monkeypatch.setattr(bucket_module, "EMPTY_SECONDS", 1.0)
    lister.keys = {at: f"envelopes/{at}" for at in range(0, 31, 3)}
    lister.last, lister.seconds = 30, 0.06
    assert list(lister.bucket.list("envelopes/")) == list(lister.keys.values())


def test_empty_pages_to_the_end_are_no_fault(lister: Lister) -> None:
    lister.last = MAX_EMPTY_PAGES
    assert list(lister.bucket.list("envelopes/")) == []
    assert lister.pages == MAX_EMPTY_PAGES + 1


def test_an_empty_bucket_is_no_fault(lister: Lister) -> None:
    lister.last = 0
    assert list(lister.bucket.list("envelopes/")) == []
