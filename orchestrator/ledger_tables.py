"""The ledger as tables: who contributed what, what became of it, who judged, was slashed and paid. Pure.

Amounts are grains (`*_grains`), times Unix seconds, hashes hex without 0x.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from chain.indexer.records import Status, Submission
from chain.indexer.state import State
from orchestrator.ledger import rows
from protocol.verdict import Code

Row = dict[str, Any]


def tables(state: State, pool: int, now: int) -> dict[str, Iterable[Row]]:
    """Every table by its name; `now` is chain time. Raises KeyError if the pool is not in the state."""
    return {name: make(state, pool, now) for name, make in _TABLES.items()}


def _accounts(state: State, pool: int, now: int) -> Iterator[Row]:
    """What each node and each owner of seats earned, and where it is."""
    for entry in rows(state, pool, now):
        fields = {"address": entry.address, "role": entry.role, "payee": entry.payee}
        amounts = ("earned", "pending", "locked", "vested", "claimed", "fees", "slashed")
        yield fields | {f"{name}_grains": getattr(entry, name) for name in amounts}


def _contributions(state: State, pool: int, now: int) -> Iterator[Row]:
    """Files and output tokens by operator, node and policy step."""
    found: dict[tuple[str, str, int], list[Submission]] = defaultdict(list)
    for file in state.submissions_of(pool):
        found[state.accounts[pool, file.node].operator, file.node, file.step].append(file)
    rate = state.pools[pool].terms.rate
    for (operator, node, step), files in sorted(found.items()):
        accepted = [file for file in files if file.status is Status.ACCEPTED]
        units = sum(file.units for file in accepted)
        yield {
            "operator": operator,
            "node": node,
            "step": step,
            "files": len(files),
            "accepted": len(accepted),
            "pending": sum(file.status is Status.PENDING for file in files),
            "units": units,
            "pay_grains": units * rate,
        }


def _submissions(state: State, pool: int, now: int) -> Iterator[Row]:
    """Every file and its outcome, as it stands."""
    rate = state.pools[pool].terms.rate
    for file in state.submissions_of(pool):
        yield {
            "sequence": file.sequence,
            "node": file.node,
            "step": file.step,
            "counter": file.counter,
            "units": file.units,
            "rows": file.rows,
            "sha256": file.sha256.hex(),
            "root": file.root.hex(),
            "status": file.status.value,
            "reason": Code(file.code).label if file.code else "",
            "final": file.is_final(now),
            "pay_grains": file.units * rate if file.is_paid and not file.forfeited else 0,
            "submitted": file.time,
            "decided": file.decided_time,
            "block": file.block,
            "tx": file.tx,
        }


def _votes(state: State, pool: int, now: int) -> Iterator[Row]:
    """Every opened vote on every file, and the outcome that its committee gave it."""
    for file in state.submissions_of(pool):
        for one in state.lane_of(file).rounds:
            for member, (_, digest) in sorted(one.reveals.items()):
                yield {
                    "sequence": file.sequence,
                    "round": one.round,
                    "seat": one.seats[member],
                    "owner": state.seats[one.seats[member]].owner,
                    "vote": one.code_at(file.place, member).label,
                    "outcome": Code(file.votes_code).label if file.votes_code else "",
                    "verdict": digest.hex(),
                }


def _slashes(state: State, pool: int, now: int) -> Iterator[Row]:
    for one in state.slashes:
        if one.pool == pool:
            what = {"kind": one.kind, "who": one.who, "sequence": one.sequence}
            reason = Code(one.code).label if one.code else "vote"
            yield what | {
                "reason": reason,
                "amount_grains": one.amount,
                "block": one.block,
                "time": one.time,
                "tx": one.tx,
            }


def _disputes(state: State, pool: int, now: int) -> Iterator[Row]:
    for (of, sequence), one in state.disputes.items():
        if of == pool:
            yield {
                "sequence": sequence,
                "disputer": one.disputer,
                "trial": one.trial,
                "deposit_grains": one.deposit,
                "resolved": one.resolved,
                "overturned": one.overturned,
                "outcome": Code(one.code).label if one.resolved else "",
                "reward_grains": one.reward,
                "time": one.time,
            }


def _payouts(state: State, pool: int, now: int) -> Iterator[Row]:
    for one in state.payments:
        if one.pool == pool:
            what = {"kind": one.kind, "to": one.to, "node": one.node, "units": one.units}
            yield what | {"amount_grains": one.amount, "block": one.block, "time": one.time, "tx": one.tx}


_TABLES: dict[str, Callable[[State, int, int], Iterator[Row]]] = {
    "accounts": _accounts,
    "contributions": _contributions,
    "submissions": _submissions,
    "votes": _votes,
    "slashes": _slashes,
    "disputes": _disputes,
    "payouts": _payouts,
}
NAMES = tuple(_TABLES)
