"""An OpenAI-compatible endpoint inside the process, for packages that insist on HTTP: a script answers, no socket does.

What httpx would send to `BASE` is answered before it leaves the process, with or without a stream of events. It answers
while a rollout is replayed, and only then.
"""

import importlib
import json
from collections.abc import Mapping
from typing import Any

from .refusal import NoScore
from .script import MODEL, Script

HOST = "transcript.invalid"
BASE = f"http://{HOST}/v1"
_LIBRARIES = "httpx", "httpx2"
_OPENAI = "openai._base_client"
_PIECE = 64
_current: list[Script] = []


def answer_inside() -> None:
    """From now on, for every client of httpx in this process. Those of OpenAI's library would start programs to learn
    which system they tell the endpoint of."""
    for name in (*_LIBRARIES, _OPENAI):
        try:
            library: Any = importlib.import_module(name)
        except ImportError:
            continue
        if name == _OPENAI:
            library.get_platform = lambda: "Unknown"
        else:
            route(library)


def answers_by(script: Script) -> None:
    """Whoever asks the endpoint asks this script from now on."""
    _current[:] = [script]


def route(library: Any) -> None:
    """Of a library with httpx's names."""
    outside, outside_async = library.HTTPTransport.handle_request, library.AsyncHTTPTransport.handle_async_request

    def handle(self: Any, request: Any) -> Any:
        if not _ours(request):
            return outside(self, request)
        request.read()
        return _response(library, request)

    async def handle_async(self: Any, request: Any) -> Any:
        if not _ours(request):
            return await outside_async(self, request)
        await request.aread()
        return _response(library, request)

    library.HTTPTransport.handle_request, library.AsyncHTTPTransport.handle_async_request = handle, handle_async


def _ours(request: Any) -> bool:
    return bool(_current) and request.url.host == HOST


def _response(library: Any, request: Any) -> Any:
    status, kind, content = _answer(_current[0], request.method, request.url.path, request.content)
    return library.Response(status, headers={"content-type": kind}, content=content, request=request)


def _answer(script: Script, method: str, path: str, content: bytes) -> tuple[int, str, bytes]:
    """Status, media type and body."""
    try:
        if (method, path) == ("GET", "/v1/models"):
            return _document(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        if (method, path) != ("POST", "/v1/chat/completions"):
            raise script.refused(f"the environment asks for {method} {path[:60]}, which the endpoint does not have")
        body = json.loads(content)
        tools = [plain_tool(one["function"]) for one in body.get("tools") or ()]
        turn = script.next(body["messages"], body.get("model"), tools, body)
    except NoScore as error:
        return _document(400, {"error": {"message": str(error), "type": "invalid_request_error"}})
    if turn is None:
        full = {"message": "this model's maximum context length is reached", "code": "context_length_exceeded"}
        return _document(400, {"error": full})
    if body.get("stream"):
        return 200, "text/event-stream", _events(turn)
    message = {"role": "assistant", "content": turn["text"]}
    message |= {"tool_calls": _calls(turn)} if turn["calls"] else {}
    return _document(200, _completion("chat.completion", message=message, finish_reason=_finish(turn)))


def plain_tool(function: Mapping[str, Any]) -> dict[str, Any]:
    """A function as a chat template is told of it."""
    about = {name: function.get(name) for name in ("name", "description", "parameters")}
    return {"type": "function", "function": about}


def _events(turn: Mapping[str, Any]) -> bytes:
    """The turn in pieces, as a server that samples would stream it."""
    text = turn["text"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": text[place : place + _PIECE]} for place in range(0, len(text), _PIECE)]
    deltas += [{"tool_calls": [{"index": place} | one for place, one in enumerate(_calls(turn))]}] * bool(turn["calls"])
    chunks = [_completion("chat.completion.chunk", delta=delta, finish_reason=None) for delta in deltas]
    chunks.append(_completion("chat.completion.chunk", delta={}, finish_reason=_finish(turn)))
    return b"".join(b"data: %s\n\n" % one for one in (*(json.dumps(chunk).encode() for chunk in chunks), b"[DONE]"))


def _completion(kind: str, **choice: Any) -> dict[str, Any]:
    return {"id": MODEL, "object": kind, "created": 0, "model": MODEL, "choices": [{"index": 0} | choice]}


def _calls(turn: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"id": number, "type": "function", "function": {"name": name, "arguments": given}}
        for number, name, given in turn["calls"]
    ]


def _finish(turn: Mapping[str, Any]) -> str:
    return "tool_calls" if turn["calls"] else "stop"


def _document(status: int, document: Mapping[str, Any]) -> tuple[int, str, bytes]:
    return status, "application/json", json.dumps(document).encode()
