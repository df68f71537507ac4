"""Uploads, receipts and objects, asked for over HTTP."""

from typing import Any

import pytest

from protocol.api.work import ReceiptRequest, UploadReceipt
from protocol.errors import IntegrityError, UnreachableError
from tests.orchestrator.chain import NODE, OWNER, TERMS, VOTER
from tests.orchestrator.conftest import POOL, SHA, Desk, is_error

FILE = {"kind": "rollouts", "sha256": SHA, "size": 5}
ASK = {"sha256": SHA, "size": 5}
KEY = f"rollouts/{SHA}.parquet"


def receipt(desk: Desk) -> dict[str, Any]:
    found: dict[str, Any] = desk.post(NODE, "/v1/receipts", ASK).json()["receipt"]
    return found


def test_a_node_gets_a_lease_uploads_and_gets_a_receipt(desk: Desk) -> None:
    lease = desk.lease(NODE, counter=0)
    assert (lease["step"], lease["counter"], lease["expires"]) == (0, 0, desk.now + 180)
    ticket = desk.post(NODE, "/v1/uploads", FILE).json()
    assert (ticket["key"], ticket["headers"]["content-length"]) == (KEY, "5")
    assert ticket["url"].startswith(f"http://127.0.0.1:9/pool/{KEY}?")
    assert is_error(desk.post(NODE, "/v1/receipts", ASK), 404, "not in the bucket")
    desk.bucket.sizes[KEY] = 5
    given = receipt(desk)
    UploadReceipt(**given).check(POOL, NODE.address, SHA, 5)
    assert given["signer"] == OWNER.address
    for forged, size in (({"size": 6}, 6), ({"signer": NODE.address}, 5)):
        with pytest.raises(IntegrityError, match="not signed by"):
            UploadReceipt(**{**given, **forged}).check(POOL, NODE.address, SHA, size)
    again = desk.post(NODE, "/v1/uploads", FILE).json()
    assert again == {"key": KEY, "exists": True, "receipt": given}
    assert is_error(desk.post(NODE, "/v1/receipts", {"sha256": SHA, "size": 6}), 409, "5 bytes")


def test_a_service_with_a_new_key_signs_its_receipts_anew(desk: Desk) -> None:
    desk.bucket.sizes[KEY] = 5
    first = receipt(desk)
    desk.now += 5
    again = desk.uploads(VOTER).receipt(NODE.address, ReceiptRequest(sha256=SHA, size=5)).receipt
    again.check(POOL, NODE.address, SHA, 5)
    assert (again.signer, again.time) == (VOTER.address, first["time"])
    assert first["signer"] == OWNER.address


def test_a_receipt_that_no_longer_counts_is_given_anew(desk: Desk) -> None:
    desk.bucket.sizes[KEY] = 5
    first = receipt(desk)["time"]
    desk.now += TERMS.receiptWindow
    assert receipt(desk)["time"] == first
    desk.now += 1
    assert receipt(desk)["time"] == int(desk.now)


def test_verdicts_come_from_voters_only(desk: Desk) -> None:
    body = {"kind": "verdicts", "sha256": SHA, "keccak256": "cd" * 32, "size": 9}
    assert desk.post(VOTER, "/v1/uploads", body).json()["key"] == f"verdicts/{'cd' * 32}.json"
    assert is_error(desk.post(NODE, "/v1/uploads", body), 403, "no active seat")
    assert is_error(desk.post(VOTER, "/v1/uploads", {**body, "kind": "rollouts"}), 403, "not joined")
    assert is_error(desk.post(VOTER, "/v1/uploads", {**body, "size": 1 << 30}), 413, "too many")
    del body["keccak256"]
    assert is_error(desk.post(VOTER, "/v1/uploads", body), 422, "keccak256")


ODD_HASHES = ({"sha256": sha256} for sha256 in ("../" + SHA[3:], SHA.upper(), SHA + "\n"))


@pytest.mark.parametrize("change", [{"kind": "weights"}, {"size": 0}, {"size": 10**30}, *ODD_HASHES])
def test_uploads_are_content_addresses(desk: Desk, change: dict[str, Any]) -> None:
    assert is_error(desk.post(NODE, "/v1/uploads", FILE | change), 422, "field")


ODD_KEYS = ["secret", "%00", "../" + SHA, "rollouts/abc.parquet", f"rollouts/{SHA}", f"{KEY}/", f"keys/{SHA}"]
ESCAPED_KEYS = [f"shards/{SHA}%0a", f"rollouts/..%2fshards/{SHA}"]


@pytest.mark.parametrize("key", [*ODD_KEYS, *ESCAPED_KEYS])
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
    answer = desk.post(NODE, "/v1/uploads", FILE)
    assert is_error(answer, 503, "does not answer")
    assert "10.0.0.1" not in answer.text
    assert answer.headers["retry-after"] == "2"
