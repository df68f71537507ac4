"""The routes with honest, unsigned, replayed, oversized and hostile requests."""

import json
from typing import Any

import pytest

from orchestrator.bodies import MAX_DEPTH
from orchestrator.limits import Buckets
from orchestrator.liveness import NodeState, node_state
from orchestrator.uploads import receipt_signer
from protocol.verdict import Code
from tests.orchestrator.chain import CHEAT, NODE, OWNER, STRANGER, VOTER
from tests.orchestrator.conftest import Desk

SHA = "ab" * 32


def is_error(answer: Any, status: int, words: str) -> bool:
    body = answer.json()
    assert answer.status_code == status, body
    assert set(body) == {"error", "mend"}
    assert words in body["error"], body
    return True


def test_a_node_gets_a_slot_uploads_and_gets_a_receipt(desk: Desk) -> None:
    slot = desk.post(NODE, "/v1/slots", {"counter": 0}).json()
    assert (slot["step"], slot["counter"], slot["expires"]) == (0, 0, desk.now + 30)
    ticket = desk.post(NODE, "/v1/uploads", {"kind": "rollouts", "sha256": SHA, "size": 5}).json()
    assert ticket["key"] == f"rollouts/{SHA}.parquet"
    assert ticket["headers"]["content-length"] == "5"
    assert ticket["url"].startswith(f"http://127.0.0.1:9/pool/rollouts/{SHA}.parquet?")
    assert is_error(desk.post(NODE, "/v1/receipts", {"sha256": SHA, "size": 5}), 404, "not in the bucket")
    desk.shelf.sizes[ticket["key"]] = 5
    receipt = desk.post(NODE, "/v1/receipts", {"sha256": SHA, "size": 5}).json()["receipt"]
    assert receipt_signer(desk.realm, receipt) == OWNER.address == receipt["signer"]
    assert receipt_signer(desk.realm, {**receipt, "size": 6}) != OWNER.address
    again = desk.post(NODE, "/v1/uploads", {"kind": "rollouts", "sha256": SHA, "size": 5}).json()
    assert again == {"key": ticket["key"], "exists": True, "receipt": receipt}
    assert is_error(desk.post(NODE, "/v1/receipts", {"sha256": SHA, "size": 6}), 409, "5 bytes")


def test_heartbeats_renew_the_slot_and_show_on_the_dashboard(desk: Desk) -> None:
    slot = desk.post(NODE, "/v1/slots", {}).json()
    desk.now += 20
    beat = {"role": "worker", "name": "w1", "slot": slot["slot"], "waits": [{"what": "weights", "since": desk.now}]}
    answer = desk.post(NODE, "/v1/heartbeats", beat).json()
    assert answer == {"state": "healthy", "next": 10.0, "step": 0, "slot_expires": desk.now + 30}
    view = desk.http.get("/v1/dashboard").json()
    assert {"who": "w1", "what": "weights", "since": desk.now} in view["waits"]
    assert view["in_flight"]["leased"] == 1
    states = desk.http.get("/v1/status").json()["nodes"]
    assert states == {NODE.address: "healthy", CHEAT.address: "waiting"}
    stolen = desk.post(CHEAT, "/v1/heartbeats", {"role": "worker", "slot": slot["slot"]}).json()
    assert stolen["slot_expires"] is None
    desk.now += 31
    assert desk.http.get("/v1/dashboard").json()["in_flight"]["leased"] == 0


def test_slots_follow_the_chain(desk: Desk) -> None:
    for counter in (0, 1):
        for key in (NODE, CHEAT):
            assert "slot" in desk.post(key, "/v1/slots", {"counter": counter}).json()
    first = desk.chain.submit(CHEAT, 0)
    desk.follow()
    waiting = desk.post(CHEAT, "/v1/slots", {"counter": 2}).json()
    assert "as many as training can use (4)" in waiting["reason"]
    desk.follow(lambda: desk.chain.settle(CHEAT, first, Code.REJECT_WEIGHTS))
    assert is_error(desk.post(CHEAT, "/v1/slots", {}), 403, "stake is frozen")
    desk.follow(lambda: desk.chain.finalize(CHEAT, first, Code.REJECT_WEIGHTS, 5000, 3003))
    assert is_error(desk.post(CHEAT, "/v1/slots", {}), 403, "ejected: reject: weights")
    view = desk.http.get("/v1/dashboard").json()
    assert view["slashes"][0]["reason"] == "reject: weights"
    assert next(n for n in view["nodes"] if n["address"] == CHEAT.address)["state"] == "ejected"


def test_a_reorganisation_takes_the_submission_back(desk: Desk) -> None:
    slot = desk.post(NODE, "/v1/slots", {"counter": 0}).json()
    desk.follow(lambda: desk.chain.submit(NODE, 0))
    assert desk.post(NODE, "/v1/slots", {"counter": 0}).json()["wait"] == 1.0
    desk.follow(lambda: desk.chain.rewind(1))
    again = desk.post(NODE, "/v1/slots", {"counter": 0}).json()
    assert again["counter"] == 0
    assert again["slot"] != slot["slot"]


def test_budget_pause_and_close(desk: Desk) -> None:
    desk.follow(lambda: desk.chain.emit("Pools", "StatusSet", pool=1, status=2))
    assert "paused" in desk.post(NODE, "/v1/slots", {}).json()["reason"]
    desk.follow(lambda: desk.chain.emit("Pools", "StatusSet", pool=1, status=3))
    assert is_error(desk.post(NODE, "/v1/slots", {}), 403, "closing")


def test_the_trainers_reports(desk: Desk) -> None:
    report = {"step": 1, "consumed": [0, 1], "metrics": {"reward": 0.5}, "timings": {"train": 1.5}, "heldout": None}
    assert is_error(desk.post(NODE, "/v1/steps", report), 403, "not the owner")
    assert desk.post(OWNER, "/v1/steps", {"step": 0, "heldout": 0.25}).json() == {"step": 0}
    assert desk.post(OWNER, "/v1/steps", report).json() == {"step": 1}
    assert desk.post(OWNER, "/v1/steps", report).json() == {"step": 1}
    assert is_error(desk.post(OWNER, "/v1/steps", {**report, "consumed": [3, 3]}), 422, "consumed")
    rewards = desk.http.get("/v1/dashboard").json()["rewards"]
    assert rewards == [{"step": 0, "reward": None, "heldout": 0.25}, {"step": 1, "reward": 0.5, "heldout": None}]


def test_what_was_trained_on_is_known_by_its_file(desk: Desk) -> None:
    chain = desk.chain
    first = chain.submit(NODE, 0)
    chain.settle(NODE, first, Code.ACCEPT)
    desk.follow()
    assert desk.post(OWNER, "/v1/steps", {"step": 1, "consumed": [first]}).status_code == 200

    def trained() -> dict[int, tuple[int | None, bool]]:
        files = desk.http.get("/v1/record").json()["submissions"]
        return {one["sequence"]: (one["trained"], one["trained_twice"]) for one in files}

    assert trained() == {0: (1, False)}
    # The chain loses its end: another file takes the sequence, the first one comes back behind it.
    desk.follow(lambda: chain.rewind(2))
    chain.sequence = 0
    other, again = chain.submit(NODE, 0, sha=b"\7" * 32), chain.submit(NODE, 1, sha=bytes(32))
    chain.settle(NODE, other, Code.ACCEPT)
    chain.settle(NODE, again, Code.ACCEPT)
    desk.follow()
    assert trained() == {0: (None, False), 1: (1, False)}
    assert desk.service.leases.in_flight().accepted == 1
    for _ in range(2):
        assert desk.post(OWNER, "/v1/steps", {"step": 2, "consumed": [other]}).status_code == 200
        assert desk.post(OWNER, "/v1/steps", {"step": 1, "consumed": [first]}).status_code == 200
    assert trained() == {0: (2, False), 1: (1, False)}
    assert desk.post(OWNER, "/v1/steps", {"step": 3, "consumed": [again]}).status_code == 200
    assert trained()[1] == (3, True)


def test_verdicts_come_from_voters_only(desk: Desk) -> None:
    body = {"kind": "verdicts", "sha256": SHA, "keccak256": "cd" * 32, "size": 9}
    assert desk.post(VOTER, "/v1/uploads", body).json()["key"] == f"verdicts/{'cd' * 32}.json"
    assert is_error(desk.post(NODE, "/v1/uploads", body), 403, "no active seat")
    assert is_error(desk.post(VOTER, "/v1/uploads", {**body, "kind": "rollouts"}), 403, "not joined")
    assert is_error(desk.post(VOTER, "/v1/uploads", {**body, "size": 1 << 30}), 413, "too many")
    del body["keccak256"]
    assert is_error(desk.post(VOTER, "/v1/uploads", body), 422, "keccak256")


def test_unsigned_foreign_and_replayed_requests(desk: Desk) -> None:
    body = b"{}"
    assert is_error(desk.http.post("/v1/slots", content=body), 401, "missing")
    assert is_error(desk.post(STRANGER, "/v1/slots", {}), 403, "may not")
    headers = desk.sign(NODE, "/v1/slots", body)
    assert desk.http.post("/v1/slots", content=body, headers=headers).status_code == 200
    assert is_error(desk.http.post("/v1/slots", content=body, headers=headers), 409, "before")
    desk.restart()
    assert is_error(desk.http.post("/v1/slots", content=body, headers=headers), 409, "before")
    other = desk.sign(NODE, "/v1/slots", body)
    assert is_error(desk.http.post("/v1/slots", content=b'{"counter":1}', headers=other), 401, "signature")
    assert is_error(desk.http.post("/v1/slots?x=1", content=body, headers=other), 401, "signature")
    assert is_error(desk.http.post("/v1/heartbeats", content=b'{"role":"worker"}', headers=other), 401, "signature")
    old = desk.sign(NODE, "/v1/slots", body)
    desk.now += 61
    assert is_error(desk.http.post("/v1/slots", content=body, headers=old), 401, "time")


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
        b'{"counter": 0, "pool": 2}',
        b'{"\\ud800": 1}',
        b'{"counter": ' + b"9" * 5000 + b"}",
        b"[" * 50_000,
        b'{"counter":' + b"[" * (MAX_DEPTH + 2) + b"]" * (MAX_DEPTH + 2) + b"}",
    ],
)
def test_hostile_bodies_are_named_and_refused(desk: Desk, body: bytes) -> None:
    assert is_error(desk.post(NODE, "/v1/slots", body), 422, "")


def test_oversized_bodies_are_not_read(desk: Desk) -> None:
    assert is_error(desk.post(NODE, "/v1/slots", b" " * (1 << 17)), 413, "larger")

    def endless() -> Any:
        for _ in range(64):
            yield b" " * 4096

    headers = desk.sign(NODE, "/v1/slots", b"")
    assert is_error(desk.http.post("/v1/slots", content=endless(), headers=headers), 413, "larger")


@pytest.mark.parametrize(
    ("kind", "sha256", "size"),
    [
        ("weights", SHA, 1),
        ("rollouts", "../" + SHA[3:], 1),
        ("rollouts", SHA.upper(), 1),
        ("rollouts", SHA + "\n", 1),
        ("rollouts", SHA, 0),
        ("rollouts", SHA, 10**30),
    ],
)
def test_uploads_are_content_addresses(desk: Desk, kind: str, sha256: str, size: int) -> None:
    answer = desk.post(NODE, "/v1/uploads", {"kind": kind, "sha256": sha256, "size": size})
    assert is_error(answer, 422, "field")


def test_a_node_cannot_collect_tickets_without_end(desk: Desk) -> None:
    sent = [{"kind": "rollouts", "sha256": f"{n:064x}", "size": 1} for n in range(65)]
    answers = [desk.post(NODE, "/v1/uploads", one).status_code for one in sent]
    assert answers == [200] * 64 + [429]


def test_a_used_ticket_makes_room_for_another(desk: Desk) -> None:
    for n in range(200):
        body = {"kind": "rollouts", "sha256": f"{n:064x}", "size": 1}
        answer = desk.post(NODE, "/v1/uploads", body)
        assert answer.status_code == 200, f"file {n} of a node that uploads every file"
        desk.shelf.sizes[answer.json()["key"]] = 1


@pytest.mark.parametrize(
    "key",
    [
        "secret",
        "rollouts/abc.parquet",
        "../" + SHA,
        f"rollouts/{SHA}",
        f"rollouts/{SHA}.parquet/",
        f"shards/{SHA}%0a",
        f"keys/{SHA}",
        f"rollouts/..%2fshards/{SHA}",
        "%00",
    ],
)
def test_objects_are_content_addresses(desk: Desk, key: str) -> None:
    answer = desk.http.get(f"/v1/objects/{key}")
    assert answer.status_code in (400, 404)
    assert set(answer.json()) == {"error", "mend"}


def test_objects_redirect(desk: Desk) -> None:
    answer = desk.http.get(f"/v1/objects/shards/{SHA}")
    assert answer.status_code == 307
    assert answer.headers["location"].startswith(f"http://127.0.0.1:9/pool/shards/{SHA}?X-Amz-")


def test_unknown_routes_and_methods_answer_alike(desk: Desk) -> None:
    assert is_error(desk.http.get("/v1/slots"), 405, "not allowed")
    assert is_error(desk.http.get("/admin"), 404, "not found")
    assert desk.http.get("/health").json()["ok"] is True


def test_leases_survive_a_restart(desk: Desk) -> None:
    slot = desk.post(NODE, "/v1/slots", {"counter": 0}).json()
    desk.restart()
    assert desk.post(NODE, "/v1/slots", {"counter": 0}).json()["slot"] == slot["slot"]
    assert desk.service.leases.in_flight().leased == 1


def test_how_files_fared_is_measured_and_survives_a_restart(desk: Desk) -> None:
    assert desk.post(NODE, "/v1/slots", {"counter": 0}).status_code == 200
    desk.now += 2
    first = desk.chain.submit(NODE, 0)
    desk.follow(lambda: desk.chain.settle(NODE, first, Code.ACCEPT))
    desk.restart()
    assert desk.post(NODE, "/v1/slots", {"counter": 1}).status_code == 200
    pace = desk.service.leases.pace()
    with desk.service.watch.reading() as state:
        made = state.submissions[1, first].time - (desk.now - 2)
    assert pace.making == {NODE.address: made}
    assert pace.typical == made
    assert pace.useful == {NODE.address: 1.0}
    desk.follow(lambda: desk.chain.settle(NODE, desk.chain.submit(NODE, 1), Code.MALFORMED))
    assert desk.service.leases.in_flight().leased == 0
    assert desk.service.leases.pace().useful == {NODE.address: 5 / 6}


def test_a_node_that_may_not_work_yet_keeps_nobody_from_it(desk: Desk) -> None:
    """It asks again and again, has nothing in flight, and still does not stand first in the queue."""
    desk.follow(lambda: desk.chain.join(STRANGER, step=1))
    for counter in (0, 1):
        for key in (NODE, CHEAT):
            assert "joined late" in desk.post(STRANGER, "/v1/slots", {}).json()["reason"]
            assert "slot" in desk.post(key, "/v1/slots", {"counter": counter}).json()


def test_rate_limit() -> None:
    buckets = Buckets(rate=1, burst=2, most=2)
    assert [buckets.take("a", 0.0) for _ in range(3)] == [True, True, False]
    assert buckets.take("a", 1.0)
    assert not buckets.take("a", 0.5)
    assert buckets.take("b", 1.0)
    assert buckets.take("c", 1.0)


def test_storage_out_of_reach_is_503(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    from protocol.errors import UnreachableError

    def fail(key: str) -> int | None:
        raise UnreachableError("S3 at http://10.0.0.1 does not answer")

    monkeypatch.setattr(desk.shelf, "size", fail)
    answer = desk.post(NODE, "/v1/uploads", {"kind": "rollouts", "sha256": SHA, "size": 5})
    assert is_error(answer, 503, "does not answer")
    assert "10.0.0.1" not in answer.text
    assert answer.headers["retry-after"] == "2"


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


def test_node_states() -> None:
    seen = 100.0
    states = [node_state(seen, seen + gap) for gap in (0, 14, 16, 34, 36, 1e6, -50)]
    healthy, unhealthy, dead = NodeState.HEALTHY, NodeState.UNHEALTHY, NodeState.DEAD
    assert states == [healthy, healthy, unhealthy, unhealthy, dead, dead, healthy]
    assert node_state(None, 0) is NodeState.WAITING
    assert node_state(100, 100, ejected=True, left=True) is NodeState.EJECTED
    assert node_state(100, 100, left=True) is NodeState.LEFT
