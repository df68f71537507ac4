"""The output that an answer predicts, and whether it is the right one."""

from typing import Any

from protocol.encoding import parse_json

_TRIES = 64
NOTHING = object()


def predicted_output(text: str) -> Any:
    """`output` of the last JSON object in the text; NOTHING without one. Looks at so many closing and opening braces at
    most."""
    end = text.rfind("}")
    start = end
    for _ in range(_TRIES):
        start = text.rfind("{", 0, max(0, start))
        if end < 0 or start < 0:
            return NOTHING
        try:
            found = parse_json(text[start : end + 1])
        except ValueError:
            continue
        if isinstance(found, dict):
            return found.get("output", NOTHING)
    return NOTHING


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, true and 1 told apart."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
