"""The contribution ledger of one pool: who earned, was paid, was slashed, and where every grain of its escrow is.

Pure functions of the projected state, which follows from events alone. `orchestrator/reconcile.py` compares their
results with the contracts' own accounts and with token balances.
"""

from collections import Counter
from dataclasses import dataclass
from operator import add, sub

from chain.indexer.records import Account, Pool, Status, Submission
from chain.indexer.state import State
from protocol.api.run import EscrowEntry, LedgerEntry

_REFUNDED = (Status.VOID, Status.LATE)
"""Pay and fees of these went back to the budget when they were settled."""


@dataclass(frozen=True)
class FileSums:
    """What files add up to: output tokens whose pay is `reserved`, those whose pay is or was owed (`earned`), and files
    for which a committee's members earn a whole fee (`judged`) or that of an attempt (`missed`)."""

    reserved: int = 0
    earned: int = 0
    judged: int = 0
    missed: int = 0

    def __add__(self, other: "FileSums") -> "FileSums":
        return FileSums(*map(add, vars(self).values(), vars(other).values()))

    def __sub__(self, other: "FileSums") -> "FileSums":
        return FileSums(*map(sub, vars(self).values(), vars(other).values()))


def sums_of(file: Submission) -> FileSums:
    """Of one file."""
    if file.status in _REFUNDED:
        return FileSums()
    missed = int(file.status is Status.UNAVAILABLE and file.finalized)
    earned = file.units if file.is_paid and not file.forfeited else 0
    reserved = 0 if file.is_paid or file.finalized else file.units
    return FileSums(reserved, earned, judged=1 - missed, missed=missed)


def escrow(state: State, pool_id: int, sums: FileSums | None = None) -> EscrowEntry:
    """The pool's escrow; `sums` of its files where they are known. KeyError if the pool is not in the state."""
    pool = state.pools[pool_id]
    if sums is None:
        sums = sum(map(sums_of, state.submissions_of(pool_id)), FileSums())
    reserved = sums.reserved * pool.terms.rate
    unpaid = sums.earned * pool.terms.rate - pool.claimed
    # A committee earns a quarter for a file it could not fetch (contracts/src/libraries/Reckoning.sol).
    fees = (sums.judged * pool.terms.fee + sums.missed * (pool.terms.fee >> 2)) * pool.terms.committee
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
