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
    words = [word for word in shlex.split(command, comments=True) if word not in ("\\", "…")]
    node = command_line()
    while words and hasattr(node, "commands"):
        words.pop(0)
        name = words[0] if words else ""
        if name.startswith("-") or not name:
            return "" if name in ("", "--version", "--help", "-h") else f"no option {name}"
        if name not in node.commands:
            return f"no command {name}"
        node = node.commands[name]
    parser = node.make_parser(node.context_class(node))
    try:
        _, left, _ = parser.parse_args(words[1:])
    except Exception as error:  # click's, which Typer may have vendored
        return str(error.format_message()) if hasattr(error, "format_message") else repr(error)
    return f"{left[0]} is too much" if left else ""
