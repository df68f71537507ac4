"""How the service says no: one error type, one document for all of 4xx and 5xx, and what of it a route documents."""

import logging
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from protocol.api.base import ErrorBody
from protocol.errors import MusterError, UnreachableError, first_problem
from protocol.http.signing import RequestRefused

log = logging.getLogger("muster.http")
_MEANINGS = {
    400: "The request cannot be understood.",
    401: "The signature is missing, wrong or too old.",
    403: "The sender may not do this, or not now.",
    404: "There is no such thing.",
    408: "The body did not arrive in time.",
    409: "Sent before, or in conflict with what is stored.",
    413: "The body, or the object to upload, is too large.",
    422: "The body is not one strict JSON object of the documented shape.",
    429: "Too many requests; `Retry-After` says when to try again.",
    500: "The service failed; try again.",
    503: "Storage or chain does not answer; `Retry-After` says when to try again.",
}
_UNREAD = (408, 413)
"""Answers to bodies that were not read to their end: what still comes of them may come for ever."""
_HINTS = {404: "see docs/orchestrator.md", 405: "use the documented method"}


class HttpError(MusterError):
    """An answer of 4xx or 5xx: `status`, what was wrong, how to mend it, and after how many seconds to try again."""

    def __init__(self, status: int, what: str, hint: str = "", retry_after: int | None = None) -> None:
        super().__init__(what, hint)
        self.status = status
        self.retry_after = retry_after


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """FastAPI's `responses` for the errors that a route may answer; 429 and 500 are every route's."""
    return {status: {"model": ErrorBody, "description": _MEANINGS[status]} for status in sorted({*statuses, 429, 500})}


def error_response(status: int, what: str, hint: str, retry_after: int | None = None) -> Response:
    """The answer as an ErrorBody; what cannot be encoded is replaced."""
    content = ErrorBody(error=what.encode("utf-8", "replace").decode(), hint=hint).model_dump_json()
    headers = {"Retry-After": str(retry_after)} if retry_after is not None else {}
    if status in _UNREAD:
        headers["Connection"] = "close"
    return Response(content, status, headers, "application/json")


def answer_to(error: MusterError) -> Response:
    """What somebody is told whose request ended in `error`."""
    if isinstance(error, HttpError):
        return error_response(error.status, error.what, error.hint, error.retry_after)
    if isinstance(error, RequestRefused):
        return error_response(error.status, error.what, error.hint)
    if isinstance(error, UnreachableError):
        log.warning("%s", error)
        return error_response(503, "the storage or chain behind this service does not answer", "try again", 2)
    return error_response(400, error.what, error.hint)


def add_error_handlers(app: FastAPI) -> None:
    """Turn every exception that a route may raise into an ErrorBody; the others are the middleware's to answer."""

    @app.exception_handler(MusterError)
    async def muster(_request: Request, error: MusterError) -> Response:
        return answer_to(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where, problem = first_problem([{**first, "loc": first["loc"][1:]}], "the body")
        return error_response(422, f"field `{where}`: {problem}", "see docs/orchestrator.md")

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        answer = error_response(error.status_code, str(error.detail).lower(), _HINTS.get(error.status_code, ""))
        if error.status_code == 405:
            answer.headers["Allow"] = ", ".join(_methods(request))
        return answer


def _methods(request: Request) -> list[str]:
    """What the request's path takes; the framework names the first route's methods alone."""
    alike = (route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE)
    return sorted({method for route in alike for method in getattr(route, "methods", None) or ()})
