"""Request bodies before any model sees them: bounded in bytes and time, and strict JSON without the leniencies of the
standard reader."""

import asyncio
import json
from typing import Any

from starlette.requests import ClientDisconnect, Request

from orchestrator.http_errors import HttpError
from protocol.api.base import MAX_FIELDS
from protocol.encoding import parse_json

BODY_SECONDS = 15.0


async def read_body(request: Request, limit: int) -> bytes:
    """The body, at most `limit` bytes, within 15 s. Raises HttpError 413, 408 or 400."""
    declared = request.headers.get("content-length", "0")
    if not declared.isdigit() or len(declared) > 18 or int(declared) > limit:
        raise HttpError(413, f"the body is larger than {limit} bytes", "send less")
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                data += chunk
                if len(data) > limit:
                    raise HttpError(413, f"the body is larger than {limit} bytes", "send less")
    except TimeoutError:
        raise HttpError(408, f"the body did not arrive within {BODY_SECONDS:.0f} s", "try again") from None
    except ClientDisconnect:
        raise HttpError(400, "the connection ended before the body") from None
    return bytes(data)


def strict_object(data: bytes) -> dict[str, Any]:
    """The JSON object in `data`. Raises HttpError 422 for duplicate fields, NaN, lone surrogates, hundreds of
    levels and whatever is not an object."""
    try:
        text = data.decode("utf-8")
        # This parser bounds its depth by itself; the standard one relies on the interpreter's recursion limit.
        parse_json(data)
        value = json.loads(text, object_pairs_hook=_unique)
    except ValueError as error:
        raise HttpError(422, f"the body is not strict JSON: {str(error)[:200]}", "send one JSON object") from None
    if not isinstance(value, dict):
        raise HttpError(422, "the body is not a JSON object", "send one JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a field appears twice")
    if len(out) > MAX_FIELDS:
        # The models would name every one that they do not know.
        raise ValueError(f"an object has more than {MAX_FIELDS} fields")
    return out
