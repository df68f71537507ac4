"""The contribution ledger of one pool: who earned, was paid, was slashed, and where every base unit of its escrow is.
All but `reconcile` are pure functions of the projected state, which follows from events alone."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from chain.client import ChainClient, View
from chain.contracts import account_fields, pool_fields
from chain.indexer.records import Status, Submission
from chain.indexer.state import State
from chain.suite import Suite
from protocol.api.run import EscrowEntry, LedgerEntry, Reconciliation
from protocol.verdict import Code

_ROUNDS = 2
"""Committees whose fees a submission reserves."""


def label(code: int) -> str:
    """Return an outcome code in words; empty for none."""
    return Code(code).label if code else ""


def sums_of(files: Iterable[Submission]) -> Counter[str]:
    """Return what files add up to: output tokens whose pay is `reserved`, those whose pay is or was owed (`earned`),
    and how many committees' members are, or may be, due a fee for them (`judged`)."""
    reserved = earned = judged = 0
    for file in files:  # of a large pool 100,000: a Counter for each would take a second
        if file.is_paid:
            earned += 0 if file.forfeited else file.units
        elif not file.finalized:
            reserved += file.units
        judged += _ROUNDS if file.status is Status.PENDING else file.committees
    return Counter(reserved=reserved, earned=earned, judged=judged)


def escrow(state: State, pool_id: int, sums: Counter[str] | None = None) -> EscrowEntry:
    """Return the pool's escrow; `sums` of its files, where known. Raises KeyError if the pool is not in the state."""
    pool = state.pools[pool_id]
    if sums is None:
        sums = sums_of(state.submissions_of(pool_id))
    reserved = sums["reserved"] * pool.terms.rate
    unpaid = sums["earned"] * pool.terms.rate - pool.claimed
    # What of it a committee does not earn is burnt (contracts/src/libraries/Reckoning.sol).
    owed_fees = sums["judged"] * pool.terms.fee * pool.terms.committee - pool.fees_paid - pool.fees_burnt
    return EscrowEntry(
        funded=pool.funded,
        recovered=pool.from_stakes,
        reserved=reserved,
        unpaid=unpaid,
        owed_fees=owed_fees,
        claimed=pool.claimed,
        fees=pool.fees_paid + pool.juries_paid,
        burnt=pool.fees_burnt + pool.forfeited,
        refunded=pool.leftover,
        free=pool.escrow - reserved - unpaid - owed_fees,
        held=pool.escrow,
    )


def rows(state: State, pool_id: int, now: int) -> list[LedgerEntry]:
    """Return one row per node that joined the pool, then one per seat owner. `now` is chain time."""
    rate, entries = state.pools[pool_id].terms.rate, []
    for (of, _), account in state.accounts.items():
        if of == pool_id:
            vested = state.claimable_units(pool_id, account.node, now)
            entries.append(
                LedgerEntry(
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
            )
    fees, lost = fees_paid(state, pool_id), penalties(state, pool_id)
    return entries + [
        LedgerEntry(
            address=owner, role="validator", payee=owner, earned=fees[owner], fees=fees[owner], slashed=lost[owner]
        )
        for owner in sorted({*fees, *(seat.owner for seat in state.seats.values())})
    ]


def fees_paid(state: State, pool_id: int) -> Counter[str]:
    """Return owner of seats → base units that it was paid for votes in committees and juries of the pool."""
    return paid_out(state, "fee", "jury", pool_id=pool_id)


def penalties(state: State, pool_id: int) -> Counter[str]:
    """Return owner of seats → base units that its seats lost in the pool."""
    out = Counter[str]()
    for slash in state.slashes:
        if slash.kind == "seat" and slash.pool == pool_id:
            out[state.seats[int(slash.who)].owner] += slash.amount
    return out


def paid_out(state: State, *kinds: str, pool_id: int | None = None) -> Counter[str]:
    """Return address → base units of all payments of these kinds to it, over all pools unless one is named."""
    out = Counter[str]()
    for (kind, to, pool), amount in state.paid.items():
        if kind in kinds and pool_id in (None, pool):
            out[to] += amount
    return out


# the ledger as tables

# Amounts are base units (`*_base_units`), times Unix seconds, hashes hex without 0x.
Row = dict[str, Any]


def tables(state: State, pool: int, now: int) -> dict[str, Iterable[Row]]:
    """Return every table by its name; `now` is chain time. Raises KeyError if the pool is not in the state."""
    return {name: make(state, pool, now) for name, make in _TABLES.items()}


def _copied(record: Any, *names: str) -> Row:
    return {name: getattr(record, name) for name in names}


def _accounts(state: State, pool: int, now: int) -> Iterator[Row]:
    """Yield what each node and each owner of seats earned, and where it is."""
    for entry in rows(state, pool, now):
        amounts = _copied(entry, "earned", "pending", "locked", "vested", "claimed", "fees", "slashed")
        yield _copied(entry, "address", "role", "payee") | {
            f"{name}_base_units": value for name, value in amounts.items()
        }


def _contributions(state: State, pool: int, now: int) -> Iterator[Row]:
    """Yield files and output tokens by operator, node and policy step."""
    files_by: dict[tuple[str, str, int], list[Submission]] = defaultdict(list)
    for file in state.submissions_of(pool):
        files_by[state.accounts[pool, file.node].operator, file.node, file.step].append(file)
    for (operator, node, step), files in sorted(files_by.items()):
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
            "pay_base_units": units * state.pools[pool].terms.rate,
        }


def _submissions(state: State, pool: int, now: int) -> Iterator[Row]:
    """Yield every file and its present outcome."""
    rate = state.pools[pool].terms.rate
    for file in state.submissions_of(pool):
        yield _copied(file, "sequence", "node", "step", "counter", "units", "rows") | {
            "sha256": file.sha256.hex(),
            "root": file.root.hex(),
            "status": file.status.value,
            "reason": label(file.code),
            "final": file.is_final(now),
            "pay_base_units": file.units * rate if file.is_paid and not file.forfeited else 0,
            "submitted": file.time,
            "decided": file.decided_time,
            "block": file.block,
            "tx": file.tx,
        }


def _votes(state: State, pool: int, now: int) -> Iterator[Row]:
    """Yield every revealed vote on every file, and the outcome that its committee gave it."""
    for file in state.submissions_of(pool):
        for voting_round in state.lane_of(file).rounds:
            for member, (_, digest) in sorted(voting_round.reveals.items()):
                seat = voting_round.seats[member]
                yield {
                    "sequence": file.sequence,
                    "round": voting_round.round,
                    "seat": seat,
                    "owner": state.seats[seat].owner,
                    "vote": voting_round.code_at(file.place, member).label,
                    "outcome": label(file.votes_code),
                    "verdict": digest.hex(),
                }


def _slashes(state: State, pool: int, now: int) -> Iterator[Row]:
    for slash in state.slashes:
        if slash.pool == pool:
            derived = {"reason": label(slash.code) or "vote", "amount_base_units": slash.amount}
            yield _copied(slash, "kind", "who", "sequence") | derived | _copied(slash, "block", "time", "tx")


def _disputes(state: State, pool: int, now: int) -> Iterator[Row]:
    for dispute in state.disputes.values():
        if dispute.pool == pool:
            yield _copied(dispute, "sequence", "disputer", "trial") | {
                "deposit_base_units": dispute.deposit,
                "resolved": dispute.resolved,
                "overturned": dispute.overturned,
                "outcome": Code(dispute.code).label if dispute.resolved else "",
                "reward_base_units": dispute.reward,
                "time": dispute.time,
            }


def _payouts(state: State, pool: int, now: int) -> Iterator[Row]:
    for payment in state.all_payments():
        if payment.pool == pool:
            amount = {"amount_base_units": payment.amount}
            yield _copied(payment, "kind", "to", "node", "units") | amount | _copied(payment, "block", "time", "tx")


_MAKERS = (_accounts, _contributions, _submissions, _votes, _slashes, _disputes, _payouts)
_TABLES: dict[str, Callable[[State, int, int], Iterator[Row]]] = {make.__name__[1:]: make for make in _MAKERS}
NAMES = tuple(_TABLES)


# the ledger against the chain

SINK = "0x000000000000000000000000000000000000dEaD"
MOST_FINDINGS = 20
# A name, and what the view returns if the ledger is right: one number, or fields of a struct.
Expected = tuple[str, View, dict[str, int] | int]


def reconcile(state: State, pool: int, suite: Suite) -> Reconciliation | None:
    """Compare state and chain at the state's block; None if the pool is not on chain. Raises UnreachableError, or
    MusterError when the endpoint no longer has that block's state."""
    if pool not in state.pools:
        return None
    deposits = sum(other.funded + other.from_stakes for other in state.pools.values())
    gifts = sum(amount for (_, to), amount in state.transfers.items() if to == suite.pools.address) - deposits
    wrong_escrow = _escrow_findings(state, pool, suite, gifts)
    wrong_ledger = _unmatched_payments(state, suite.pools.address) + _account_findings(state, pool, suite)
    return Reconciliation(
        block=state.head,
        ledger_matches_chain=not wrong_ledger,
        escrow_balanced=not wrong_escrow,
        findings=(wrong_escrow + wrong_ledger)[:MOST_FINDINGS],
        gifts=gifts,
    )


def _escrow_findings(state: State, pool: int, suite: Suite, gifts: int) -> list[str]:
    """Return which part of the pool's escrow is negative, and where Pools holds other amounts than the ledger says."""
    entry = escrow(state, pool)
    parts = {"gifts": gifts, "reserved": entry.reserved, "unpaid": entry.unpaid, "owed fees": entry.owed_fees}
    parts |= {"free": entry.free}
    balance = sum(other.escrow for other in state.pools.values()) + gifts
    balance += sum(seat.fees for seat in state.seats.values())
    expected: list[Expected] = [
        ("tokens held by Pools", suite.token.view("balanceOf", suite.pools.address), balance),
        (f"pool {pool}", suite.pools.view("poolOf", pool), {"free": entry.free}),
    ]
    negative = [f"escrow: {name} is {amount}" for name, amount in parts.items() if amount < 0]
    return negative + _differences(suite.client, expected, state.head)


def _account_findings(state: State, pool: int, suite: Suite) -> list[str]:
    """Return where the pool's accounts, or the tokens of those that it pays, differ on chain from the ledger."""
    expected: list[Expected] = []
    for account in state.accounts.values():
        if account.pool == pool:
            units = {"earned": account.units_earned, "spent": account.units_spent, "pending": account.units_pending}
            on_chain = suite.pools.view("accountOf", pool, account.node)
            expected.append((f"account of {account.node}", on_chain, units | {"counter": account.counter}))
    for payee in sorted({row.payee for row in rows(state, pool, 0)} | {state.pools[pool].owner}):
        balance = state.balances.get(payee, 0)
        expected.append((f"balance of {payee}", suite.token.view("balanceOf", payee), balance))
    return _differences(suite.client, expected, state.head)


def _unmatched_payments(state: State, pools: str) -> list[str]:
    """Return where payments by the events of Pools, at that address, differ from the token's transfers."""
    transferred = Counter({to: amount for (sender, to), amount in state.transfers.items() if sender == pools})
    paid = paid_out(state, "claim", "fee", "juries", "leftover")
    for seat in state.seats.values():
        paid[seat.owner] -= seat.fees
    if burnt := sum(pool.fees_burnt + pool.forfeited for pool in state.pools.values()):
        paid[SINK] += burnt
    return [
        f"{address} was paid {paid[address]} by Pools' events, {transferred[address]} by transfers"
        for address in sorted({*paid, *transferred})
        if paid[address] != transferred[address]
    ]


def _differences(client: ChainClient, expectations: list[Expected], block: int) -> list[str]:
    wrong = []
    answers = client.read_many([view for _, view, _ in expectations], block)
    for (what, _, expected), answer in zip(expectations, answers, strict=True):
        if isinstance(expected, int):
            if answer != expected:
                wrong.append(f"{what}: {answer} on chain, {expected} by the ledger")
            continue
        fields = account_fields(answer) if isinstance(answer, int) else pool_fields(answer)
        for field, value in expected.items():
            if fields[field] != value:
                wrong.append(f"{what}: {field} is {fields[field]} on chain, {value} by the ledger")
    return wrong
