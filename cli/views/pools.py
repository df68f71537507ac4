"""A pool owner's and an onlooker's view of a pool: phase, step, money, nodes, files, and what everything waits for."""

from collections import Counter
from typing import Any

from chain.indexer.records import Pool, Status
from chain.indexer.state import State, describe, needed, seats_in
from cli.views import picked
from cli.views.nodes import standing
from cli.views.progress import waiting

_NEWEST_WAITS = 20


def pool_view(state: State, number: int, now: int) -> dict[str, Any] | None:
    """One pool; None when there is none of that number. `free` is the budget that is neither reserved nor owed."""
    pool = state.pools.get(number)
    if pool is None:
        return None
    subs = state.submissions_of(number)
    counts = Counter(str(sub.status) for sub in subs)
    pending = [sub for sub in subs if not sub.is_final(now)]
    return {
        **picked(pool, "pool", "owner", "status", "step"),
        "steps": [{**picked(step, "step", "time"), "manifest": step.manifest.hex()} for step in pool.steps],
        "config_hash": pool.config_hash.hex(),
        "service": {"key": pool.service, "url": pool.service_url},
        "seats": judging_seats(state, pool),
        "terms": {**vars(pool.terms), "configHash": pool.terms.configHash.hex()},
        "money": money(state, pool),
        "nodes": nodes(state, number),
        "submissions": {str(status): counts.get(str(status), 0) for status in Status},
        "units_accepted": sum(sub.units for sub in state.accepted(number)),
        "waits": [
            {**picked(sub, "sequence", "node"), "waiting": waiting(state, sub, now)} for sub in pending[-_NEWEST_WAITS:]
        ],
    }


def judging_seats(state: State, pool: Pool) -> dict[str, Any]:
    """The seats of the pool's class, and how many it must have to take work."""
    found = seats_in(state, pool)
    owners = len({seat.owner for seat in found})
    return {
        "group": describe(pool.validator_group),
        "count": len(found),
        "needed": needed(pool.terms),
        "owners": owners,
    }


def money(state: State, pool: Pool) -> dict[str, int]:
    """Where the pool's base units are and went. `forfeited`: slashed nodes' burnt pay. `owed`: accepted
    and not claimed; `pending`: reserved for unjudged units (pay only, fees come on top)."""
    accounts = [a for (of, _), a in state.accounts.items() if of == pool.pool]
    rate = pool.terms.rate
    return {
        **picked(pool, "escrow", "funded", "claimed", "fees_paid", "fees_burnt"),
        **picked(pool, "forfeited", "from_stakes", "leftover"),
        "owed": sum(a.units_earned - a.units_spent for a in accounts) * rate,
        "pending": sum(a.units_pending for a in accounts) * rate,
    }


def nodes(state: State, number: int) -> list[dict[str, Any]]:
    """Every node that ever joined, in order of address."""
    out = []
    for (of, node), account in sorted(state.accounts.items()):
        if of != number:
            continue
        known = state.nodes.get(node)
        out.append(
            {
                **picked(account, "node", "operator", "units_awarded", "units_pending", "paid", "slashed"),
                "standing": standing(account),
                "stake": known.stake if known else 0,
                "submitted": account.counter,
            }
        )
    return out


def phase(pool: dict[str, Any]) -> str:
    """One sentence on what the pool is doing, from its view."""
    closed = {"paused": "paused by its owner", "closing": "closing: no new work", "settled": "settled"}
    if pool["status"] in closed:
        return closed[pool["status"]]
    if pool["status"] == "understaffed":
        seats = pool["seats"]
        if seats["count"] >= seats["needed"]:
            return "understaffed until its seats are counted in the epoch to come: muster pool review"
        return f"understaffed: {seats['count']} of {seats['needed']} seats judge {seats['group']}, it takes no work"
    if pool["step"] < 0:
        return "waiting for its owner to publish policy step 0"
    if not any(node["standing"] == "member" for node in pool["nodes"]):
        return "waiting for nodes to join"
    return f"working on policy step {pool['step']}"
