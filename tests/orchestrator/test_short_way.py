"""Signed requests that go straight to their route are answered as the application itself would answer them."""

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from starlette.concurrency import run_in_threadpool

from orchestrator.metrics import REQUEST_SECONDS
from orchestrator.signed_route import ShortWay, SignedRoute
from protocol.http.signing import Realm, sign_request
from tests.orchestrator.chain import NODE, POOLS, STRANGER
from tests.orchestrator.conftest import SHA, URL, Desk

BEAT = json.dumps({"role": "worker", "name": "w"}).encode()
PATH = "/v1/heartbeats"
THREADS = 40
"""That Starlette has for what blocks."""


def cases(desk: Desk) -> Iterator[tuple[int, str, str, bytes, list[tuple[str, str]]]]:
    """The status to expect, then method, path with query, body and headers of requests, honest ones and others."""

    def signed(path: str = PATH, body: bytes = BEAT, method: str = "POST", **change: Any) -> list[tuple[str, str]]:
        realm, now = change.get("realm", desk.realm), desk.now + change.get("late", 0)
        return list(sign_request(change.get("key", NODE), realm, method, path, body, now).items())

    yield 200, "POST", PATH, BEAT, signed()
    yield 200, "POST", f"{PATH}?a=1", BEAT, signed(f"{PATH}?a=1")
    yield 200, "POST", "/v1/heart%62eats", BEAT, signed("/v1/heart%62eats")
    for body in (b"", b"[]", b"{", b'{"role": "x"}', b'{"role": "worker", "role": "worker"}', b"\xff"):
        yield 422, "POST", PATH, body, signed(body=body)
    yield 413, "POST", PATH, b"x" * 70_000, signed(body=b"x" * 70_000)
    yield 401, "POST", PATH, BEAT, signed(f"{PATH}?a=1")
    yield 401, "POST", f"{PATH}?a=1", BEAT, signed()
    yield 401, "POST", "/v1/slots", BEAT, signed()
    yield 401, "POST", "/v1/heart%62eats", BEAT, signed()
    yield 401, "POST", PATH, BEAT + b" ", signed()
    yield 401, "POST", PATH, BEAT, signed(method="PUT")
    yield 401, "POST", PATH, BEAT, signed(realm=Realm.of("http://elsewhere", 31337, POOLS))
    yield 401, "POST", PATH, BEAT, signed(realm=Realm.of(URL, 1, POOLS))
    yield 401, "POST", PATH, BEAT, signed(realm=Realm.of(URL, 31337, "0x" + "12" * 20))
    yield 200, "POST", PATH, BEAT, signed(late=60)
    yield 401, "POST", PATH, BEAT, signed(late=61)
    yield 401, "POST", PATH, BEAT, signed(late=-61)
    yield 403, "POST", PATH, BEAT, signed(key=STRANGER)
    yield 401, "POST", PATH, BEAT, []
    honest = signed()
    for number, (name, value) in enumerate(honest):
        yield 401, "POST", PATH, BEAT, honest[:number] + honest[number + 1 :]
        yield 401, "POST", PATH, BEAT, [*honest, (name.upper(), value)]
    yield 200, "POST", PATH, BEAT, honest
    yield 409, "POST", PATH, BEAT, honest
    yield 200, "POST", PATH, BEAT, [("X-Muster-Address", NODE.address.lower()), *signed()[1:]]
    yield 401, "POST", PATH, BEAT, [("X-Muster-Address", "0x" + NODE.address[2:].swapcase()), *signed()[1:]]
    yield 401, "POST", PATH, BEAT, [*signed(), ("X-Muster-More", "1")]
    for status, method, path in ((405, "GET", PATH), (405, "HEAD", PATH), (404, "POST", "/v1/none")):
        yield status, method, path, b"", signed(path, b"")
    yield 405, "PUT", PATH, BEAT, signed()
    yield 307, "POST", f"{PATH}/", BEAT, signed(f"{PATH}/")
    yield 200, "POST", "/v1/slots", b"{}", signed("/v1/slots", b"{}")
    upload = json.dumps({"kind": "rollouts", "sha256": SHA, "size": 5}).encode()
    yield 200, "POST", "/v1/uploads", upload, signed("/v1/uploads", upload)
    missing = json.dumps({"sha256": SHA, "size": 5}).encode()
    yield 404, "POST", "/v1/receipts", missing, signed("/v1/receipts", missing)
    report = json.dumps({"step": 0}).encode()
    yield 403, "POST", "/v1/steps", report, signed("/v1/steps", report)


def answers(desk: Desk) -> list[tuple[int, Any, Any]]:
    http = TestClient(desk.app, base_url=URL, raise_server_exceptions=False, follow_redirects=False)
    out = []
    for status, method, path, body, headers in cases(desk):
        found = http.request(method, path, content=body, headers=headers)
        assert found.status_code == status, (method, path, body[:50], found.text)
        content = found.json() if found.content else None
        for name in ("slot", "url", "expires"):  # drawn anew, or of the second
            if content:
                content.pop(name, None)
        out.append((found.status_code, content, sorted(set(found.headers.items()) - {_length(found)})))
    return out


def _length(found: Any) -> tuple[str, str]:
    return "content-length", found.headers.get("content-length", "")


def test_both_ways_answer_alike(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list(cases(desk))
    short = answers(desk)
    desk.restart()
    monkeypatch.setattr(ShortWay, "_way", lambda self, scope: None)
    long = answers(desk)
    for one, other, case in zip(short, long, asked, strict=True):
        assert one == other, case[:3]


def test_every_signed_route_goes_the_short_way_and_is_counted_under_its_path(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    respond = SignedRoute.respond

    async def noted(self: SignedRoute, *args: Any) -> None:
        taken.append(self.path)
        await respond(self, *args)

    monkeypatch.setattr(SignedRoute, "respond", noted)
    paths = [route.path for route in desk.app.routes if isinstance(route, SignedRoute)]
    assert len(paths) == 6
    for path in paths:
        before = _count(path)
        assert desk.http.post(path, content=b"{}").status_code == 401
        assert _count(path) == before + 1
    assert taken == paths


def _count(path: str) -> float:
    for metric in REQUEST_SECONDS.collect():
        for sample in metric.samples:
            if sample.name.endswith("_count") and sample.labels == {"route": path, "status": "4xx"}:
                return float(sample.value)
    return 0.0


def test_heartbeats_are_answered_while_every_thread_waits(desk: Desk) -> None:
    """As when many ask for slots while another replica holds the lock of their transaction."""
    desk.service._batched = True

    async def run() -> int:
        started, release = threading.Semaphore(0), threading.Event()

        def wait() -> None:
            started.release()
            release.wait(200)

        waiting = [asyncio.create_task(run_in_threadpool(wait)) for _ in range(THREADS + 1)]
        for _ in range(THREADS):
            await asyncio.to_thread(started.acquire, timeout=60)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(desk.app), base_url=URL) as http:
            try:
                async with asyncio.timeout(100):
                    found = await http.post(PATH, content=BEAT, headers=desk.sign(NODE, PATH, BEAT))
            finally:
                release.set()
                await asyncio.gather(*waiting)
        return found.status_code

    assert asyncio.run(run()) == 200
