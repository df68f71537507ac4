"""The endpoint within the process: OpenAI's form of a script, with a stream and without, and for nobody else."""

import asyncio
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from environments.verifiers.guest import classic
from environments.verifiers.guest.classic import MODEL, Script, reply_of

ASKED = [{"role": "user", "content": "Play."}]
TOOL = {"type": "function", "function": {"name": "open", "description": "Opens.", "parameters": {}}}
TURNS: list[dict[str, Any]] = [
    {"text": "I open it. " * 9, "call": ["open", '{"box": "a"}']},
    {"text": "end", "call": None},
]


class Inside(httpx.HTTPTransport):
    """A transport of this test alone: what is routed stays so."""


class InsideAsync(httpx.AsyncHTTPTransport):
    """The same for those that wait."""


classic.route(SimpleNamespace(HTTPTransport=Inside, AsyncHTTPTransport=InsideAsync, Response=httpx.Response))


@pytest.fixture
def script() -> Iterator[Script]:
    made = Script(TURNS, [TOOL], [["user", "Play."]])
    classic.answers_by(made)
    yield made
    classic._current.clear()


def ask(messages: list[Any], **more: Any) -> httpx.Response:
    body = {"model": MODEL, "messages": messages, "tools": [TOOL]} | more
    with httpx.Client(transport=Inside()) as client:
        return client.post(f"{classic.BASE}/chat/completions", json=body)


def test_turns_in_their_order_then_the_end_of_the_context(script: Script) -> None:
    (choice,) = ask(ASKED).json()["choices"]
    message = choice["message"]
    assert (message["content"], choice["finish_reason"]) == (TURNS[0]["text"], "tool_calls")
    (call,) = message["tool_calls"]
    assert (call["id"], call["function"]) == ("call00001", {"name": "open", "arguments": '{"box": "a"}'})
    so_far = [*ASKED, message, {"role": "tool", "tool_call_id": call["id"], "content": "7"}]
    (choice,) = ask(so_far).json()["choices"]
    assert choice["message"] == {"role": "assistant", "content": "end"}
    full = ask([*so_far, choice["message"], {"role": "user", "content": "Go on."}])
    assert full.status_code == 400
    assert full.json()["error"]["code"] == "context_length_exceeded"
    assert (reply_of(script), script.trouble) == ("Go on.", "")


def test_a_stream_is_the_same_turn_in_pieces(script: Script) -> None:
    lines = [line.removeprefix("data: ") for line in ask(ASKED, stream=True).text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    choices = [json.loads(line)["choices"][0] for line in lines]
    assert "".join(one["delta"].get("content", "") for one in choices) == TURNS[0]["text"]
    assert [one["delta"]["tool_calls"][0]["id"] for one in choices if "tool_calls" in one["delta"]] == ["call00001"]
    assert [one["finish_reason"] for one in choices if one["finish_reason"]] == ["tool_calls"]
    assert script.asked == 1


def test_who_waits_gets_the_same(script: Script) -> None:
    async def asked() -> httpx.Response:
        async with httpx.AsyncClient(transport=InsideAsync()) as client:
            body = {"model": MODEL, "messages": ASKED, "tools": [TOOL]}
            return await client.post(f"{classic.BASE}/chat/completions", json=body)

    assert asyncio.run(asked()).json()["choices"][0]["message"]["content"] == TURNS[0]["text"]
    assert script.asked == 1


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"model": "judge"}, "another model: judge"),
        ({"n": 2}, "2 answers at once"),
        ({"tools": []}, "other tools"),
        ({"response_format": {"type": "json_object"}}, "`response_format`"),
    ],
)
def test_what_no_worker_could_answer_is_trouble(script: Script, more: dict[str, Any], said: str) -> None:
    assert ask(ASKED, **more).status_code == 400
    assert said in script.trouble


def test_another_question_than_the_rows_is_trouble(script: Script) -> None:
    assert ask([{"role": "user", "content": "Else."}]).status_code == 400
    assert "something else than its row" in script.trouble


def test_other_paths_are_trouble_and_other_hosts_are_not_ours(script: Script) -> None:
    with httpx.Client(transport=Inside()) as client:
        assert client.get(f"{classic.BASE}/models").json()["data"][0]["id"] == MODEL
        assert client.post(f"{classic.BASE}/responses", json={}).status_code == 400
        with pytest.raises(httpx.ConnectError):
            client.get("http://127.0.0.1:9/v1/models")
    assert "/v1/responses" in script.trouble


def test_outside_of_a_replay_nothing_answers() -> None:
    with pytest.raises(httpx.ConnectError):
        ask(ASKED)
