"""Leases, heartbeats and the trainer's reports, asked for over HTTP."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.openapi.models import OpenAPI

from protocol import VERSION
from protocol.api import endpoints
from protocol.api.endpoints import Get, Post
from protocol.api.work import Announcement
from protocol.verdict import Code
from tests.orchestrator.chain import CHEAT, NODE, OWNER, STRANGER
from tests.orchestrator.conftest import Desk, announced, is_error


def test_heartbeats_renew_the_lease_and_show_on_the_dashboard(desk: Desk) -> None:
    lease = desk.lease(NODE)["lease"]
    desk.now += 20
    answer = desk.beat(NODE, name="w1", leases=[lease], waits=[{"what": "weights", "since": desk.now}])
    sent = {"state": "healthy", "next": 60.0, "step": 0, "lease_expires": desk.now + 180, "version": VERSION}
    assert answer == sent | {"notice": ""}
    view = desk.get("dashboard")
    assert {"who": "w1", "what": "weights", "since": desk.now} in view["waits"]
    assert view["in_flight"]["leased"] == 1
    assert desk.get("status")["nodes"] == {NODE.address: "healthy", CHEAT.address: "waiting"}
    assert desk.beat(CHEAT, leases=[lease])["lease_expires"] is None, "it is not its own"
    desk.now += 181
    assert desk.get("dashboard")["in_flight"]["leased"] == 0


def test_leases_follow_the_chain(desk: Desk) -> None:
    for counter in (0, 1):
        for key in (NODE, CHEAT):
            assert "lease" in desk.lease(key, counter=counter)
    first = desk.chain.submit(CHEAT, 0)
    desk.follow()
    assert "as many as training can use (4)" in desk.lease(CHEAT, counter=2)["reason"]
    desk.follow(lambda: desk.chain.settle(CHEAT, first, Code.REJECT_WEIGHTS))
    assert is_error(desk.post(CHEAT, "/v1/leases", {}), 403, "stake is frozen")
    desk.follow(lambda: desk.chain.finalize(CHEAT, first, Code.REJECT_WEIGHTS, 5000, 3003))
    assert is_error(desk.post(CHEAT, "/v1/leases", {}), 403, "ejected: reject: weights")
    view = desk.get("dashboard")
    assert view["slashes"][0]["reason"] == "reject: weights"
    assert next(n for n in view["nodes"] if n["address"] == CHEAT.address)["state"] == "ejected"


def test_budget_pause_and_close(desk: Desk) -> None:
    for status, words in ((2, "paused"), (5, "too few seats")):
        desk.chain.emit("Pools", "StatusSet", pool=1, status=status)
        desk.follow()
        assert words in desk.lease(NODE)["reason"]
    desk.follow(lambda: desk.chain.emit("Pools", "StatusSet", pool=1, status=3))
    assert is_error(desk.post(NODE, "/v1/leases", {}), 403, "closing")


def test_the_trainers_reports(desk: Desk) -> None:
    report: dict[str, Any] = {"step": 1, "consumed": [0, 1], "metrics": {"reward": 0.5}, "timings": {"train": 1.5}}
    assert is_error(desk.post(NODE, "/v1/steps", report), 403, "not the owner")
    measured = desk.evaluation(0, 0.25)
    desk.report(0, evaluation=measured)
    for _ in range(2):
        desk.report(**report)
    assert is_error(desk.post(OWNER, "/v1/steps", {**report, "consumed": [3, 3]}), 422, "consumed")
    assert desk.get("dashboard")["rewards"] == [
        {"step": 0, "reward": None, "heldout": 0.25, "sets": measured["evaluation"]["results"]},
        {"step": 1, "reward": 0.5, "heldout": None, "sets": []},
    ]
    assert desk.get("dashboard")["phase"] != "finished"
    assert "are done" not in desk.lease(NODE).get("reason", "")
    desk.now += 1
    assert desk.post(OWNER, "/v1/steps", {**report, "final": True}).status_code == 200
    assert desk.get("dashboard")["phase"] == "finished"
    assert "are done" in desk.lease(NODE)["reason"]


def test_an_evaluation_is_the_owners_word_on_that_step_of_that_pool(desk: Desk) -> None:
    kept, changed = desk.evaluation(0, 0.25), desk.evaluation(0, 0.25)
    changed["evaluation"]["results"][0]["average"] = 0.75
    for step, evaluation, words in (
        (0, desk.evaluation(0, 0.25, NODE), f"not signed by {OWNER.address}"),
        (1, kept, "for another step"),
        (0, desk.evaluation(0, 0.25, config_hash="cd" * 32), "another step or pool configuration"),
        (0, changed, f"the evaluation is not signed by {OWNER.address}"),
        (0, kept | {"signature": "0x" + "00" * 65}, "signature"),
    ):
        answer = desk.post(OWNER, "/v1/steps", {"step": step, "evaluation": evaluation})
        assert is_error(answer, 400, words)
    assert desk.get("dashboard")["rewards"] == []
    desk.report(0, evaluation=kept)
    shown = desk.get("record")["reports"][0]["evaluation"]
    assert shown == kept, "anybody can check the signature of what is shown"


def test_what_was_trained_on_is_known_by_its_file(desk: Desk) -> None:
    chain = desk.chain
    first = chain.submit(NODE, 0)
    chain.settle(NODE, first, Code.ACCEPT)
    desk.follow()
    desk.report(1, [first])

    def trained() -> dict[int, tuple[int | None, bool]]:
        files = desk.get("record")["submissions"]
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
        desk.report(2, [other])
        desk.report(1, [first])
    assert trained() == {0: (2, False), 1: (1, False)}
    desk.report(3, [again])
    assert trained()[1] == (3, True)


def test_leases_and_how_files_fared_survive_a_restart(desk: Desk) -> None:
    lease = desk.lease(NODE, counter=0)
    desk.start()
    assert desk.lease(NODE, counter=0)["lease"] == lease["lease"]
    assert desk.service.leases.in_flight().leased == 1
    granted = desk.now
    desk.now += 2
    first = desk.chain.submit(NODE, 0)
    desk.follow(lambda: desk.chain.settle(NODE, first, Code.ACCEPT))
    desk.start()
    assert "lease" in desk.lease(NODE, counter=1)
    pace, made = desk.service.leases.facts(desk.view.state).pace, desk.view.state.submissions[1, first].time - granted
    assert (pace.making, pace.typical, pace.useful) == ({NODE.address: made}, made, {NODE.address: 1.0})
    desk.follow(lambda: desk.chain.settle(NODE, desk.chain.submit(NODE, 1), Code.MALFORMED))
    assert desk.service.leases.in_flight().leased == 0
    assert desk.service.leases.facts(desk.view.state).pace.useful == {NODE.address: 5 / 6}


def test_a_node_that_may_not_work_yet_keeps_nobody_from_it(desk: Desk) -> None:
    """It asks again and again, has nothing in flight, and still does not stand first in the queue."""
    desk.follow(lambda: desk.chain.join(STRANGER, step=1))
    for counter in (0, 1):
        for key in (NODE, CHEAT):
            assert "joined late" in desk.lease(STRANGER)["reason"]
            assert "lease" in desk.lease(key, counter=counter)


# Programs are upgraded one by one: what a newer one says beyond what this service knows does not keep it out.


NEWER: dict[str, Any] = {"colour": {"hue": [1, 2, 3]}}


def test_a_newer_node_is_heard_and_its_signature_covers_what_is_not_known(desk: Desk) -> None:
    desk.beat(NODE, weights=4, waits=[{"what": "a step", "since": 1.0, **NEWER}], **NEWER)
    assert desk.get(f"nodes/{NODE.address}")["weights"] == 4
    assert "lease" in desk.lease(NODE, counter=0, **NEWER)
    signed = json.dumps({"counter": 0, **NEWER}).encode()
    headers = desk.sign(NODE, "/v1/leases", signed)
    answer = desk.http.post("/v1/leases", content=signed.replace(b"hue", b"hue2"), headers=headers)
    assert is_error(answer, 401, "is not")


def test_a_newer_relay_is_listed_without_what_is_not_known(desk: Desk) -> None:
    with announced(desk, NODE, step=4, **NEWER) as known:
        (listed,) = desk.get("sources")["sources"]
    assert Announcement.model_validate(listed) == known
    assert not NEWER.keys() & listed.keys()


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


def test_the_document_is_valid_defines_every_name_and_describes_every_route(document: dict[str, Any]) -> None:
    OpenAPI.model_validate(document)
    assert document["openapi"].startswith("3.1")
    models = document["components"]["schemas"]
    named = {node["$ref"] for node in nodes(document) if "$ref" in node}
    assert {ref.removeprefix("#/components/schemas/") for ref in named} == set(models)
    # Every route has a summary, an answer and its errors.
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
    assert seen == 39
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
