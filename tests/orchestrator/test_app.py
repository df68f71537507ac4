"""Leases, heartbeats and the trainer's reports, asked for over HTTP."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.openapi.models import OpenAPI

from orchestrator.sources import AnnouncedSources
from protocol import VERSION
from protocol.api import endpoints
from protocol.api.endpoints import Get, Post
from protocol.api.work import Announcement, announce
from protocol.encoding import canonical_json
from protocol.verdict import Code
from tests.orchestrator.chain import CHEAT, NODE, OWNER, STRANGER
from tests.orchestrator.conftest import POOL, Desk, is_error
from tests.storage.mirror import mirror, send


def test_heartbeats_renew_the_lease_and_show_on_the_dashboard(desk: Desk) -> None:
    lease = desk.post(NODE, "/v1/leases", {}).json()
    desk.now += 20
    beat = {"role": "worker", "name": "w1", "lease": lease["lease"], "waits": [{"what": "weights", "since": desk.now}]}
    answer = desk.post(NODE, "/v1/heartbeats", beat).json()
    assert answer == {"state": "healthy", "next": 60.0, "step": 0, "lease_expires": desk.now + 180, "version": VERSION}
    view = desk.http.get("/v1/dashboard").json()
    assert {"who": "w1", "what": "weights", "since": desk.now} in view["waits"]
    assert view["in_flight"]["leased"] == 1
    states = desk.http.get("/v1/status").json()["nodes"]
    assert states == {NODE.address: "healthy", CHEAT.address: "waiting"}
    stolen = desk.post(CHEAT, "/v1/heartbeats", {"role": "worker", "lease": lease["lease"]}).json()
    assert stolen["lease_expires"] is None
    desk.now += 181
    assert desk.http.get("/v1/dashboard").json()["in_flight"]["leased"] == 0


def test_leases_follow_the_chain(desk: Desk) -> None:
    for counter in (0, 1):
        for key in (NODE, CHEAT):
            assert "lease" in desk.post(key, "/v1/leases", {"counter": counter}).json()
    first = desk.chain.submit(CHEAT, 0)
    desk.follow()
    waiting = desk.post(CHEAT, "/v1/leases", {"counter": 2}).json()
    assert "as many as training can use (4)" in waiting["reason"]
    desk.follow(lambda: desk.chain.settle(CHEAT, first, Code.REJECT_WEIGHTS))
    assert is_error(desk.post(CHEAT, "/v1/leases", {}), 403, "stake is frozen")
    desk.follow(lambda: desk.chain.finalize(CHEAT, first, Code.REJECT_WEIGHTS, 5000, 3003))
    assert is_error(desk.post(CHEAT, "/v1/leases", {}), 403, "ejected: reject: weights")
    view = desk.http.get("/v1/dashboard").json()
    assert view["slashes"][0]["reason"] == "reject: weights"
    assert next(n for n in view["nodes"] if n["address"] == CHEAT.address)["state"] == "ejected"


def test_a_reorganisation_takes_the_submission_back(desk: Desk) -> None:
    lease = desk.post(NODE, "/v1/leases", {"counter": 0}).json()
    desk.follow(lambda: desk.chain.submit(NODE, 0))
    assert desk.post(NODE, "/v1/leases", {"counter": 0}).json()["wait"] == 1.0
    desk.follow(lambda: desk.chain.rewind(1))
    again = desk.post(NODE, "/v1/leases", {"counter": 0}).json()
    assert again["counter"] == 0
    assert again["lease"] == lease["lease"]


def test_budget_pause_and_close(desk: Desk) -> None:
    desk.follow(lambda: desk.chain.emit("Pools", "StatusSet", pool=1, status=2))
    assert "paused" in desk.post(NODE, "/v1/leases", {}).json()["reason"]
    desk.follow(lambda: desk.chain.emit("Pools", "StatusSet", pool=1, status=5))
    assert "too few seats" in desk.post(NODE, "/v1/leases", {}).json()["reason"]
    desk.follow(lambda: desk.chain.emit("Pools", "StatusSet", pool=1, status=3))
    assert is_error(desk.post(NODE, "/v1/leases", {}), 403, "closing")


def test_the_trainers_reports(desk: Desk) -> None:
    report = {"step": 1, "consumed": [0, 1], "metrics": {"reward": 0.5}, "timings": {"train": 1.5}, "evaluation": None}
    assert is_error(desk.post(NODE, "/v1/steps", report), 403, "not the owner")
    measured = desk.evaluation(0, 0.25)
    assert desk.post(OWNER, "/v1/steps", {"step": 0, "evaluation": measured}).json() == {"step": 0}
    assert desk.post(OWNER, "/v1/steps", report).json() == {"step": 1}
    assert desk.post(OWNER, "/v1/steps", report).json() == {"step": 1}
    assert is_error(desk.post(OWNER, "/v1/steps", {**report, "consumed": [3, 3]}), 422, "consumed")
    rewards = desk.http.get("/v1/dashboard").json()["rewards"]
    sets = measured["evaluation"]["results"]
    assert rewards == [
        {"step": 0, "reward": None, "heldout": 0.25, "sets": sets},
        {"step": 1, "reward": 0.5, "heldout": None, "sets": []},
    ]


def test_an_evaluation_is_the_owners_word_on_that_step_of_that_pool(desk: Desk) -> None:
    def sent(step: int, evaluation: dict[str, Any]) -> Any:
        return desk.post(OWNER, "/v1/steps", {"step": step, "evaluation": evaluation})

    assert is_error(sent(0, desk.evaluation(0, 0.25, NODE)), 400, f"signed by {NODE.address}")
    assert is_error(sent(1, desk.evaluation(0, 0.25)), 400, "of another step")
    assert is_error(sent(0, desk.evaluation(0, 0.25, config_hash="cd" * 32)), 400, "another step or pool configuration")
    changed = desk.evaluation(0, 0.25)
    changed["evaluation"]["results"][0]["average"] = 0.75
    assert is_error(sent(0, changed), 400, "the evaluation is signed by")
    assert is_error(sent(0, desk.evaluation(0, 0.25) | {"signature": "0x" + "00" * 65}), 400, "signature")
    assert desk.http.get("/v1/dashboard").json()["rewards"] == []
    kept = desk.evaluation(0, 0.25)
    assert sent(0, kept).status_code == 200
    shown = desk.http.get("/v1/record").json()["reports"][0]["evaluation"]
    assert shown == kept, "anybody can check the signature of what is shown"


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


def test_leases_survive_a_restart(desk: Desk) -> None:
    lease = desk.post(NODE, "/v1/leases", {"counter": 0}).json()
    desk.restart()
    assert desk.post(NODE, "/v1/leases", {"counter": 0}).json()["lease"] == lease["lease"]
    assert desk.service.leases.in_flight().leased == 1


def test_how_files_fared_is_measured_and_survives_a_restart(desk: Desk) -> None:
    assert desk.post(NODE, "/v1/leases", {"counter": 0}).status_code == 200
    desk.now += 2
    first = desk.chain.submit(NODE, 0)
    desk.follow(lambda: desk.chain.settle(NODE, first, Code.ACCEPT))
    desk.restart()
    assert desk.post(NODE, "/v1/leases", {"counter": 1}).status_code == 200
    pace = desk.service.leases.facts(desk.view.state).pace
    state = desk.service.view.state
    made = state.submissions[1, first].time - (desk.now - 2)
    assert pace.making == {NODE.address: made}
    assert pace.typical == made
    assert pace.useful == {NODE.address: 1.0}
    desk.follow(lambda: desk.chain.settle(NODE, desk.chain.submit(NODE, 1), Code.MALFORMED))
    assert desk.service.leases.in_flight().leased == 0
    assert desk.service.leases.facts(desk.view.state).pace.useful == {NODE.address: 5 / 6}


def test_a_node_that_may_not_work_yet_keeps_nobody_from_it(desk: Desk) -> None:
    """It asks again and again, has nothing in flight, and still does not stand first in the queue."""
    desk.follow(lambda: desk.chain.join(STRANGER, step=1))
    for counter in (0, 1):
        for key in (NODE, CHEAT):
            assert "joined late" in desk.post(STRANGER, "/v1/leases", {}).json()["reason"]
            assert "lease" in desk.post(key, "/v1/leases", {"counter": counter}).json()


# Programs are upgraded one by one: what a newer one says beyond what this service knows does not keep it out.


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


# The interface's document: complete, valid, the same as what the clients use, and shown without a stranger's help.


PAGES = {"/", "/docs"}
UNDOCUMENTED = {endpoints.METRICS, "/v1/events", "/openapi.json"}
"""Not in the document, for their answers are no JSON of ours."""
OBJECT = "/v1/objects/{key}"


@pytest.fixture
def document(desk: Desk) -> dict[str, Any]:
    answer = desk.http.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    return answer.json()  # type: ignore[no-any-return]


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a JSON value."""
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from nodes(item)


def schema_of(part: dict[str, Any]) -> dict[str, Any]:
    return part["content"]["application/json"]["schema"]  # type: ignore[no-any-return]


def test_the_document_is_valid_and_every_name_in_it_is_defined(document: dict[str, Any]) -> None:
    OpenAPI.model_validate(document)
    assert document["openapi"].startswith("3.1")
    models = document["components"]["schemas"]
    named = {node["$ref"] for node in nodes(document) if "$ref" in node}
    assert {ref.removeprefix("#/components/schemas/") for ref in named} == set(models)


def test_every_route_has_a_summary_an_answer_and_its_errors(document: dict[str, Any]) -> None:
    seen = 0
    for path, method, operation in operations(document):
        seen += 1
        assert len(operation["summary"]) > 10, path
        assert operation["tags"], path
        responses = operation["responses"]
        for status in {"429", "500"} | ({"401", "403", "409", "413", "422"} if method == "post" else set()):
            assert schema_of(responses[status]) == {"$ref": "#/components/schemas/ErrorBody"}, (path, status)
            assert len(responses[status]["description"]) > 10
        if path == OBJECT:
            assert "Location" in responses["307"]["headers"]
            assert "200" not in responses
        elif path in PAGES:
            assert set(responses["200"]["content"]) == {"text/html"}
        else:
            assert any("$ref" in node for node in nodes(schema_of(responses["200"]))), path
        assert bool(operation.get("security")) == (method == "post"), path
    assert seen == 35
    assert document["components"]["securitySchemes"]["RequestSignature"]["name"] == "X-Muster-Signature"


def names(schema: dict[str, Any]) -> set[str]:
    """The models that a schema is, or is one of; a reference has no brackets, which tell what a list is of."""
    alternatives = schema.get("anyOf") or schema.get("oneOf") or [schema]
    found = (one["$ref"].rpartition("/")[2] if "$ref" in one else one["title"] for one in alternatives)
    return {re.sub(r"[\[\]]", "_", name) for name in found}


def test_clients_and_server_speak_of_the_same_models(document: dict[str, Any]) -> None:
    used = [value for value in vars(endpoints).values() if isinstance(value, Get | Post)]
    offered = {(path, method) for path, method, _ in operations(document) if path not in {*PAGES, OBJECT}}
    assert {(one.path, "get" if isinstance(one, Get) else "post") for one in used} == offered
    for one in used:
        operation = document["paths"][one.path]["get" if isinstance(one, Get) else "post"]
        assert names(schema_of(operation["responses"]["200"])) == names(one.answer.json_schema(mode="serialization"))
        if isinstance(one, Post):
            assert names(schema_of(operation["requestBody"])) == {one.body.__name__}


def test_the_interface_page_loads_and_runs_nothing(document: dict[str, Any], desk: Desk) -> None:
    page = desk.http.get("/docs")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert not re.search(r"<(script|link|img|style|iframe)|\bon\w+=|https?://", page.text)
    for path, method, operation in operations(document):
        assert f"{method.upper()} {path}" in page.text
        assert operation["summary"] in page.text
    for model in document["components"]["schemas"]:
        assert f'id="{model}"' in page.text
    assert "<h3" in page.text


def test_a_wrong_method_is_told_every_right_one(document: dict[str, Any], desk: Desk) -> None:
    for path, methods in document["paths"].items():
        answer = desk.http.request("OPTIONS", re.sub(r"\{\w+\}", "1", path))
        assert answer.status_code == 405, path
        assert answer.headers["allow"] == ", ".join(sorted(method.upper() for method in methods)), path


def test_the_documented_form_of_a_key_is_what_the_service_takes(document: dict[str, Any], desk: Desk) -> None:
    (parameter,) = document["paths"][OBJECT]["get"]["parameters"]
    form, digest = re.compile(parameter["schema"]["pattern"]), "ab" * 32
    for key in (f"shards/{digest}", f"rollouts/{digest}.parquet", f"manifests/{digest}", f"odd/{digest}", "0"):
        taken = desk.http.get(f"/v1/objects/{key}", follow_redirects=False).status_code == 307
        assert bool(form.search(key)) == taken, key
