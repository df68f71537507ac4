"""The interface's documents: what a stranger may put into them, and what reading nonsense may cost."""

import json
import tracemalloc
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from protocol.api import endpoints, run, work
from protocol.api.base import Amount, Name, ResponseBody, parse_response
from protocol.api.endpoints import LEASES, RECORD, Get, Post
from protocol.errors import IntegrityError

MODELS = [
    model
    for module in (run, work)
    for model in vars(module).values()
    if isinstance(model, type) and issubclass(model, ResponseBody) and model is not ResponseBody
]
CROWDED = [
    pytest.param(model, name, schema["type"], id=f"{model.__name__}.{name}")
    for model in MODELS
    for name, schema in model.model_json_schema()["properties"].items()
    if schema.get("type") in ("array", "object")
]


@pytest.mark.parametrize(("model", "name", "kind"), CROWDED)
def test_a_million_wrong_entries_are_one_error(model: type[ResponseBody], name: str, kind: str) -> None:
    wrong: Any = [[[]]] * 1000 if kind == "array" else {str(n): [[]] for n in range(100_001)}
    with pytest.raises(ValidationError) as caught:
        model.model_validate_json(json.dumps({name: wrong}))
    found = [error for error in caught.value.errors(include_input=False) if error["loc"][0] == name]
    assert len(found) == 1


def test_a_long_answer_without_any_field_costs_little_memory() -> None:
    """An error of pydantic's holds what it was about: each missing field its own copy of everything, if read badly."""
    data = b'{"submissions":[' + b"0," * 200_000 + b"0]}"
    tracemalloc.start()
    try:
        with pytest.raises(IntegrityError, match="Field required"):
            parse_response(RECORD.answer, data, "http://service")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * len(data)


def test_every_crowded_field_is_tried() -> None:
    assert len(CROWDED) > 20
    assert {"RunRecord.submissions", "RunStatus.nodes", "UploadNeeded.headers"} <= {str(one.id) for one in CROWDED}


def test_only_public_documents_may_be_long() -> None:
    for one in vars(endpoints).values():
        if isinstance(one, Get | Post):
            assert one.limit <= (32 << 20 if isinstance(one, Get) else 64 << 10), one.path


def test_base_units_are_exact_decimal_strings_in_one_spelling() -> None:
    amount: TypeAdapter[int] = TypeAdapter(Amount, config={"strict": True})
    for base_units in (0, -1, 123456789012345678901):
        assert amount.validate_json(f'"{base_units}"') == base_units
        assert amount.dump_json(base_units).decode() == f'"{base_units}"'
    for spelt in ("1.0", "01", "+1", " 1", "1\\n", "0x1", "-0x1", "1e3", "", "١", "9" * 5000):
        with pytest.raises(ValidationError):
            amount.validate_json(f'"{spelt}"')
    for other in ("1.5", "null"):
        with pytest.raises(ValidationError):
            amount.validate_json(other)


def test_names_can_be_stored_anywhere() -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Name).validate_python("a\0b")


@pytest.mark.parametrize("answer", [b"{}", b"[]", b'{"lease": {"\\u001b[2J": 1}}', b'{"wait": "\\u001b]0;x\\u0007"}'])
def test_what_is_wrong_is_said_in_one_printable_line(answer: bytes) -> None:
    with pytest.raises(IntegrityError) as caught:
        parse_response(LEASES.answer, answer, "http://service/v1/leases")
    said = str(caught.value)
    assert said.startswith("http://service/v1/leases sends an invalid answer: `")
    assert said.isprintable()
    assert len(said) < 500


def test_a_newer_service_may_say_more() -> None:
    answer = b'{"wait": 1, "reason": "full", "queue": {"position": 3}}'
    assert parse_response(LEASES.answer, answer, "it") == work.NoLease(wait=1.0, reason="full")
    assert RECORD.answer is not endpoints.DASHBOARD.answer
