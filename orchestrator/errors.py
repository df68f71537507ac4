"""Error responses: one exception, one JSON document for every 4xx and 5xx, and the OpenAPI text for them."""

import logging
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import SQLAlchemyError
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
    503: "Database, storage or chain does not answer; `Retry-After` says when to try again.",
}
_UNREAD = (408, 413)
"""Errors answered before the body was read to its end: the connection closes, since the rest may never end."""
_HINTS = {404: "see /docs for this service's interface", 405: "use the documented method"}


class HttpError(MusterError):
    """A 4xx or 5xx answer: `status`, what was wrong, how to mend it, and after how many seconds to try again."""

    def __init__(self, status: int, what: str, hint: str = "", retry_after: int | None = None) -> None:
        super().__init__(what, hint)
        self.status = status
        self.retry_after = retry_after


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return FastAPI's `responses` for the errors that a route may answer; every route may answer 429 and 500."""
    return {status: {"model": ErrorBody, "description": _MEANINGS[status]} for status in sorted({*statuses, 429, 500})}


def error_response(status: int, what: str, hint: str, retry_after: int | None = None) -> Response:
    """Return an ErrorBody; characters that UTF-8 cannot encode are replaced."""
    content = ErrorBody(error=what.encode("utf-8", "replace").decode(), hint=hint).model_dump_json()
    headers = {"Retry-After": str(retry_after)} if retry_after is not None else {}
    if status in _UNREAD:
        headers["Connection"] = "close"
    return Response(content, status, headers, "application/json")


def add_error_handlers(app: FastAPI) -> None:
    """Turn every foreseen exception of a route into an ErrorBody; `auth.RequestLimits` answers the others with 500."""

    @app.exception_handler(MusterError)
    async def muster_error(_request: Request, error: MusterError) -> Response:
        if isinstance(error, HttpError):
            return error_response(error.status, error.what, error.hint, error.retry_after)
        if isinstance(error, RequestRefused):
            return error_response(error.status, error.what, error.hint)
        if isinstance(error, UnreachableError):
            log.warning("%s", error)
            return error_response(503, "the storage or chain behind this service does not answer", "try again", 2)
        return error_response(400, error.what, error.hint)

    @app.exception_handler(SQLAlchemyError)
    async def database_error(request: Request, error: SQLAlchemyError) -> Response:
        log.warning("%s: the database fails: %s", request.url.path, error)
        return error_response(503, "the database behind this service does not answer", "try again", 2)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        field, problem = first_problem([{**first, "loc": first["loc"][1:]}], "the body")
        return error_response(422, f"field `{field}`: {problem}", "see /docs for the documented shape")

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        answer = error_response(error.status_code, str(error.detail).lower(), _HINTS.get(error.status_code, ""))
        if error.status_code == 405:
            answer.headers["Allow"] = ", ".join(_methods(request))
        return answer


def _methods(request: Request) -> list[str]:
    """Return the methods of the request's path; Starlette names those of the first matching route only."""
    matching = (route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE)
    return sorted({method for route in matching for method in getattr(route, "methods", None) or ()})
