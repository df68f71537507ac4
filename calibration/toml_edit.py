"""Numbers set in a table of a TOML text, with every comment and everything else left as it is. Pure."""

import re
from collections.abc import Mapping

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
