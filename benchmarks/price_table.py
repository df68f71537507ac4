"""The tables of docs/economics.md, from the result of `benchmarks price`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from protocol.seeds import AUDIT_EVERYTHING

DOCUMENT = Path(__file__).parent.parent / "docs" / "economics.md"
BEGIN, END = "<!-- tables: python -m benchmarks price -->", "<!-- end of tables -->"
Row = dict[str, Any]


def write_tables(found: Row, document: Path = DOCUMENT) -> None:
    """Replace what stands between the two marks."""
    text = document.read_text()
    before, after = text.index(BEGIN), text.index(END)
    document.write_text(text[:before] + f"{BEGIN}\n\n{tables(found)}\n\n" + text[after:])


def tables(found: Row) -> str:
    """All tables, in Markdown."""
    parts = [_stakes(found), _cost(found)]
    for dtype in ("float32", "bfloat16"):
        if rows := [one for one in found["attacks"] if one["dtype"] == dtype]:
            parts += [f"**{dtype}**, one file alone, `base-sepolia`'s terms", _attacks(rows, found["rates"])]
    parts.append(_least(found))
    if found["evidence"]:
        parts += ["**A node's files together**, bfloat16", _lives(found["evidence"])]
    return "\n\n".join(parts)


def share(rate: int) -> str:
    """An audit rate of 65536 as people write it."""
    return "1" if rate == AUDIT_EVERYTHING else f"1/{AUDIT_EVERYTHING // rate}"


def _stakes(found: Row) -> str:
    head = ["in tokens", *(f"`{name}`" for name in found["networks"])]
    words = {
        "pay": "most that a file earns",
        "stake": "`minStake`",
        "slash": "a rejected file's slash",
        "malformed": "a late or malformed file's penalty",
        "captured": "a committee with a third of the seats bought is captured",
    }
    return _table(head, ([text, *(one[name] for one in found["networks"].values())] for name, text in words.items()))


def _cost(found: Row) -> str:
    cost = found["cost"]
    head = ["audit rate", "rows of 128", "one seat's check, of generating the file", "of a file of very many rows"]
    rows = (
        [share(int(rate)), one["rows"], f"{100 * one['share']:.2g}%", f"{100 * one['without_last']:.2g}%"]
        for rate, one in cost["rates"].items()
    )
    return _table(head, rows)


def _attacks(rows: Sequence[Row], rates: Sequence[int]) -> str:
    head = ["attack", "spares at most", *(f"found at {share(rate)}" for rate in rates)]
    head += [f"worth at {share(rate)}" for rate in rates]
    return _table(head, (_attack(row, rates) for row in rows))


def _attack(row: Row, rates: Sequence[int]) -> list[str]:
    gains = f"{100 * row['saved']:.0f}%" + (f", +{100 * row['extra']:.0f}% pay" if row["extra"] else "")
    found = []
    for place in range(1, 1 + len(rates)):
        ways = [way[place] for way in (row["whole"], row["mixed"]) if way is not None]
        found.append(" / ".join(f"{refused}:{files}" for refused, files in ways))
    values = [row["values"]["base-sepolia"][str(rate)] for rate in rates]
    worth = [f"{one['value']:.3g}" + ("" if one["life"] is None else f" (life {one['life']:.3g})") for one in values]
    return [row["name"], gains, *found, *worth]


def _least(found: Row) -> str:
    head = ["audit rate", *(f"least stake, `{name}`" for name in found["least"]), "no stake deters"]
    rows = []
    for rate in map(str, found["rates"]):
        of = [one[rate] for one in found["least"].values()]
        rows.append([share(int(rate)), *(f"{one['stake']:.3g}" for one in of), ", ".join(of[0]["without"]) or "none"])
    return _table(head, rows)


def _lives(rows: Sequence[Row]) -> str:
    head = ["attack", "files of → seen by", "audit rate", "found", "median file", "p99", "such a life's worth"]

    def told() -> Iterator[list[str]]:
        for row in rows:
            worth = row["values"]["base-sepolia"]
            yield [
                row["name"],
                row["pair"].replace(" to ", " → "),
                share(row["audit"]),
                f"{row['found']} of {row['nodes']}",
                *(str(row[name]) if row["found"] == row["nodes"] else "–" for name in ("files_median", "files_p99")),
                "–" if worth is None else f"{worth:.3g}",
            ]

    return _table(head, told())


def _table(head: Sequence[str], rows: Any) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
