"""A swarm's ledger as one page that opens anywhere: no script, no network."""

from collections.abc import Mapping
from html import escape
from typing import Any

_WIDTH, _HEIGHT, _POINTS = 220, 48, 110
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:78rem;padding:0 1rem;color:#1c2733}"
    "table{border-collapse:collapse;width:100%}th,td{padding:.35rem .6rem;border-bottom:1px solid #d8dee5}"
    "td,th{text-align:right}td:first-child,th:first-child{text-align:left;font-family:ui-monospace,monospace}"
    "svg{background:#f4f6f8}.bad{color:#a4262c}"
)
_HEADS = ("member", "standing", "rounds", "groups", "trained on", "unfit", "doubted", "took", "breaches")


def ledger_page(name: str, document: Mapping[str, Any]) -> str:
    """`document`: `SwarmLedger.document()`."""
    rows = "".join(_row(address, one) for address, one in document["members"].items())
    heads = "".join(f"<th>{head}</th>" for head in (*_HEADS, "reward of what it shared", "reward of all it made"))
    partly = "" if document["whole"] else " <b class=bad>There is more in the bucket than was judged.</b>"
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(name)}</title><style>{_STYLE}</style>"
        f"<h1>{escape(name)}</h1><p>{document['envelopes']} envelopes, each judged anew: "
        f"{document['refused']} refused, {document['unjudged']} not judged yet.{partly} What was trained on, unfit or "
        f"doubted, and the reward of all that a member made, are known of the members whose homes were read.</p>"
        f"<table><tr>{heads}</tr>{rows}</table></html>\n"
    )


def curve(points: Mapping[int, float], what: str) -> str:
    """Reward from 0 to 1 by round, in at most so many points, each the mean of its rounds."""
    if not points:
        return "–"
    rounds = sorted(points)
    first, last = rounds[0], rounds[-1]
    bins: dict[int, list[int]] = {}
    for number in rounds:
        bins.setdefault((number - first) * (_POINTS - 1) // max(1, last - first), []).append(number)
    drawn = [(_WIDTH * at / (_POINTS - 1), sum(points[one] for one in part) / len(part)) for at, part in bins.items()]
    line = " ".join(f"{x:.1f},{_HEIGHT * (1 - reward):.1f}" for x, reward in drawn)
    label = f"{what}: {points[first]:.3f} in round {first}, {points[last]:.3f} in round {last}"
    return (
        f"<svg width={_WIDTH} height={_HEIGHT} role=img><title>{escape(label)}</title>"
        f'<polyline fill=none stroke=#2563a8 stroke-width=1.5 points="{line}"/></svg>'
    )


def _row(address: str, one: Mapping[str, Any]) -> str:
    breaches = ", ".join(f"{count} × {kind}" for kind, count in one["breaches"].items())
    counts = [one[name] for name in ("rounds", "groups", "trained", "unfit", "doubted", "took")]
    cells = [escape(address), escape(one["standing"]), *map(str, counts), f"<span class=bad>{escape(breaches)}</span>"]
    cells += [curve(one["rewards"], "what it shared"), curve(one["made"], "all that it made")]
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
