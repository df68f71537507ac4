"""The report of a run: one HTML document that needs nothing else. Pure: from the summary and the record."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from orchestrator.plots import Bar, Series, curves, stacks, timeline

STYLE = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")
STATUS_KINDS = {
    "accepted": "green",
    "pending": "grey",
    "rejected": "red",
    "malformed": "amber",
    "unavailable": "violet",
    "void": "blue",
    "canary": "violet",
}
TIME_KINDS = {"generate": "blue", "submit": "violet", "check and accept": "green", "train": "amber"}
COLUMN = tuple[str, str]
Document = Mapping[str, Any]


def build_report(summary: Document, data: Document) -> str:
    """The report as HTML. `summary` is `build_summary`'s, `data` the record it was made from (`GET /v1/record`)."""
    title = f"{data['name']}: run with seed {summary['seed']}"
    sections = [
        _section("Task reward per policy step", _rewards(summary, data), REWARD_NOTE),
        _section("Files per policy step", _outcomes(data), "By the policy step they were generated with."),
        _section("Time line of every policy step", _timeline(data), TIME_NOTE),
        _section("Cheaters", _cheaters(summary)) if summary["cheaters"] else "",
        _section("Slashes and ejections", _slashes(data)),
        _disputes(data),
        _section("Final ledger (tokens)", _ledger(data)),
        _section("Escrow of the pool (tokens)", _escrow(data)),
        _section("Nodes", _nodes(data)),
        _section("Validators", _validators(data)),
        _section("Ledger and chain", _audit(data)),
    ]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    sub = f"pool {data['pool']} · {data['task']} · {data['model']} · {summary['seconds']:g} s · block {data['head']}"
    body = f'<h1>{escape(title)}</h1><div class="dim">{escape(sub)}</div>{_tiles(summary)}{"".join(sections)}'
    return f'<!doctype html><html lang="en"><head>{head}<style>{STYLE}</style></head><body>{body}</body></html>\n'


REWARD_NOTE = (
    "Line: mean over the files that the step was trained on. Large dots: the same held-out problems, before the first "
    "and after the last step."
)
TIME_NOTE = (
    "Each row is one policy step: from its publication to the first file made with it, from its first to its last "
    "submission, from the first to the last acceptance, and the training that made the step. Rows overlap because "
    "nobody waits for anybody."
)


def _tiles(summary: Document) -> str:
    files, idle = summary["submissions"], summary["trainer_idle_share"]
    first, last = _number(summary["reward_first"]), _number(summary["reward_last"])
    tiles = [
        ("held-out reward", f"{first} → {last}", ""),
        ("files accepted / refused", f"{files['accepted']} / {files['rejected']}", ""),
        ("tokens verified", f"{summary['tokens_verified']:,}", ""),
        ("trainer idle", "–" if idle is None else f"{idle:.0%}", ""),
        ("policy steps", str(summary["steps"]), ""),
        ("ledger matches chain", *_yes(summary["ledger_matches_chain"])),
        ("escrow balanced", *_yes(summary["escrow_balanced"])),
        ("honest files rejected", str(summary["honest_rejected"]), "bad" if summary["honest_rejected"] else "good"),
    ]
    if summary.get("agreement"):
        compared, differing = summary["agreement"]["compared"], len(summary["agreement"]["differing"])
        kind = "bad" if differing else "good"
        tiles.append(("verdicts that differ, of files judged twice", f"{differing} of {compared}", kind))
    cells = "".join(
        f'<div class="tile"><b class="{kind}">{escape(value)}</b><span>{escape(label)}</span></div>'
        for label, value, kind in tiles
    )
    return f'<div class="tiles">{cells}</div>'


def _rewards(summary: Document, data: Document) -> str:
    line = [(one["step"], one["reward"]) for one in data["rewards"] if one["reward"] is not None]
    held = [(one["step"], one["heldout"]) for one in data["rewards"] if one["heldout"] is not None]
    series = [Series("trained on", "blue", line), Series("held-out problems", "green", held, joined=False)]
    return curves(series, max(summary["steps"], 1))


def _outcomes(data: Document) -> str:
    steps = range(max([one["step"] for one in data["submissions"]] or [0]) + 1)
    columns: list[tuple[str, dict[str, int]]] = [(str(step), {}) for step in steps]
    for one in data["submissions"]:
        counts = columns[one["step"]][1]
        counts[one["status"]] = counts.get(one["status"], 0) + 1
    seen = {name for _, counts in columns for name in counts}
    return stacks(columns, {name: kind for name, kind in STATUS_KINDS.items() if name in seen})


def _timeline(data: Document) -> str:
    published = {one["step"]: float(one["time"]) for one in data["published"]}
    if not published:
        return '<p class="note">No policy step was published.</p>'
    zero = min(published.values())
    reports = {one["step"]: one for one in data["reports"]}
    bars: list[Bar] = []
    rows = sorted(published)
    for row, step in enumerate(rows):
        files = [one for one in data["submissions"] if one["step"] == step]
        sent = sorted(float(one["time"]) for one in files)
        done = sorted(float(one["decided"]) for one in files if one["status"] == "accepted" and one["decided"])
        spans = []
        if sent:
            spans += [("generate", published[step], sent[0]), ("submit", sent[0], sent[-1])]
        if done:
            spans.append(("check and accept", done[0], done[-1]))
        if step in reports and "train" in reports[step]["timings"]:
            end = published[step]
            spans.append(("train", end - reports[step]["timings"]["train"], end))
        zero = min([zero, *(start for _, start, _ in spans)])
        bars += [
            Bar(row, TIME_KINDS[name], start, end, f"step {step}: {name}, {end - start:.1f} s")
            for name, start, end in spans
        ]
    moved = [Bar(bar.row, bar.kind, bar.start - zero, bar.end - zero, bar.title) for bar in bars]
    return timeline([str(step) for step in rows], moved, TIME_KINDS)


def _cheaters(summary: Document) -> str:
    rows = [
        [
            _code(one["address"]),
            _text(one["reason"] or "–"),
            _yes_cell(one["slashed"]) + f" ({tokens(one['slashed_grains'])})",
            _yes_cell(one["ejected"]),
            _text(one["submissions"]),
            _text(one["rollouts_trained"]),
        ]
        for one in summary["cheaters"]
    ]
    columns = [
        ("node", ""),
        ("reason", ""),
        ("slashed", ""),
        ("ejected", ""),
        ("files", "n"),
        ("rollouts trained", "n"),
    ]
    return _table(columns, rows, "")


def _slashes(data: Document) -> str:
    rows = [
        [
            _code(one["who"]) if one["kind"] == "node" else _text(f"seat {one['who']}"),
            _text(one["reason"]),
            _text(f"#{one['sequence']}"),
            tokens(one["amount"]),
            _text(one["block"]),
        ]
        for one in data["slashes"]
    ]
    columns = [("who", ""), ("reason", ""), ("file", ""), ("tokens", "n"), ("block", "n")]
    return _table(columns, rows, "Nobody was slashed.")


def _disputes(data: Document) -> str:
    rows = [
        ["dispute", _text(f"#{d['sequence']}"), _code(d["disputer"]), _text(d["outcome"]), _verdict(d, "overturned")]
        for d in data["disputes"]
    ]
    rows += [
        [
            "canary",
            _text(f"#{c['sequence']}"),
            _text("seats " + ", ".join(str(seat) for seat in c["accused"])),
            _text(c["reason"]),
            _verdict({"resolved": c["concluded"], **c}, "upheld")
            + "".join(f" · seat {_text(seat)} lost {tokens(amount)}" for seat, amount in c["slashed"].items()),
        ]
        for c in data["canaries"]
    ]
    if not rows:
        return ""
    columns = [("kind", ""), ("file", ""), ("by / accused", ""), ("outcome", ""), ("state", "")]
    return _section("Disputes and canaries", _table(columns, rows, ""))


def _verdict(case: Document, word: str) -> str:
    if not case["resolved"]:
        return "open"
    return word if case[word] else f"not {word}"


def _ledger(data: Document) -> str:
    money = ["earned", "pending", "locked", "vested", "claimed", "fees", "slashed"]
    rows = [
        [_code(one["address"]), _text(one["role"]), _code(one["payee"]), *(tokens(one[name]) for name in money)]
        for one in data["ledger"]
    ]
    return _table([("account", ""), ("role", ""), ("paid to", ""), *((name, "n") for name in money)], rows, "Empty.")


def _escrow(data: Document) -> str:
    if data["escrow"] is None:
        return '<p class="note">The pool is not on chain.</p>'
    names = {
        "funded": "deposited",
        "recovered": "+ recovered from stakes",
        "free": "= free",
        "reserved": "+ reserved for files without a final outcome",
        "unpaid": "+ earned and not claimed",
        "owed_fees": "+ fees owed to committees",
        "claimed": "+ pay claimed",
        "fees": "+ fees paid",
        "burnt": "+ burnt",
        "refunded": "+ returned to the owner",
    }
    return _table([("", ""), ("", "n")], [[label, tokens(data["escrow"][name])] for name, label in names.items()], "")


def _nodes(data: Document) -> str:
    rows = [
        [
            _code(one["address"]),
            _text(one["name"] or "–"),
            _text(one["state"]),
            _text(one["engine"] or "–"),
            *(_text(one[name]) for name in ("accepted", "rejected", "pending", "units")),
        ]
        for one in data["nodes"]
    ]
    columns = [("node", ""), ("name", ""), ("state", ""), ("engine", ""), ("accepted", "n"), ("rejected", "n")]
    return _table([*columns, ("pending", "n"), ("units", "n")], rows, "No node joined.")


def _validators(data: Document) -> str:
    rows = [
        [
            _code(one["address"]),
            _text(one["name"] or "–"),
            _text(", ".join(str(seat["seat"]) for seat in one["seats"])),
            _text(one["votes"]),
            tokens(one["fees"]),
            tokens(one["penalised"]),
        ]
        for one in data["validators"]
    ]
    columns = [("owner", ""), ("name", ""), ("seats", ""), ("files voted on", "n"), ("fees", "n"), ("penalised", "n")]
    return _table(columns, rows, "No seat was bonded.")


def _audit(data: Document) -> str:
    audit = data["audit"]
    if audit is None:
        return '<p class="note">The ledger was not compared with the chain.</p>'
    if not audit["findings"]:
        return f"<p>Compared at block {_text(audit['block'])}: equal to the last grain.</p>"
    return "<ul>" + "".join(f"<li>{_text(line)}</li>" for line in audit["findings"]) + "</ul>"


def _section(title: str, content: str, note: str = "") -> str:
    tail = f'<p class="note">{escape(note)}</p>' if note else ""
    return f"<section><h2>{escape(title)}</h2>{content}{tail}</section>"


def _table(columns: Sequence[COLUMN], rows: Sequence[Sequence[str]], empty: str) -> str:
    """Cells are HTML already; the callers escape."""
    if not rows:
        return f'<p class="note">{escape(empty)}</p>'
    head = "".join(f'<th class="{kind}">{escape(name)}</th>' for name, kind in columns)
    body = "".join(
        "<tr>"
        + "".join(f'<td class="{kind}">{cell}</td>' for (_, kind), cell in zip(columns, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _text(value: object) -> str:
    return escape(str(value))


def _code(address: str) -> str:
    short = f"{address[:8]}…{address[-6:]}" if len(address) == 42 else address
    return f'<code title="{escape(address)}">{escape(short)}</code>'


def tokens(grains: str | int) -> str:
    """Grains (1e-9 token) as tokens, exactly."""
    value = int(grains)
    whole, rest = divmod(abs(value), 10**9)
    tail = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{'−' if value < 0 else ''}{whole:,}{tail}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _yes(value: bool) -> tuple[str, str]:
    return ("yes", "good") if value else ("no", "bad")


def _yes_cell(value: bool) -> str:
    word, kind = _yes(value)
    return f'<span class="{kind}">{word}</span>'
