"""A node operator's view: stake, pools, earned, pending and claimable pay, every submission and its fate."""

from typing import Any

from chain.indexer.records import Account, Submission
from chain.indexer.state import Standing, State, ejected_by, standing_of
from cli.views import picked
from cli.views.progress import reason, waiting
from protocol.verdict import Code


def node_view(state: State, node: str, now: int, pool: int | None = None) -> dict[str, Any] | None:
    """One node; `now` is chain time. None when it is not registered. With `pool`, only that pool's account."""
    known = state.nodes.get(node)
    if known is None:
        return None
    accounts = [a for (of, who), a in sorted(state.accounts.items()) if who == node and pool in (None, of)]
    return {
        "node": node,
        **picked(known, "operator", "stake", "slashed", "pool", "release_at"),
        "withdrawable": withdrawable(state, node, now),
        "accounts": [account_view(state, account, now) for account in accounts],
    }


def withdrawable(state: State, node: str, now: int) -> int:
    """Base units of stake that the operator could take out now: all or nothing, as `Stakes.withdrawable`."""
    known = state.nodes[node]
    return 0 if known.pool or known.frozen or now < known.release_at else known.stake


def account_view(state: State, account: Account, now: int) -> dict[str, Any]:
    """Units and base units of one node in one pool. `earned`: accepted so far; `pending`: submitted, not judged;
    `vesting`: accepted, not claimable yet; `claimable`: what `claim` would pay now."""
    rate = state.pools[account.pool].terms.rate
    units = state.claimable_units(account.pool, account.node, now)
    unclaimed = max(account.units_earned - account.units_spent - units, 0)
    subs = state.submissions_of(account.pool, account.node)
    return {
        **picked(account, "pool", "joined_step", "paid", "slashed"),
        "standing": standing(account),
        "next_counter": account.counter,
        "units": {"pending": account.units_pending, "accepted": account.units_awarded, "claimable": units},
        "earned": account.units_awarded * rate,
        "pending": account.units_pending * rate,
        "vesting": unclaimed * rate,
        "claimable": units * rate,
        "submissions": [submission_view(state, sub, now) for sub in subs],
    }


def standing(account: Account) -> str:
    """What the node may do in the pool: member, ejected, removed, frozen or left."""
    found = standing_of(account)
    words = {
        Standing.EJECTED: f"ejected ({Code(account.eject_code).label}, {ejected_by(account)})",
        Standing.REMOVED: "removed by the pool's owner",
        Standing.FROZEN: "frozen until a rejection is final",
    }
    return words.get(found, str(found))


def submission_view(state: State, sub: Submission, now: int) -> dict[str, Any]:
    """`disputable`: it was refused, and a jury can still be asked."""
    why = reason(state, sub)
    return {
        **picked(sub, "sequence", "step", "counter", "units", "code", "slashed", "time", "tx"),
        "status": str(sub.status),
        "reason": why,
        "final": sub.is_final(now),
        "final_time": sub.final_time,
        "disputable": bool(why) and not sub.disputed and not sub.finalized and now < sub.final_time,
        "waiting": waiting(state, sub, now),
        "sha256": sub.sha256.hex(),
    }
