"""Uploads, receipts and objects, asked for over HTTP."""

import pytest

from protocol.api.work import ReceiptRequest, UploadReceipt
from protocol.errors import IntegrityError, UnreachableError
from tests.orchestrator.chain import NODE, OWNER, TERMS, VOTER
from tests.orchestrator.conftest import POOL, SHA, Desk, is_error


def test_a_node_gets_a_lease_uploads_and_gets_a_receipt(desk: Desk) -> None:
    lease = desk.post(NODE, "/v1/leases", {"counter": 0}).json()
    assert (lease["step"], lease["counter"], lease["expires"]) == (0, 0, desk.now + 180)
    ticket = desk.post(NODE, "/v1/uploads", {"kind": "rollouts", "sha256": SHA, "size": 5}).json()
    assert ticket["key"] == f"rollouts/{SHA}.parquet"
    assert ticket["headers"]["content-length"] == "5"
    assert ticket["url"].startswith(f"http://127.0.0.1:9/pool/rollouts/{SHA}.parquet?")
    assert is_error(desk.post(NODE, "/v1/receipts", {"sha256": SHA, "size": 5}), 404, "not in the bucket")
    desk.bucket.sizes[ticket["key"]] = 5
    receipt = desk.post(NODE, "/v1/receipts", {"sha256": SHA, "size": 5}).json()["receipt"]
    UploadReceipt(**receipt).check(POOL, NODE.address, SHA, 5)
    assert receipt["signer"] == OWNER.address
    for forged, size in (({"size": 6}, 6), ({"signer": NODE.address}, 5)):
        with pytest.raises(IntegrityError, match="not signed by"):
            UploadReceipt(**{**receipt, **forged}).check(POOL, NODE.address, SHA, size)
    again = desk.post(NODE, "/v1/uploads", {"kind": "rollouts", "sha256": SHA, "size": 5}).json()
    assert again == {"key": ticket["key"], "exists": True, "receipt": receipt}
    assert is_error(desk.post(NODE, "/v1/receipts", {"sha256": SHA, "size": 6}), 409, "5 bytes")


def test_a_service_with_a_new_key_signs_its_receipts_anew(desk: Desk) -> None:
    desk.bucket.sizes[f"rollouts/{SHA}.parquet"] = 5
    first = desk.post(NODE, "/v1/receipts", {"sha256": SHA, "size": 5}).json()["receipt"]
    desk.now += 5
    again = desk.uploads(VOTER).receipt(NODE.address, ReceiptRequest(sha256=SHA, size=5)).receipt
    again.check(POOL, NODE.address, SHA, 5)
    assert (again.signer, again.time) == (VOTER.address, first["time"])
    assert first["signer"] == OWNER.address


def test_a_receipt_that_no_longer_counts_is_given_anew(desk: Desk) -> None:
    desk.bucket.sizes[f"rollouts/{SHA}.parquet"] = 5
    ask = {"sha256": SHA, "size": 5}
    first = desk.post(NODE, "/v1/receipts", ask).json()["receipt"]["time"]
    desk.now += TERMS.receiptWindow
    assert desk.post(NODE, "/v1/receipts", ask).json()["receipt"]["time"] == first
    desk.now += 1
    assert desk.post(NODE, "/v1/receipts", ask).json()["receipt"]["time"] == int(desk.now)


def test_verdicts_come_from_voters_only(desk: Desk) -> None:
    body = {"kind": "verdicts", "sha256": SHA, "keccak256": "cd" * 32, "size": 9}
    assert desk.post(VOTER, "/v1/uploads", body).json()["key"] == f"verdicts/{'cd' * 32}.json"
    assert is_error(desk.post(NODE, "/v1/uploads", body), 403, "no active seat")
    assert is_error(desk.post(VOTER, "/v1/uploads", {**body, "kind": "rollouts"}), 403, "not joined")
    assert is_error(desk.post(VOTER, "/v1/uploads", {**body, "size": 1 << 30}), 413, "too many")
    del body["keccak256"]
    assert is_error(desk.post(VOTER, "/v1/uploads", body), 422, "keccak256")


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
        desk.bucket.sizes[answer.json()["key"]] = 1


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
    assert set(answer.json()) == {"error", "hint"}


def test_objects_redirect(desk: Desk) -> None:
    answer = desk.http.get(f"/v1/objects/shards/{SHA}")
    assert answer.status_code == 307
    assert answer.headers["location"].startswith(f"http://127.0.0.1:9/pool/shards/{SHA}?X-Amz-")


def test_storage_out_of_reach_is_503(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(key: str) -> int | None:
        raise UnreachableError("S3 at http://10.0.0.1 does not answer")

    monkeypatch.setattr(desk.bucket, "size", fail)
    answer = desk.post(NODE, "/v1/uploads", {"kind": "rollouts", "sha256": SHA, "size": 5})
    assert is_error(answer, 503, "does not answer")
    assert "10.0.0.1" not in answer.text
    assert answer.headers["retry-after"] == "2"
