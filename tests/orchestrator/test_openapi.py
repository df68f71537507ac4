"""The interface's document: complete, valid, the same as what the clients use, and shown without a stranger's help."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.openapi.models import OpenAPI

from protocol.api import endpoints
from protocol.api.endpoints import Get, Post
from tests.orchestrator.conftest import Desk

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
    assert seen == 36
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
