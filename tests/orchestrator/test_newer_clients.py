"""Programs are upgraded one by one: what a newer one says beyond what this service knows does not keep it out."""

import json

from orchestrator.sources import AnnouncedSources
from protocol.announcements import Announcement, announce
from protocol.encoding import canonical_json
from tests.orchestrator.chain import NODE, OWNER
from tests.orchestrator.conftest import POOL, Desk, is_error
from tests.storage.mirror import mirror, send

NEWER = {"colour": {"hue": [1, 2, 3]}}


def test_a_newer_node_is_heard(desk: Desk) -> None:
    wait = {"what": "a step", "since": 1.0, **NEWER}
    beat = {"role": "worker", "weights": 4, "waits": [wait], **NEWER}
    assert desk.post(NODE, "/v1/heartbeats", beat).status_code == 200
    assert desk.http.get(f"/v1/nodes/{NODE.address}").json()["weights"] == 4
    assert "lease" in desk.post(NODE, "/v1/leases", {"counter": 0, **NEWER}).json()


def test_a_newer_relay_is_listed_without_what_is_not_known(desk: Desk) -> None:
    desk.service.sources = AnnouncedSources(POOL, True, lambda: desk.now)
    words: list[bytes] = []
    with mirror(lambda handler: send(handler, 200, words[0])) as url:
        known = announce(NODE, POOL, url, int(desk.now) + 600, step=4)
        said = {**known.model_dump(mode="json"), **NEWER}
        words.append(canonical_json(said))
        assert desk.post(NODE, "/v1/sources", said).status_code == 200
    (listed,) = desk.http.get("/v1/sources").json()["sources"]
    assert Announcement.model_validate(listed) == known
    assert not NEWER.keys() & listed.keys()


def test_the_signature_covers_fields_that_are_not_known(desk: Desk) -> None:
    signed = json.dumps({"counter": 0, **NEWER}).encode()
    headers = desk.sign(NODE, "/v1/leases", signed)
    answer = desk.http.post("/v1/leases", content=signed.replace(b"hue", b"hue2"), headers=headers)
    assert is_error(answer, 401, "is not")


def test_what_is_signed_as_a_whole_is_read_whole(desk: Desk) -> None:
    evaluation = {"step": 0, "manifest": "00" * 32, "config_hash": "00" * 32, "time": 1.0, **NEWER}
    report = {"step": 0, "evaluation": {"evaluation": evaluation, "signature": "0x" + "00" * 65}}
    assert is_error(desk.post(OWNER, "/v1/steps", report), 422, "field `evaluation.evaluation.colour`")
