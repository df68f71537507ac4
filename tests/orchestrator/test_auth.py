"""The routes with unsigned, replayed, oversized and hostile requests."""

import copy
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from protocol.api import endpoints
from protocol.api.base import ErrorBody
from protocol.api.endpoints import Post
from protocol.api.work import StepRequest
from protocol.http.limits import Buckets
from tests.orchestrator.chain import CHEAT, NODE, OWNER, STRANGER, VOTER
from tests.orchestrator.conftest import Desk, is_error


def test_unsigned_foreign_and_replayed_requests(desk: Desk) -> None:
    def send(headers: dict[str, str], path: str = "/v1/leases", body: bytes = b"{}") -> Any:
        return desk.http.post(path, content=body, headers=headers)

    assert is_error(send({}), 401, "missing")
    assert is_error(desk.post(STRANGER, "/v1/leases", {}), 403, "may not")
    headers = desk.sign(NODE, "/v1/leases", b"{}")
    assert send(headers).status_code == 200
    assert is_error(send(headers), 409, "before")
    desk.start()
    assert is_error(send(headers), 409, "before")
    other = desk.sign(NODE, "/v1/leases", b"{}")
    for path, body in (("leases", b'{"counter":1}'), ("leases?x=1", b"{}"), ("heartbeats", b'{"role":"worker"}')):
        assert is_error(send(other, f"/v1/{path}", body), 401, "signature")
    desk.now += 61
    assert is_error(send(other), 401, "time")


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


def test_a_crowd_of_unknown_fields_is_not_looked_at_and_no_nul_is_taken(desk: Desk) -> None:
    """A member of the pool may send a megabyte; the models would describe every one of its hundred thousand fields."""
    crowd = b"{" + b",".join(b'"%x":0' % n for n in range(100_000)) + b"}"
    assert len(crowd) < StepRequest.MAX_BYTES
    assert is_error(desk.post(NODE, "/v1/steps", crowd), 422, "more than 64 fields")
    assert is_error(desk.post(OWNER, "/v1/steps", b'{"step":0,"metrics":' + crowd + b"}"), 422, "more than 64 fields")
    for field in ("name", "version", "engine", "phase"):  # nor text that a database may not take
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


def test_rate_limit() -> None:
    buckets = Buckets(rate=1, burst=2, most=2)
    assert [buckets.take("a", 0.0) for _ in range(3)] == [True, True, False]
    assert buckets.take("a", 1.0)
    assert not buckets.take("a", 0.0)
    assert not buckets.take("a", 1.0), "a second does not count twice"
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


# Whatever is sent, the service answers as its OpenAPI document says, and never with 5xx.
#
# Bodies are made from the document's own schemas, then spoilt: odd values in every place, unknown and duplicate fields,
# cut off, not JSON at all.


Json = Any
POSTS = [one for one in vars(endpoints).values() if isinstance(one, Post)]
KEYS = st.sampled_from([NODE, CHEAT, OWNER, VOTER, STRANGER])
ODD = [
    b"NaN", b"-Infinity", b"1e400", b"-1e400", b"9" * 400, b"9" * 5000, b"-1", b"0.5", b"1e2", b"true", b"null", b'""',
    b'"\\ud800"', b'"\\u0000"', b'"\\u202e\xf0\x9f\x92\xa9"', b"[]", b"{}", b"[" * 300, b"[" * 9 + b"]" * 9,
    b'"' + b"x" * 5000 + b'"', b"\xff", b"0x10", b"1_000", b"'a'", b'{"a":1,"a":1}',
]  # fmt: skip
HOLE = "\ue000hole"
BEYOND_SCHEMAS = ("keccak256", "wrong checksum", "field `url`")
"""Of what is refused although it is as documented: a hash that does not fit, an address's checksum, what URLs are."""
relaxed = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def values(schema: Json, models: Json) -> st.SearchStrategy[Json]:
    """Values that a JSON schema of our document allows."""
    if "$ref" in schema:
        return values(models[schema["$ref"].rpartition("/")[2]], models)
    for alternatives in (schema.get("anyOf"), schema.get("oneOf")):
        if alternatives:
            return st.one_of([values(one, models) for one in alternatives])
    if "const" in schema or "enum" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    kind = schema.get("type", "string")
    if kind == "object" and "properties" in schema:
        fields = {name: values(one, models) for name, one in schema["properties"].items()}
        required = {name: fields.pop(name) for name in schema.get("required", ())}
        return st.fixed_dictionaries(required, optional=fields)
    if kind == "object":
        ((pattern, item),) = schema.get("patternProperties", {"": schema.get("additionalProperties")}).items()
        names = values({**schema.get("propertyNames", {}), **({"pattern": pattern} if pattern else {})}, models)
        return st.dictionaries(names, values(item, models), max_size=4)
    if kind == "array":
        return st.lists(values(schema["items"], models), max_size=4, unique=schema["items"].get("type") == "integer")
    if kind == "string" and "pattern" in schema:
        most = schema.get("maxLength", 1000)
        return st.from_regex(schema["pattern"].replace("$", r"\Z")).filter(lambda text: len(text) <= most)
    if kind == "number":
        low, high = (schema.get(key, schema.get(f"exclusive{key.title()}")) for key in ("minimum", "maximum"))
        ends: Any = {"exclude_min": "exclusiveMinimum" in schema, "exclude_max": "exclusiveMaximum" in schema}
        return st.floats(low, high, allow_nan=False, allow_infinity=False, **ends)
    if kind == "integer":
        most = schema.get("maximum", schema.get("exclusiveMaximum", 1 << 40) - 1)
        return st.integers(schema.get("minimum", 0), most)
    return {
        "string": st.text(max_size=min(20, schema.get("maxLength", 20))),
        "boolean": st.booleans(),
        "null": st.none(),
    }[kind]


def places(value: Json) -> Iterator[tuple[Any, Any]]:
    """Every container of a JSON value with each of its keys or indices."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


@st.composite
def spoilt(draw: st.DrawFn, body: st.SearchStrategy[Json]) -> bytes:
    """A body with one thing wrong with it (most of the time)."""
    value = copy.deepcopy(draw(body))
    odd = draw(st.sampled_from(ODD))
    how = draw(st.sampled_from(["value", "extra", "twice", "cut", "flip", "wrap", "append", "raw"]))
    spots = list(places(value))
    if how == "value" and spots:
        container, key = draw(st.sampled_from(spots))
        container[key] = HOLE
    if how == "extra":
        value[draw(st.text(max_size=8))] = HOLE
    data = json.dumps(value).encode().replace(json.dumps(HOLE).encode(), odd)
    if how == "twice":
        data = data[:-1] + (b"," if value else b"") + data[1:]
    if how == "cut":
        data = data[: draw(st.integers(0, len(data)))]
    if how == "flip":
        at = draw(st.integers(0, len(data) - 1))
        data = data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]
    return {"wrap": b"[" + data + b"]", "append": data + odd, "raw": odd}.get(how, data)


@pytest.mark.parametrize("endpoint", POSTS, ids=lambda one: one.path)
@given(data=st.data())
@settings(relaxed, max_examples=120)
def test_bodies_as_documented_are_understood_and_spoilt_ones_refused_as_documented(
    desk: Desk, endpoint: Post[Any, Any], data: st.DataObject
) -> None:
    document = desk.app.openapi()
    body = values({"$ref": endpoint.body.__name__}, document["components"]["schemas"])
    is_spoilt = data.draw(st.booleans())
    sent = data.draw(spoilt(body)) if is_spoilt else json.dumps(data.draw(body)).encode()
    answer = desk.post(data.draw(KEYS), endpoint.path, sent)
    assert str(answer.status_code) in document["paths"][endpoint.path]["post"]["responses"], answer.text
    assert answer.status_code < 500, answer.text
    kind = endpoint.answer if answer.status_code == 200 else TypeAdapter(ErrorBody)
    kind.validate_json(answer.content)
    refused = answer.status_code == 422 and not any(one in answer.text for one in BEYOND_SCHEMAS)
    assert is_spoilt or not refused, (sent, answer.text)


HEADERS = [
    "Content-Type", "Content-Encoding", "X-Muster-Extra", "X-Muster-Time", "Accept", "Expect", "X-Forwarded-For",
    "Cookie",
]  # fmt: skip
METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "post", "BREW"]
PATHS = ["/", "/docs", "/openapi.json", "/health", "/v1/status", "/v1/leases", "/v1/objects/", "/v1/", "//"]


@given(
    st.sampled_from(METHODS),
    st.sampled_from(PATHS),
    st.binary(max_size=12),
    st.dictionaries(st.sampled_from(HEADERS), st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40)),
    st.binary(max_size=40),
)
@relaxed
def test_odd_requests_never_fail_the_service(
    desk: Desk, method: str, path: str, tail: bytes, headers: dict[str, str], query: bytes
) -> None:
    url = f"{path}{quote(tail, safe='')}?{quote(query, safe='')}"
    answer = desk.http.request(method, url, headers=headers, content=b"{}" if method == "POST" else None)
    assert answer.status_code < 500, (method, url, headers, answer.text)
    if answer.status_code >= 400 and method != "HEAD":
        TypeAdapter(ErrorBody).validate_json(answer.content)
