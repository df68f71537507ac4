"""Views as people read them: a node, a pool, a validator's seats."""

from typing import Any

from cli.output import clock, fields, table
from cli.views.pools import phase
from protocol.amounts import show_tokens
from protocol.errors import printable
from protocol.verdict import Code


def node_text(view: dict[str, Any], last: int) -> str:
    """A `node_view` with the key `wei`; of every pool the `last` newest files, all for 0."""
    lines = {
        "node": view["node"],
        "operator": view["operator"],
        "stake": f"{show_tokens(view['stake'])} tokens, {show_tokens(view['withdrawable'])} can be withdrawn now",
        "pool": view["pool"] or "none",
        "gas": f"{view['wei'] / 10**18:.6f} ETH",
    }
    if view["slashed"]:
        lines["slashed"] = f"{show_tokens(view['slashed'])} tokens"
    if not view["pool"] and view["release_at"]:
        lines["released"] = clock(view["release_at"])
    return "\n\n".join([fields(lines), *(_account_text(account, last) for account in view["accounts"])])


def _account_text(account: dict[str, Any], last: int) -> str:
    units = account["units"]
    lines = {
        f"pool {account['pool']}": account["standing"],
        "earned": f"{show_tokens(account['earned'])} tokens for {units['accepted']} verified output tokens",
        "pending": f"{show_tokens(account['pending'])} tokens, not judged yet",
        "vesting": f"{show_tokens(account['vesting'])} tokens, accepted and within the challenge window",
        "claimable": f"{show_tokens(account['claimable'])} tokens (muster node claim)",
        "paid": f"{show_tokens(account['paid'])} tokens",
    }
    if account["slashed"]:
        lines["slashed"] = f"{show_tokens(account['slashed'])} tokens"
    shown = account["submissions"][-last:]
    rows = [
        [s["sequence"], s["step"], s["counter"], s["units"], s["status"], s["reason"] or s["waiting"]] for s in shown
    ]
    headers = ["file", "step", "counter", "units", "status", "why, or what it waits for"]
    evidence = [f"file {s['sequence']}: {line}" for s in shown for line in s.get("evidence", ())]
    return "\n".join([fields(lines), table(headers, rows, empty="no submissions yet"), *evidence])


def pool_text(view: dict[str, Any]) -> str:
    """A `pool_view` with the key `free`."""
    money = {name: show_tokens(base_units) for name, base_units in view["money"].items()}
    counts = ", ".join(f"{n} {status}" for status, n in view["submissions"].items() if n)
    lines = {
        "pool": view["pool"],
        "owner": view["owner"],
        "phase": phase(view),
        "seats": seats_line(view["seats"]),
        "service": _service(view["service"]),
        "escrow": f"{money['escrow']} tokens, of them {show_tokens(view['free'])} free, {money['owed']} owed to nodes",
        "paid": f"{money['claimed']} to nodes, {money['fees_paid']} to validators, of {money['funded']} funded",
        "files": counts or "none",
        "verified": f"{view['units_accepted']} output tokens",
    }
    headers = ["node", "standing", "stake", "files", "verified", "paid", "slashed"]
    rows = [
        [
            n["node"],
            n["standing"],
            show_tokens(n["stake"]),
            n["submitted"],
            n["units_awarded"],
            show_tokens(n["paid"]),
            show_tokens(n["slashed"]),
        ]
        for n in view["nodes"]
    ]
    waits = [f"file {w['sequence']}: {w['waiting']}" for w in view["waits"]]
    parts = [fields(lines), table(headers, rows, empty="no nodes"), "\n".join(waits)]
    return "\n\n".join(part for part in parts if part)


def seats_line(seats: dict[str, Any]) -> str:
    """How many seats judge a pool, from its view."""
    return f"{seats['count']} of {seats['needed']} needed judge {seats['group']}, of {seats['owners']} owners"


def _service(service: dict[str, str]) -> str:
    """Where it answers is its owner's word."""
    if not service["key"]:
        return "no key: muster pool set-service"
    return f"{service['key']} at {printable(service['url'], 200) or 'no announced URL'}"


def seats_text(owner: str, epoch: int, views: list[dict[str, Any]]) -> str:
    """Every `seat_view` of one owner or voter, with what was penalised and why."""
    headers = ["seat", "standing", "judges", "bond", "drawn", "voted", "due", "earned", "penalised", "voting key"]
    amounts = ("bond", "earned", "penalised")
    shown = [v | {"voting key": v["voter"], "judges": _judges(v)} for v in views]
    rows = [[show_tokens(v[h]) if h in amounts else v[h] for h in headers] for v in shown]
    causes = [
        [v["seat"], show_tokens(p["amount"]), _cause(Code(p["code"])), f"{p['pool']}/{p['sequence']}", p["tx"]]
        for v in views
        for p in v["penalties"]
    ]
    parts = [fields({"address": owner, "epoch": epoch}), table(headers, rows, empty="no seats")]
    if causes:
        parts.append(table(["seat", "lost", "cause", "pool/file", "transaction"], causes))
    return "\n\n".join(parts)


def _judges(seat: dict[str, Any]) -> str:
    pools = ", ".join(map(str, seat["pools"])) or "none"
    return f"{', '.join(seat['groups'])}: pools {pools}" if seat["groups"] else "nothing: muster validator opt-in"


def _cause(code: Code) -> str:
    return "minority or withheld vote" if not code else f"file was {code.label}"
