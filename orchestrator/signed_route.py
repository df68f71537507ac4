"""The signed routes: FastAPI documents them, and a request goes to them without its machinery.

Most requests are heartbeats. What FastAPI and Starlette do for each (matching every route, stacks of contexts, threads
for dependencies, a second reading of the body) costs several times what checking a signature does.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from orchestrator.bodies import SHORT, read_body, strict_object
from orchestrator.guard import SENDER
from orchestrator.http_errors import HttpError, answer_to
from protocol.api.base import RequestBody
from protocol.errors import MusterError, first_problem

_JSON = (b"content-type", b"application/json")


class SignedRoute(APIRoute):
    """A route whose function takes `body` (a RequestBody), `sender` (a `Sender`) and `service`, and nothing else.

    In this order: the body, bounded by its model's MAX_BYTES; who sent it; strict JSON, whatever its content type; the
    model; the function, in a thread unless it is a coroutine.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        names = inspect.signature(endpoint).parameters
        assert set(names) == {"body", "sender", "service"}, f"{endpoint.__name__} takes {', '.join(names)}"
        assert self.methods == {"POST"}, f"{endpoint.__name__} takes {self.methods}"
        self._body: type[RequestBody] = names["body"].annotation
        self._answer: TypeAdapter[Any] = TypeAdapter(inspect.signature(endpoint).return_annotation)
        self._awaits = inspect.iscoroutinefunction(endpoint)
        self.app = self.respond

    async def respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application. Raises MusterError, before it answers, for what is refused."""
        raw = await read_body(scope, receive, self._body.MAX_BYTES)
        sender = await SENDER.proven(scope, raw)
        # A short one is parsed sooner than a thread is woken.
        body = self._read(raw) if len(raw) <= SHORT else await run_in_threadpool(self._read, raw)
        known = {"body": body, "sender": sender, "service": scope["app"].state.service}
        if self._awaits:
            found = await self.endpoint(**known)
        else:
            found = await run_in_threadpool(self.endpoint, **known)
        content = self._answer.dump_json(found)
        headers = [(b"content-length", b"%d" % len(content)), _JSON]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    def _read(self, raw: bytes) -> RequestBody:
        """Raises HttpError 422 for a body that is not of the documented shape."""
        try:
            return self._body.model_validate(strict_object(raw))
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False, include_context=False)
            where, problem = first_problem(found, "the body")
            raise HttpError(422, f"field `{where}`: {problem}", "see docs/orchestrator.md") from None


class ShortWay:
    """Sends a POST to the path of a signed route straight to it; everything else goes on through the application."""

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._signed = {route.path: route for route in routes if isinstance(route, SignedRoute)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._way(scope)
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        try:
            await route.respond(scope, receive, send)
        except MusterError as error:
            await answer_to(error)(scope, receive, send)

    def _way(self, scope: Scope) -> SignedRoute | None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope.get("root_path"):
            return None
        return self._signed.get(scope["path"])
