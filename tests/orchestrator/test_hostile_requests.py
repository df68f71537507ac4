"""The routes with unsigned, replayed, oversized and hostile requests."""

import json
from typing import Any

import pytest

from protocol.api.work import StepRequest
from protocol.http.limits import Buckets
from tests.orchestrator.chain import NODE, OWNER, STRANGER
from tests.orchestrator.conftest import Desk, is_error


def test_unsigned_foreign_and_replayed_requests(desk: Desk) -> None:
    body = b"{}"
    assert is_error(desk.http.post("/v1/leases", content=body), 401, "missing")
    assert is_error(desk.post(STRANGER, "/v1/leases", {}), 403, "may not")
    headers = desk.sign(NODE, "/v1/leases", body)
    assert desk.http.post("/v1/leases", content=body, headers=headers).status_code == 200
    assert is_error(desk.http.post("/v1/leases", content=body, headers=headers), 409, "before")
    desk.restart()
    assert is_error(desk.http.post("/v1/leases", content=body, headers=headers), 409, "before")
    other = desk.sign(NODE, "/v1/leases", body)
    assert is_error(desk.http.post("/v1/leases", content=b'{"counter":1}', headers=other), 401, "signature")
    assert is_error(desk.http.post("/v1/leases?x=1", content=body, headers=other), 401, "signature")
    assert is_error(desk.http.post("/v1/heartbeats", content=b'{"role":"worker"}', headers=other), 401, "signature")
    old = desk.sign(NODE, "/v1/leases", body)
    desk.now += 61
    assert is_error(desk.http.post("/v1/leases", content=body, headers=old), 401, "time")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff\xfe",
        b'{"counter": NaN}',
        b'{"counter": 1e400}',
        b'{"counter": 0.0}',
        b'{"counter": true}',
        b'{"counter": "0"}',
        b'{"counter": -1}',
        b'{"counter": 0, "counter": 0}',
        b"{" + b",".join(b'"%x": 0' % n for n in range(5000)) + b"}",
        b'{"\\ud800": 1}',
        b'{"counter": ' + b"9" * 5000 + b"}",
        b"[" * 50_000,
        b'{"counter":' + b"[" * 10 + b"]" * 10 + b"}",
    ],
)
def test_hostile_bodies_are_named_and_refused(desk: Desk, body: bytes) -> None:
    assert is_error(desk.post(NODE, "/v1/leases", body), 422, "")


def test_a_crowd_of_unknown_fields_is_not_looked_at(desk: Desk) -> None:
    """A member of the pool may send a megabyte; the models would describe every one of its hundred thousand fields."""
    crowd = b"{" + b",".join(b'"%x":0' % n for n in range(100_000)) + b"}"
    assert len(crowd) < StepRequest.MAX_BYTES
    assert is_error(desk.post(NODE, "/v1/steps", crowd), 422, "more than 64 fields")
    assert is_error(desk.post(OWNER, "/v1/steps", b'{"step":0,"metrics":' + crowd + b"}"), 422, "more than 64 fields")


def test_text_that_a_database_may_not_take_is_refused(desk: Desk) -> None:
    for field in ("name", "version", "engine", "phase"):
        answer = desk.post(NODE, "/v1/heartbeats", {"role": "worker", field: "a\0b"})
        assert is_error(answer, 422, f"field `{field}`")


@pytest.mark.parametrize("kind", ["text/plain", "application/json; charset=utf-16", "multipart/form-data", "\\", ""])
def test_a_body_is_json_whatever_it_is_called(desk: Desk, kind: str) -> None:
    headers = desk.sign(NODE, "/v1/leases", b'{"counter":0}') | {"Content-Type": kind}
    assert desk.http.post("/v1/leases", content=b'{"counter":0}', headers=headers).json()["counter"] == 0


def test_oversized_bodies_are_not_read(desk: Desk) -> None:
    assert is_error(desk.post(NODE, "/v1/leases", b" " * (1 << 17)), 413, "larger")

    def endless() -> Any:
        for _ in range(64):
            yield b" " * 4096

    headers = desk.sign(NODE, "/v1/leases", b"")
    answer = desk.http.post("/v1/leases", content=endless(), headers=headers)
    assert is_error(answer, 413, "larger")
    assert answer.headers["connection"] == "close", "what still comes of it may come for ever"


def test_unknown_routes_and_methods_answer_alike(desk: Desk) -> None:
    assert is_error(desk.http.get("/v1/leases"), 405, "not allowed")
    assert is_error(desk.http.get("/admin"), 404, "not found")
    assert desk.http.get("/health").json()["ok"] is True


def test_rate_limit() -> None:
    buckets = Buckets(rate=1, burst=2, most=2)
    assert [buckets.take("a", 0.0) for _ in range(3)] == [True, True, False]
    assert buckets.take("a", 1.0)
    assert not buckets.take("a", 0.5)
    assert buckets.take("b", 1.0)
    assert buckets.take("c", 1.0)


def test_the_page_cannot_run_what_strangers_send(desk: Desk) -> None:
    name = "<img src=x onerror=alert(1)>"
    assert desk.post(NODE, "/v1/heartbeats", {"role": "worker", "name": name}).status_code == 200
    page = desk.http.get("/")
    policy = page.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    script = page.text.split('<script type="module">')[1]
    for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "http://", "https://"):
        assert sink not in script
    data = desk.http.get("/v1/dashboard")
    assert data.headers["content-type"] == "application/json"
    assert data.headers["x-content-type-options"] == "nosniff"
    assert name in json.dumps(data.json())
