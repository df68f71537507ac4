"""Whether a `muster …` command, as a guide or a unit has it, is one that the command line takes."""

import shlex
from functools import cache
from typing import Any

from typer.main import get_command

from cli.main import app


@cache
def command_line() -> Any:
    return get_command(app)


def problem(command: str) -> str:
    """Why the command line would refuse the words of `command` (after a possible path, `muster`), or empty. Files that
    it names need not be there; "…" and options in brackets are left out."""
    words = [word for word in shlex.split(command, comments=True) if word != "\\"]
    node, name = command_line(), "muster"
    while words and hasattr(node, "commands"):
        words.pop(0)
        name = words[0] if words else ""
        if name.startswith("-") or not name:
            return "" if name in ("", "--version", "--help", "-h") else f"no option {name}"
        if name not in node.commands:
            return f"no command {name}"
        node = node.commands[name]
    return _options(node, words[1:])


def _options(command: Any, words: list[str]) -> str:
    known = {flag: option for option in command.params for flag in (*option.opts, *option.secondary_opts)}
    rest = iter(words)
    given: set[str] = set()
    arguments = sum(option.param_type_name == "argument" for option in command.params)
    for word in rest:
        if word == "…":
            continue
        if not word.startswith("-"):
            if not arguments:
                return f"{word} is too much"
            continue
        flag, _, value = word.partition("=")
        if flag in ("-h", "--help"):
            continue
        if flag not in known:
            return f"no option {flag}"
        given.add(known[flag].name)
        if not known[flag].is_flag and not value and next(rest, None) is None:
            return f"{flag} has no value"
    return ""
