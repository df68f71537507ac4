"""The library's client whose model is a script."""

import importlib
from typing import Any

from .endpoint import BASE, answers_by, plain_tool
from .script import MODEL, Script


def scripted_client(script: Script) -> Any:
    """A `verifiers.clients.Client`; what it wraps is an OpenAI client of the endpoint within (endpoint.py). After the
    script's last turn the model's context is full, as the library says it: its environments then end the rollout, and
    their rubrics score what there is."""
    base = importlib.import_module("verifiers.clients.client").Client
    types = importlib.import_module("verifiers.types")
    errors = importlib.import_module("verifiers.errors")

    async def get_response(
        self: Any, prompt: Any, model: Any, sampling_args: Any = None, tools: Any = None, **_: Any
    ) -> Any:
        turn = script.next(prompt, model, [tool_schema(one) for one in tools or ()], sampling_args or {})
        if turn is None:
            raise errors.OverlongPromptError("the transcript has no more turns")
        calls = [types.ToolCall(id=number, name=name, arguments=given) for number, name, given in turn["calls"]]
        message = types.ResponseMessage(
            content=turn["text"],
            tool_calls=calls or None,
            finish_reason="tool_calls" if calls else "stop",
            is_truncated=False,
        )
        return types.Response(id=MODEL, created=0, model=MODEL, message=message)

    def official(_: Any) -> Any:
        return importlib.import_module("openai").AsyncOpenAI(base_url=BASE, api_key="none")

    answers_by(script)
    made = type("Transcript", (base,), {"get_response": get_response, "client": property(official)})
    setattr(made, "__abstractmethods__", frozenset())  # noqa: B010  the rest of a client speaks to a provider
    return made(None)


def tool_schema(tool: Any) -> dict[str, Any]:
    """A tool of the library's as an OpenAI-compatible endpoint and a chat template are told of it."""
    return plain_tool({name: getattr(tool, name) for name in ("name", "description", "parameters")})
