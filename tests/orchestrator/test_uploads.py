"""Uploads, receipts and objects, asked for over HTTP."""

from dataclasses import replace
from typing import Any

import pytest

from protocol.api.work import UNSIGNED, SubmissionRequest, UploadReceipt
from protocol.errors import IntegrityError, UnreachableError
from tests.orchestrator.chain import CHEAT, NODE, OWNER, STRANGER, TERMS, VOTER
from tests.orchestrator.conftest import POOL, SHA, Desk, is_error

FILE = {"kind": "rollouts", "sha256": SHA, "size": 5}
FILED = SubmissionRequest(
    step=0, counter=0, units=9, rows=1, root="cd" * 32, sha256=SHA, size=5, signature=UNSIGNED
).signed(NODE, POOL)
HAND_IN = FILED.model_dump()
KEY = f"rollouts/{SHA}.parquet"


def receipt(desk: Desk) -> dict[str, Any]:
    found: dict[str, Any] = desk.post(NODE, "/v1/submissions", HAND_IN).json()["receipt"]
    return found


def test_a_node_gets_a_lease_uploads_and_gets_a_receipt(desk: Desk) -> None:
    lease = desk.lease(NODE, counter=0)
    assert (lease["step"], lease["counter"], lease["expires"]) == (0, 0, desk.now + 180)
    ticket = desk.post(NODE, "/v1/uploads", FILE).json()
    assert (ticket["key"], ticket["headers"]["content-length"]) == (KEY, "5")
    assert ticket["url"].startswith(f"http://127.0.0.1:9/pool/{KEY}?")
    assert is_error(desk.post(NODE, "/v1/submissions", HAND_IN), 404, "not in the bucket")
    desk.bucket.sizes[KEY] = 5
    given = receipt(desk)
    UploadReceipt(**given).check(POOL, NODE.address, SHA, 5)
    assert given["signer"] == OWNER.address
    for forged, size in (({"size": 6}, 6), ({"signer": NODE.address}, 5)):
        with pytest.raises(IntegrityError, match="not signed by"):
            UploadReceipt(**{**given, **forged}).check(POOL, NODE.address, SHA, size)
    again = desk.post(NODE, "/v1/uploads", FILE).json()
    assert again == {"key": KEY, "exists": True}
    assert is_error(desk.post(NODE, "/v1/submissions", HAND_IN | {"size": 6}), 409, "5 bytes")


def test_what_a_node_hands_in_is_kept_and_forgeries_are_told_apart(desk: Desk) -> None:
    desk.bucket.sizes[KEY] = 5
    answer = desk.post(NODE, "/v1/submissions", HAND_IN).json()
    assert (answer["state"], answer["sequence"], answer["reason"]) == ("waiting", None, "")
    assert desk.service.relay.handed_in(NODE.address, 0) == 1
    assert is_error(desk.post(CHEAT, "/v1/submissions", HAND_IN), 400, f"not signed by {CHEAT.address}")
    assert is_error(desk.post(NODE, "/v1/submissions", HAND_IN | {"units": 10}), 400, f"not signed by {NODE.address}")
    assert is_error(desk.post(NODE, "/v1/submissions", HAND_IN | {"signature": "0x12"}), 422, "signature")
    assert is_error(desk.post(STRANGER, "/v1/submissions", HAND_IN), 403, "may not do this")
    assert desk.lease(NODE, counter=2)["counter"] == 2, "one file ahead of the one that is handed in"


def test_strangers_may_ask_to_join_where_the_owner_lends_stakes_and_nowhere_else(desk: Desk) -> None:
    wish = {"operator": OWNER.address, "expiry": int(desk.now) + 60, "sponsorship": UNSIGNED, "join": UNSIGNED}
    assert is_error(desk.post(STRANGER, "/v1/joins", wish), 403, "may not do this")
    desk.app.state.guard = replace(desk.guard, open_to_all=frozenset({"/v1/joins"}))
    assert is_error(desk.post(STRANGER, "/v1/joins", wish), 403, "lends no stake")
    desk.service.sponsor.most = 1
    assert desk.post(STRANGER, "/v1/joins", wish).json() == {"member": False, "reason": ""}
    assert is_error(desk.post(STRANGER, "/v1/leaves", {"expiry": 9, "leave": UNSIGNED}), 403, "may not do this")


def test_a_service_with_a_new_key_signs_its_receipts_anew(desk: Desk) -> None:
    desk.bucket.sizes[KEY] = 5
    first = receipt(desk)
    desk.now += 5
    again = desk.uploads(VOTER).receipt(NODE.address, SHA, 5)
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
