"""Request bodies before any model sees them: bounded in bytes and time, and strict JSON without the leniencies of the
standard reader."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from orchestrator.http_errors import HttpError
from protocol.api.base import MAX_FIELDS
from protocol.encoding import parse_json

BODY_SECONDS = 15.0
SHORT = 4096
"""Bytes that are parsed sooner than a thread is woken."""


class StrictRoute(APIRoute):
    """A route whose body is bounded by its model's MAX_BYTES and read by `strict_object`, whatever its content type.

    FastAPI reads bodies without a bound, and its own reader lets NaN, duplicate fields and deep nesting through.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle
        limit: int = self.body_field.field_info.annotation.MAX_BYTES  # type: ignore[union-attr]

        async def strict(request: Request) -> Response:
            raw = await read_body(request, limit)
            short = len(raw) <= SHORT
            document = strict_object(raw) if short else await run_in_threadpool(strict_object, raw)
            return await handle(_ReadRequest(request, raw, document))

        return strict


class _ReadRequest(Request):
    """A request whose body was read and parsed."""

    def __init__(self, request: Request, raw: bytes, document: dict[str, Any]) -> None:
        headers = [pair for pair in request.scope["headers"] if pair[0] != b"content-type"]
        super().__init__({**request.scope, "headers": [*headers, (b"content-type", b"application/json")]})
        self._raw, self._document = raw, document

    async def body(self) -> bytes:
        return self._raw

    async def json(self) -> Any:
        return self._document


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
