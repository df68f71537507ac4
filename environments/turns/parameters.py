"""`turns`, `reply_tokens` and `reply_role`: parameters of an environment that replies, and `tools` of a program."""

import json
from typing import Any

from environments.base import Turns
from protocol.errors import ConfigError

PARAMETERS = ("turns", "reply_tokens", "reply_role")
TOOLS = "tools"
MOST_TURNS, MOST_TOKENS, MOST_TOOLS, TOOLS_CHARS = 64, 1 << 16, 64, 1 << 16


def take_turns(params: dict[str, Any], usual: Turns) -> Turns:
    """The parameters, taken out of `params`; those of `usual` where they are not there. Raises ConfigError."""
    most = _whole(params, "turns", usual.most, MOST_TURNS)
    tokens = _whole(params, "reply_tokens", usual.reply_tokens, MOST_TOKENS)
    role = params.pop("reply_role", usual.role)
    if role not in ("tool", "user"):
        raise ConfigError(f"`params.reply_role` is {role!r}", 'use "tool" or "user"')
    return Turns(most, tokens, role, usual.tools)


def take_tools(params: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """The parameter `tools`, taken out of `params`; none where it is not there. Raises ConfigError."""
    tools = params.pop(TOOLS, [])
    if not are_tools(tools):
        raise ConfigError(f"`params.{TOOLS}` is no list of at most {MOST_TOOLS} JSON schemas", "write one of each tool")
    return tuple(tools)


def are_tools(tools: Any) -> bool:
    """Whether that is a list of so many JSON schemas that a chat template may be told of it."""
    named = isinstance(tools, list) and len(tools) <= MOST_TOOLS and all(isinstance(one, dict) for one in tools)
    return named and len(json.dumps(tools)) <= TOOLS_CHARS


def _whole(params: dict[str, Any], name: str, usual: int, high: int) -> int:
    value = params.pop(name, usual)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= high:
        raise ConfigError(f"`params.{name}` is {value!r}", f"use a whole number from 1 to {high}")
    return value
