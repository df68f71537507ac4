"""Numbers set in a table of a TOML text, or a whole table replaced, with every comment and everything else left as it
is. Pure."""

import json
import re
from collections.abc import Mapping
from typing import Any

from protocol.encoding import parse_toml
from protocol.errors import ConfigError

_HINT = "write the table as `[{table}]` with one `name = number` a line, or give the configuration as JSON"


def with_numbers(text: str, table: str, numbers: Mapping[str, float]) -> str:
    """`text` with these numbers in the table `[table]`, on their own lines: those that are there, else those that are
    commented out, else new ones at the table's end. Raises ConfigError where that would change anything else."""
    lines = text.rstrip("\n").split("\n")
    header = re.compile(rf"\s*\[\s*{re.escape(table)}\s*\]\s*(#.*)?")
    start = next((at for at, line in enumerate(lines) if header.fullmatch(line)), None)
    if start is None:
        lines += ["", f"[{table}]"]
        start = len(lines) - 1
    end = next((at for at in range(start + 1, len(lines)) if lines[at].lstrip().startswith("[")), len(lines))
    inside = lines[start + 1 : end]
    for name, number in numbers.items():
        _set(inside, name, number)
    changed = "\n".join([*lines[: start + 1], *inside, *lines[end:]]) + "\n"
    _check(text, changed, table, numbers)
    return changed


def with_table(text: str, table: str, value: Mapping[str, Any] | None) -> str:
    """`text` with a top-level table of this value on one line at its end, written by this function before or not there
    yet; without it for None. Raises ConfigError where the table stands elsewhere in another form."""
    form = re.compile(rf"\[{re.escape(table)}\]")
    lines = text.rstrip("\n").split("\n")
    start = next((at for at, line in enumerate(lines) if form.fullmatch(line)), None)
    if start is not None:
        end = next((at for at in range(start + 1, len(lines)) if lines[at].lstrip().startswith("[")), len(lines))
        while lines[end - 1].strip() == "" or lines[end - 1].startswith("#"):  # said of what follows
            end -= 1
        del lines[start:end]
    if value is not None:
        lines += [f"[{table}]", *(f"{name} = {_literal(one)}" for name, one in value.items())]
    changed = "\n".join(lines) + "\n"
    wanted = parse_toml(text.encode())
    wanted.pop(table, None)
    try:
        if parse_toml(changed.encode()) == wanted | ({table: dict(value)} if value is not None else {}):
            return changed
    except ValueError:
        pass
    raise ConfigError(f"the table [{table}] cannot be changed in its place", f"take [{table}] out of the file")


def _literal(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(name)} = {_literal(one)}" for name, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return json.dumps(value)


def _set(lines: list[str], name: str, number: float) -> None:
    """Change or add one line."""
    for off in ("", r"#\s*"):  # a line that counts comes before one that is commented out
        form = re.compile(rf"(\s*){off}{re.escape(name)}\s*=\s*[^\s#]+(\s*#.*)?\s*")
        for at, line in enumerate(lines):
            if found := form.fullmatch(line):
                lines[at] = f"{found[1]}{name} = {float(number)!r}{found[2] or ''}"
                return
    last = max((at for at, line in enumerate(lines) if re.match(r"\s*[^\s#]", line)), default=-1)
    lines.insert(last + 1, f"{name} = {float(number)!r}")


def _check(before: str, after: str, table: str, numbers: Mapping[str, float]) -> None:
    """Lines are no grammar (a string may hold what looks like a table): what they came to is compared as TOML."""
    wanted = parse_toml(before.encode())
    try:
        wanted[table] = {**wanted.get(table, {}), **numbers}
        if parse_toml(after.encode()) == wanted:
            return
    except (ValueError, TypeError):  # the table stands elsewhere in another form, so it is there twice now
        pass
    raise ConfigError(f"the table [{table}] cannot be changed in its place", _HINT.format(table=table))
