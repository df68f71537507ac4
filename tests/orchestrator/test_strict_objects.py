"""Bodies are read as the careful reader alone reads them, whichever reader they come to."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.bodies import _is_plain, _unique, strict_object
from orchestrator.http_errors import HttpError
from protocol.encoding import parse_json

TEXT = st.text(st.sampled_from('ab"\\:,{}é\u2028\x7f 0'), max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)


def written(pairs: list[tuple[str, Any]], ascii_only: bool, space: str) -> bytes:
    """An object with its fields as given, repeated ones included."""
    fields = [f"{json.dumps(name, ensure_ascii=ascii_only)}:{space}{json.dumps(one)}" for name, one in pairs]
    return ("{" + f",{space}".join(fields) + "}").encode()


def carefully(data: bytes) -> dict[str, Any] | None:
    """What the careful reader makes of it; None for what is refused."""
    try:
        parse_json(data)
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def strictly(data: bytes) -> dict[str, Any] | None:
    try:
        return strict_object(data)
    except HttpError as error:
        return None if error.status == 422 else {"refused": error}


def same(data: bytes) -> bool:
    """Whether both read it alike; as text, for 1, 1.0 and true are equal."""
    return repr(strictly(data)) == repr(carefully(data))


@settings(max_examples=600)
@given(st.lists(st.tuples(TEXT, VALUES), max_size=5), st.booleans(), st.sampled_from(["", " ", "\n\t"]))
@example([("a", "x"), ("a", 1)], True, "")
@example([("a", 1), ("b", True), ("a", None)], True, "")
@example([("a", '"'), ("a", "")], False, "")
@example([("a", 1 << 53), ("b", (1 << 53) + 1), ("c", 1e300), ("d", -0.0)], True, "")
def test_objects_are_read_alike(pairs: list[tuple[str, Any]], ascii_only: bool, space: str) -> None:
    assert same(written(pairs, ascii_only, space))


@settings(max_examples=600)
@given(st.binary(max_size=12).map(lambda data: b'{"a":1' + data) | st.text('{}[]":,\\ua1eE+-.0n\x00\x1f', max_size=14))
def test_what_is_hardly_json_is_read_alike(data: bytes | str) -> None:
    assert same(data if isinstance(data, bytes) else data.encode())


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"a":1}',
        b'{"a":"x","a":1}',
        b'{"a":1,"a":"x"}',
        b'{"a":"x","b":1,"a":"x"}',
        b'{"a":"\x01"}',
        b'{"a":NaN}',
        b'{"a":"\\ud800"}',
        b'{"a":"\xed\xa0\x80"}',
        b"\xef\xbb\xbf{}",
        b"{" + b",".join(b'"%d":0' % number for number in range(65)) + b"}",
        b"[1]",
    ],
)
def test_what_readers_differ_about_is_refused(data: bytes) -> None:
    assert strictly(data) is None


def test_a_heartbeat_is_read_once() -> None:
    data = b'{"role": "worker", "name": "node \xc3\xa9", "step": 0, "slot": "ab", "weights": null}'
    assert _is_plain(data, parse_json(data))
    assert strict_object(data) == json.loads(data)
