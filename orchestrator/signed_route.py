"""The signed routes: FastAPI documents them, and a request goes through them without its machinery.

Most requests are heartbeats. What FastAPI does for each (threads for dependencies, stacks of contexts, a second reading
of the body) costs several times what checking a signature does.
"""

import inspect
from collections.abc import Callable
from typing import Any

from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from orchestrator.bodies import read_body, strict_object
from orchestrator.guard import SENDER
from orchestrator.http_errors import HttpError
from protocol.api.base import RequestBody
from protocol.errors import first_problem

SHORT = 4096
"""Bytes that are parsed sooner than a thread is woken."""


class SignedRoute(APIRoute):
    """A route whose function takes `body` (a RequestBody), `sender` (a `Sender`) and `service`, and nothing else.

    In this order: the body, bounded by its model's MAX_BYTES; who sent it; strict JSON, whatever its content type; the
    model; the function, in a thread unless it is a coroutine.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        names = inspect.signature(endpoint).parameters
        assert set(names) == {"body", "sender", "service"}, f"{endpoint.__name__} takes {', '.join(names)}"
        self._body: type[RequestBody] = names["body"].annotation
        self._answer: TypeAdapter[Any] = TypeAdapter(inspect.signature(endpoint).return_annotation)
        self._awaits = inspect.iscoroutinefunction(endpoint)
        self.app = self._respond

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        raw = await read_body(request, self._body.MAX_BYTES)
        sender = await SENDER.proven(request, raw)
        body = self._read(raw) if len(raw) <= SHORT else await run_in_threadpool(self._read, raw)
        known = {"body": body, "sender": sender, "service": scope["app"].state.service}
        if self._awaits:
            found = await self.endpoint(**known)
        else:
            found = await run_in_threadpool(self.endpoint, **known)
        response = Response(self._answer.dump_json(found), media_type="application/json")
        await response(scope, receive, send)

    def _read(self, raw: bytes) -> RequestBody:
        """Raises HttpError 422 for a body that is not of the documented shape."""
        try:
            return self._body.model_validate(strict_object(raw))
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False, include_context=False)
            where, problem = first_problem(found, "the body")
            raise HttpError(422, f"field `{where}`: {problem}", "see docs/orchestrator.md") from None
