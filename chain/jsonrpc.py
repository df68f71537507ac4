"""What JSON-RPC endpoints answer, read with suspicion: results, errors, numbers, and URLs fit for messages.

Nothing here trusts the shape of an answer, which web3's own formatters do: they pass on what is missing, null or of
another type than the specification says.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from protocol.errors import MusterError, UnreachableError

_BUSY_CODES = frozenset({-32005, -32097, 429})
_MAX_MESSAGE = 2000
_MAX_SHOWN = 66
_NUMBER = re.compile(r"0x[0-9a-fA-F]{1,64}")

Request = tuple[str, list[Any]]
"""Method and parameters."""


class RpcError(MusterError):
    """The endpoint answered with a JSON-RPC error; `data` is the revert data, if any."""

    def __init__(self, method: str, code: int, message: str, data: bytes) -> None:
        super().__init__(f"{method}: {message} (code {code})")
        self.method, self.code, self.message, self.data = method, code, message, data

    @property
    def reverted(self) -> bool:
        return bool(self.data) or "revert" in self.message.lower()


@dataclass
class BadAnswer(Exception):
    """An endpoint that did not give a usable answer; another may. `verdict` is raised when all endpoints fail for such
    a reason, which asking again would not change; without one they are asked until patience ends."""

    why: str
    verdict: MusterError | None = None


def results(requests: Sequence[Request], ids: Sequence[int], document: Any) -> list[Any]:
    """The requests' results in order; an item that failed is an RpcError instance, not raised. Raises BadAnswer."""
    answers = document if isinstance(document, list) else [document]
    by_id: dict[int, dict[str, Any]] = {
        name: answer for answer in answers if isinstance(answer, dict) and isinstance(name := answer.get("id"), int)
    }
    missing = [method for number, (method, _) in zip(ids, requests, strict=True) if number not in by_id]
    if missing:
        raise BadAnswer(f"no answer to {missing[0]}")
    return [_result(method, by_id[number]) for number, (method, _) in zip(ids, requests, strict=True)]


def _result(method: str, answer: dict[str, Any]) -> Any:
    error = answer.get("error")
    if error is None:
        if "result" not in answer:
            raise BadAnswer(f"neither result nor error for {method}")
        return answer["result"]
    if not isinstance(error, dict):
        return RpcError(method, 0, str(error)[:_MAX_MESSAGE], b"")
    given, message = error.get("code"), str(error.get("message", ""))[:_MAX_MESSAGE]
    code = given if isinstance(given, int) and abs(given) < 1 << 64 else 0
    if code in _BUSY_CODES:
        raise BadAnswer(f"busy: {message or code}")
    return RpcError(method, code, message, revert_data(error.get("data")))


def revert_data(data: Any) -> bytes:
    """Revert data from the places where nodes put it."""
    if isinstance(data, dict):
        data = data.get("data") or data.get("result")
    if isinstance(data, str) and data.startswith("0x"):
        try:
            return bytes.fromhex(data[2:])
        except ValueError:
            return b""
    return b""


def number(value: Any) -> int:
    """An integer below 2²⁵⁶ from JSON-RPC's hex. Raises UnreachableError if it is none."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return int(value, 16)
    shown_value = repr(value)[:_MAX_SHOWN]
    raise UnreachableError(f"the chain's endpoint answers {shown_value} for a number", "check the endpoint")


def shown(url: str) -> str:
    """A URL fit for messages: without user, password, path or query, where API keys live."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}"
    except ValueError:
        return "(unreadable URL)"
