"""Request bodies before any model sees them: bounded in bytes and time, and strict JSON without the leniencies of the
standard reader."""

import asyncio
import json
from collections import Counter
from typing import Any

from starlette.types import Receive, Scope

from orchestrator.http_errors import HttpError
from protocol.api.base import MAX_FIELDS
from protocol.encoding import parse_json
from protocol.http.asgi import WHOLE_BODY
from protocol.http.limits import caller

BODY_SECONDS = 15.0
SHORT = 4096
"""Bytes of a body that any connection may send."""
_PLAIN = 1 << 53
"""Larger integers, and all fractions, are left to the careful reader."""


class BodyRoom:
    """Memory for what is longer than SHORT of bodies on their way: `most` bytes of all callers, `of_one` of each. Who
    sends them has proven nothing yet, and may have a thousand connections. For the event loop's thread."""

    def __init__(self, most: int = 256 << 20, of_one: int = 16 << 20) -> None:
        self._most, self._of_one = most, of_one
        self._held: Counter[str] = Counter()
        self._all = 0

    def take(self, who: str, size: int) -> bool:
        """So many bytes more; False if there is no room for them."""
        if self._held[who] + size > self._of_one or self._all + size > self._most:
            return False
        self._held[who] += size
        self._all += size
        return True

    def give_back(self, who: str, size: int) -> None:
        self._all -= size
        self._held[who] -= size
        if not self._held[who]:
            del self._held[who]


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The body of a request, at most `limit` bytes, within 15 s. Raises HttpError 413, 408, 400, or 429 where the
    application's BodyRoom is full."""
    declared = _declared(scope, limit)
    whole = scope.get("extensions", {}).get(WHOLE_BODY)
    if declared is not None and declared <= SHORT and whole is not None and whole():
        # Most come in one piece with their heads: a time limit would cost more than reading them.
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _ended()
        body: bytes = message.get("body", b"")
        return body
    room: BodyRoom = scope["app"].state.room
    who, parts, size, held, more = caller(scope), [], 0, 0, True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _ended()
                parts.append(message.get("body", b""))
                size, more = size + len(parts[-1]), message.get("more_body", False)
                if size > limit:
                    raise _too_large(limit)
                beyond = size - SHORT - held
                if beyond > 0:
                    if not room.take(who, beyond):
                        raise HttpError(429, "too many long bodies are on their way", "send one after another", 2)
                    held += beyond
    except TimeoutError:
        raise HttpError(408, f"the body did not arrive within {BODY_SECONDS:.0f} s", "try again") from None
    finally:
        if held:
            room.give_back(who, held)
    return b"".join(parts)


def _declared(scope: Scope, limit: int) -> int | None:
    """The body's length, where the head says it. Raises HttpError 413 for more than `limit` bytes."""
    length = None
    for name, value in scope["headers"]:
        if name == b"content-length":
            if not value.isdigit() or len(value) > 18 or int(value) > limit:
                raise _too_large(limit)
            length = int(value)
    return length


def _ended() -> HttpError:
    return HttpError(400, "the connection ended before the body", "try again")


def _too_large(limit: int) -> HttpError:
    return HttpError(413, f"the body is larger than {limit} bytes", "send less")


def strict_object(data: bytes) -> dict[str, Any]:
    """The JSON object in `data`. Raises HttpError 422 for duplicate fields, NaN, lone surrogates, hundreds of
    levels and whatever is not an object."""
    try:
        text = data.decode("utf-8")
        # This parser bounds its depth by itself; the standard one relies on the interpreter's recursion limit.
        value = parse_json(data)
        if not _is_plain(data, value):
            value = json.loads(text, object_pairs_hook=_unique)
    except ValueError as error:
        raise HttpError(422, f"the body is not strict JSON: {str(error)[:200]}", "send one JSON object") from None
    if not isinstance(value, dict):
        raise HttpError(422, "the body is not a JSON object", "send one JSON object")
    return value


def _is_plain(data: bytes, value: Any) -> bool:
    """Whether `data`, which is JSON of `value`, is an object of few fields, none of which appears twice, without lists,
    objects and numbers that readers may differ about: then another reading has nothing to find."""
    if not isinstance(value, dict) or len(value) > MAX_FIELDS:
        return False
    strings = len(value)
    for one in value.values():
        if isinstance(one, str):
            strings += 1
        elif one is not None and not isinstance(one, bool) and (type(one) is not int or abs(one) > _PLAIN):
            return False
    # A field that appeared twice would have left its quotes behind.
    return data.count(b'"') == 2 * strings


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a field appears twice")
    if len(out) > MAX_FIELDS:
        # The models would name every one that they do not know.
        raise ValueError(f"an object has more than {MAX_FIELDS} fields")
    return out
