"""Packages of several turns and with tools: what they ask next is the reply; what no worker could answer is refused."""

import re
from typing import Any

import pytest

from environments.verifiers.process import Turn
from protocol.errors import ConfigError, ScoringUnavailable
from tests.environments.verifiers.conftest import Locking, MakeProcess, load
from tests.environments.verifiers.small import GAME, TOOLS, turns


@pytest.fixture
def make(package: MakeProcess) -> MakeProcess:
    return lambda body="", **arguments: package(GAME + body, **arguments)


@pytest.fixture
def locking(lock: Locking) -> Locking:
    return lambda body="", **arguments: lock(GAME + body, **arguments)


def call(box: str, name: str = "open") -> Turn:
    return Turn(text=f"I call {name}.", call=(name, f'{{"box": "{box}"}}'))


def test_what_it_asks_next_is_the_reply_and_a_rollout_is_scored_wherever_it_was_cut(make: MakeProcess) -> None:
    process = make()
    assert process.load()["turns"] == 4
    for _ in range(2):
        assert process.reply(1, turns("a")) == "1, 1: a"
        assert process.reply(1, turns("a", "b")) == "2, 2: b"
    assert process.reply(1, turns("a", "end")) is None, "the environment says that it is over"
    assert process.reply(1, turns("a", "b", "c", "d")) is None, "it has four turns"
    assert process.reply(2, []) is None
    assert process.score(0, turns("a", "end")) == 1.0
    assert process.score(0, turns("a", "half")) == 0.5, "it would ask on: the tokens were used up"
    assert process.score(0, turns("a", "b", "c", "half")) == 0.5
    assert process.score(0, turns("end", "half")) == 0.0, "what comes after its end is worth nothing"
    assert process.score(0, turns("a", "b", "c", "d", "half")) == 0.0


@pytest.mark.parametrize(
    ("said", "replies"),
    [
        ('"One.") * len(text', {"x": "One.", "xx": "One.\n\nOne.", "": None}),
        ('"x" * int(text)', {"65536": "x" * 65536, "65537": None}),
        ('chr(0xD800) + "!"', {"x": "?!"}),
    ],
    ids=["several messages are one reply, none is none", "one without an end ends the rollout", "half a character"],
)
def test_what_it_says_is_made_one_text(make: MakeProcess, said: str, replies: dict[str, str | None]) -> None:
    process = make(f"\n    def respond(text, said):\n        return user({said})\n")
    assert {text: process.reply(0, turns(text)) for text in replies} == replies


def test_an_environment_that_breaks_on_a_turn_ends_there_and_pays_nothing(make: MakeProcess) -> None:
    process = make("\n    def respond(text, said):\n        return user(str(int(text)))\n")
    assert process.reply(0, turns("7")) == "7"
    assert process.reply(0, turns("seven")) is None
    assert process.score(0, turns("seven", "end")) == 0.0


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise MemoryError", "MemoryError"),
        ("raise RuntimeError from OSError()", "RuntimeError"),
        ("import socket; socket.create_connection(('127.0.0.1', 9))", "the network"),
        ("import os; os._exit(0)", "no answer"),
        ("return [UserMessage(role='system', content='x')]", "speaks as `system`"),
        ("return [UserMessage(role='assistant', content='end')]", "speaks as `assistant`"),
        ("return [UserMessage(role='user', content=[{'type': 'image'}])]", "not text alone"),
    ],
)
def test_what_fails_for_want_of_a_machine_has_neither_reply_nor_score(make: MakeProcess, body: str, said: str) -> None:
    process = make(f"\n    def respond(text, said):\n        {body}\n")
    for ask in (process.reply, process.score):
        with pytest.raises(ScoringUnavailable, match=re.escape(said)):
            ask(0, turns("a", "end"))
    assert process.score(0, turns("end")) == 1.0


BENT = """
    async def ask(self, client, messages, model, sampling):
        tools, later = self.tool_defs, len(messages) > 1
        {}
        return await client.get_response(prompt=messages, model=model, sampling_args=sampling, tools=tools)

    Game.ask = ask
"""


@pytest.mark.parametrize(
    ("bent", "said"),
    [
        ("messages = [UserMessage(role='user', content='x'), *messages[1:]] if later else messages", "changes what"),
        ("messages = messages[:1] if later else messages", "changes what"),
        ("[setattr(one, 'content', 'x') for one in messages[1:2]]", "changes what"),
        ("model = 'judge' if later else model", "another model: judge"),
        ("sampling = {'n': 1 + later}", "2 answers at once"),
        ("sampling = {'stop': ['x'] * later}", "sets `stop`"),
        ("sampling = {'tool_choice': 'none' if later else None}", "sets `tool_choice`"),
        ("tools = [Tool(name='more', description='', parameters={})] * later", "other tools"),
        ("if later: await client.get_response(messages, model)", "changes what"),
    ],
)
def test_what_no_worker_could_answer_is_refused_at_that_row(make: MakeProcess, bent: str, said: str) -> None:
    process = make(BENT.format(bent))
    assert process.score(0, turns("end")) == 1.0
    for ask in (process.reply, process.score):
        with pytest.raises(ScoringUnavailable, match=re.escape(said)):
            ask(0, turns("a", "end"))


def test_who_asks_on_after_the_end_of_the_context_is_refused(make: MakeProcess) -> None:
    again = """
    import verifiers.errors

    async def ask(self, *asked):
        try:
            return await vf.MultiTurnEnv.ask(self, *asked)
        except verifiers.errors.OverlongPromptError:
            return await vf.MultiTurnEnv.ask(self, *asked)

    Game.ask = ask
"""
    process = make(again)
    assert process.score(0, turns("a", "end")) == 1.0
    with pytest.raises(ScoringUnavailable, match="context is full"):
        process.reply(0, turns("a"))


def test_a_call_is_given_as_the_library_wants_it_and_its_answer_is_the_reply(make: MakeProcess) -> None:
    process = make(TOOLS)
    (tool,) = process.load()["tools"]
    assert tool["function"]["name"] == "open"
    assert process.reply(0, [call("a")]) == "97"
    assert process.reply(0, [call("a"), call("b")]) == "98"
    assert process.reply(0, [call("a"), *turns("end")]) is None
    assert process.score(0, [call("a"), *turns("end")]) == 1.0
    assert process.reply(0, [call("a", "close")]) == "KeyError: 'close'"
    assert "TypeError" in process.reply(0, [call("ab")])


def test_a_tool_for_which_the_machine_has_no_memory_says_nothing(make: MakeProcess) -> None:
    """Its environment would make a text of it, which the next machine would not."""
    process = make(TOOLS.replace("str(ord(box))", "str(len(bytearray(int(box))))"))
    assert process.reply(0, [call("1000")]) == "1000"
    with pytest.raises(ScoringUnavailable, match="MemoryError"):
        process.reply(0, [call(str(2 << 30))])


def test_an_environment_that_keeps_a_client_is_refused(make: MakeProcess) -> None:
    client = "type('OpenAI', (), {'__module__': 'openai'})()"
    process = make(f"\n    def change(made):\n        made.simulator = {client}\n")
    with pytest.raises(ConfigError, match="a model of its own"):
        process.load()


def test_half_a_character_which_json_may_spell_and_the_library_takes_in_no_message_is_put_in_words(
    locking: Locking,
) -> None:
    environment = load(locking(TOOLS))
    problem = environment.problem(0)
    assert environment.reply(problem, ['{"name": "open\\ud800", "arguments": {}}']) == "KeyError: 'open?'"
    assert environment.reply(problem, ['{"name": "open", "arguments": {"box": "\\udfff"}}']) == str(ord("?"))


def test_without_tools_it_is_the_user_who_replies_and_a_pool_bounds_the_turns(locking: Locking) -> None:
    lock = locking(most=-1)
    assert load(lock).declared.turns.most == 10
    turns = load(lock, turns=3, reply_tokens=9, reply_role="tool").declared.turns
    assert (turns.most, turns.reply_tokens, turns.role, turns.tools) == (3, 9, "tool", ())
    refused: tuple[dict[str, Any], ...] = ({"turns": 65}, {"reply_role": "system"}, {"tools": []})
    for wrong in refused:
        with pytest.raises(ConfigError):
            load(lock, **wrong)


def test_what_asks_something_else_than_its_row_or_has_too_many_or_other_tools_is_refused(locking: Locking) -> None:
    with pytest.raises(ScoringUnavailable, match="something else than its row says"):
        locking(BENT.format("messages = messages * 2"))
    lock = locking(TOOLS, more=[f"t{number}" for number in range(64)])
    with pytest.raises(ConfigError, match="more than 64 tools"):
        load(lock)
    drawn = TOOLS.replace('"Opens a box."', "str(__import__('uuid').uuid4())")
    with pytest.raises(ConfigError, match="or has other tools"):
        load(locking(drawn))
