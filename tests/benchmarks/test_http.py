"""The hostile requests are what they claim to be, and a service that takes one is found out."""

import time
from collections.abc import Iterator
from itertools import islice

import pytest

from benchmarks.http import Expect, Findings, HostileRequests, Made
from benchmarks.load import CHAIN_ID, POOLS, node_keys
from protocol.http.signing import AuthScope, RequestRefused, parse_headers, verify_request

SCOPE = AuthScope.of("http://127.0.0.1:8700", CHAIN_ID, POOLS)


@pytest.fixture(scope="module")
def made() -> list[Made]:
    return list(islice(iter(HostileRequests(node_keys(60), SCOPE, seed=3)), 2000))


def of_kind(made: list[Made], *kinds: str) -> Iterator[bytes]:
    return (data for kind, _, data in made if kind in kinds)


def sender(data: bytes, now: float) -> str:
    """Whose request it is, by the rules alone."""
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    headers = [tuple(line.split(": ", 1)) for line in lines]
    return verify_request(SCOPE, method, path, body, parse_headers(headers), now)  # type: ignore[arg-type]


def test_sound_requests_are_sound_and_forged_ones_are_not(made: list[Made]) -> None:
    now = time.time()
    assert all(sender(data, now) for data in of_kind(made, "sound", "body", "stranger"))
    forged = list(of_kind(made, "signature", "headers", "changed", "elsewhere", "clock"))
    assert len(forged) > 500
    for data in forged:
        with pytest.raises(RequestRefused):
            sender(data, now)


def test_what_should_not_have_happened_is_counted() -> None:
    found = Findings()
    found.judge(("signature", Expect.REFUSED, b"x"), 401)
    found.judge(("path", Expect.ANY, b"x"), 307)
    found.judge(("sound", Expect.TAKEN, b"x"), 200)
    assert (found.server_errors, found.wrongly_accepted, found.examples) == (0, 0, [])
    found.judge(("signature", Expect.REFUSED, b"x"), 200)
    found.judge(("path", Expect.ANY, b"x"), 500)
    found.judge(("sound", Expect.TAKEN, b"x"), 0)
    assert (found.server_errors, found.wrongly_accepted, found.sound) == (2, 1, [2, 1])
    assert len(found.examples) == 3
