"""What commands print: results on standard output, as text for people or as one JSON document for programs."""

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer


def emit(document: Any, as_json: bool, text: Callable[[], str] | None = None, sound: bool = True) -> None:
    """Print `document` as indented JSON (amounts in it are integers, in base units), or what `text` makes of it;
    without one, its values. End with exit code 1 unless what it says is `sound`."""
    if as_json:
        typer.echo(json.dumps(document, indent=2, sort_keys=True, default=_plain))
    else:
        typer.echo(text() if text else values(document))
    if not sound:
        raise typer.Exit(1)


def table(headers: Sequence[str], rows: Sequence[Sequence[object]], empty: str = "none") -> str:
    """Columns padded to their widest cell; numbers to the right. `empty` when there is no row."""
    if not rows:
        return empty
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(headers), *cells]) for i in range(len(headers))]
    right = [all(isinstance(row[i], int) for row in rows) for i in range(len(headers))]
    lines = [list(headers), ["-" * width for width in widths], *cells]
    return "\n".join(_line(line, widths, right) for line in lines)


def fields(values: Mapping[str, object]) -> str:
    """One `name  value` line each, values in one column."""
    width = max((len(name) for name in values), default=0)
    return "\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in values.items())


def values(document: Mapping[str, Any]) -> str:
    """The document itself: one line for a plain value, a table for a list of records or a mapping of records."""
    plain, tables = dict[str, object](), list[str]()
    for key, value in document.items():
        name = key.replace("_", " ")
        records = value if isinstance(value, list) else []
        if isinstance(value, Mapping):
            records = [{name: of, **record} for of, record in value.items()]
        if records:
            rows = [list(map(_shown, record.values())) for record in records]
            tables.append(f"{name}\n{table([title.replace('_', ' ') for title in records[0]], rows)}")
        else:
            plain[name] = _shown(value)
    return "\n\n".join(part for part in (fields(plain), *tables) if part)


def _shown(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "none" if value in (None, [], {}) else value


def clock(when: int | float) -> str:
    """A Unix time for people, in this machine's zone; a dash for 0."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when)) if when else "-"


def counted(count: int, noun: str) -> str:
    """`1 seat`, `2 seats`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def seconds(value: float) -> str:
    """A duration for people: `45 s`, `3 min`, `2.5 h`, `14 d`."""
    if value < 90:
        return f"{value:.0f} s"
    if value < 5400:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h" if value < 172800 else f"{value / 86400:.0f} d"


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True)]
    return "  ".join(padded).rstrip()


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return vars(value) if dataclasses.is_dataclass(value) else str(value)
