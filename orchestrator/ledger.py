"""The contribution ledger of one pool: who earned, was paid, was slashed, and where every grain of its escrow is.

Pure functions of the projected state, which follows from events alone. `orchestrator/reconcile.py` compares their
results with the contracts' own accounts and with token balances.
"""

from collections import Counter

from chain.records import Account, Pool, Status, Submission
from chain.state import State
from protocol.api.run import EscrowEntry, LedgerEntry

_REFUNDED = (Status.VOID, Status.LATE)
"""Pay and fees of these went back to the budget when they were settled."""


def escrow(state: State, pool_id: int) -> EscrowEntry:
    """The pool's escrow; KeyError if the pool is not in the state."""
    pool = state.pools[pool_id]
    reserved = unpaid = fees = 0
    for sub in state.submissions_of(pool_id):
        pay = sub.units * pool.terms.rate
        if sub.is_paid:
            unpaid += 0 if sub.forfeited else pay
        elif not sub.finalized and sub.status not in _REFUNDED:
            reserved += pay
        fees += _committee_share(pool, sub)
    unpaid -= pool.claimed
    owed_fees = fees - pool.fees_paid - pool.fees_burnt
    return EscrowEntry(
        funded=pool.funded,
        recovered=pool.from_stakes,
        reserved=reserved,
        unpaid=unpaid,
        owed_fees=owed_fees,
        claimed=pool.claimed,
        fees=pool.fees_paid,
        burnt=pool.fees_burnt + pool.forfeited,
        refunded=pool.leftover,
        free=pool.escrow - reserved - unpaid - owed_fees,
        held=pool.escrow,
    )


def _committee_share(pool: Pool, sub: Submission) -> int:
    if sub.status in _REFUNDED:
        return 0
    # A committee earns a quarter for a file it could not fetch (contracts/src/libraries/Reckoning.sol).
    attempt = sub.status is Status.UNAVAILABLE and sub.finalized
    return (pool.terms.fee >> 2 if attempt else pool.terms.fee) * pool.terms.committee


def rows(state: State, pool_id: int, now: int) -> list[LedgerEntry]:
    """One row per node that joined the pool, then one per seat owner; `now` is chain time."""
    pool = state.pools[pool_id]
    accounts = [account for (of, _), account in state.accounts.items() if of == pool_id]
    return [_worker(state, pool, account, now) for account in accounts] + _validators(state, pool_id)


def _worker(state: State, pool: Pool, account: Account, now: int) -> LedgerEntry:
    rate = pool.terms.rate
    vested = state.claimable_units(account.pool, account.node, now)
    return LedgerEntry(
        address=account.node,
        role="worker",
        payee=account.operator,
        earned=account.units_awarded * rate,
        pending=account.units_pending * rate,
        locked=(account.units_awarded - vested) * rate - account.paid,
        vested=vested * rate,
        claimed=account.paid,
        slashed=account.slashed,
    )


def _validators(state: State, pool_id: int) -> list[LedgerEntry]:
    fees, slashed = fees_paid(state, pool_id), Counter[str]()
    for seat in state.seats.values():
        slashed[seat.owner] += seat.penalised
    return [
        LedgerEntry(address=one, role="validator", payee=one, earned=fees[one], fees=fees[one], slashed=slashed[one])
        for one in sorted({*slashed, *fees})
    ]


def fees_paid(state: State, pool_id: int) -> Counter[str]:
    """Owner of seats → grains that it was paid for votes in committees and juries of the pool."""
    return paid_out(state, "fee", "jury", pool_id=pool_id)


def paid_out(state: State, *kinds: str, pool_id: int | None = None) -> Counter[str]:
    """Address → grains of all payments of these kinds to it, over all pools unless one is named."""
    out = Counter[str]()
    for payment in state.payments:
        if payment.kind in kinds and pool_id in (None, payment.pool):
            out[payment.to] += payment.amount
    return out
