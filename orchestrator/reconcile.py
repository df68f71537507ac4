"""Does the ledger say what the chain says? Compared at one block, to the last grain."""

from chain.client import ChainClient, View
from chain.indexer.state import State
from chain.suite import Suite
from orchestrator.ledger import escrow, paid_out, rows
from protocol.api.run import Reconciliation

SINK = "0x000000000000000000000000000000000000dEaD"
MOST_FINDINGS = 20


Expected = tuple[str, View, dict[str, int] | int]
"""A name, and what the view returns if the ledger is right: one number, or fields of a struct."""


def reconcile(state: State, pool: int, suite: Suite) -> Reconciliation | None:
    """Compare the state with the chain at the state's block; None if the pool is not on chain yet.

    Raises UnreachableError, or MusterError when the endpoint no longer has that block's state.
    """
    if pool not in state.pools:
        return None
    deposits = sum(one.funded + one.from_stakes for one in state.pools.values())
    gifts = sum(amount for (_, to), amount in state.transfers.items() if to == suite.pools.address) - deposits
    wrong_escrow = _negative_amounts(state, pool, gifts)
    wrong_escrow += _differences(suite.client, _expected_escrow(state, pool, suite, gifts), state.head)
    wrong_ledger = _unmatched_payments(state, _sent(state, suite.pools.address))
    wrong_ledger += _differences(suite.client, _expected_ledger(state, pool, suite), state.head)
    findings = (wrong_escrow + wrong_ledger)[:MOST_FINDINGS]
    return Reconciliation(
        block=state.head,
        ledger_matches_chain=not wrong_ledger,
        escrow_balanced=not wrong_escrow,
        findings=findings,
        gifts=gifts,
    )


def _expected_escrow(state: State, pool: int, suite: Suite, gifts: int) -> list[Expected]:
    held = sum(one.escrow for one in state.pools.values()) + gifts
    return [
        ("tokens held by Pools", suite.token.view("balanceOf", suite.pools.address), held),
        (f"pool {pool}", suite.pools.view("poolOf", pool), {"free": escrow(state, pool).free}),
    ]


def _expected_ledger(state: State, pool: int, suite: Suite) -> list[Expected]:
    expectations: list[Expected] = []
    for (of, node), account in state.accounts.items():
        if of == pool:
            units = {"earned": account.units_earned, "spent": account.units_spent, "pending": account.units_pending}
            fields = units | {"counter": account.counter}
            expectations.append((f"account of {node}", suite.pools.view("accountOf", pool, node), fields))
    owner = state.pools[pool].owner
    for payee in sorted({row.payee for row in rows(state, pool, 0)} | {owner}):
        view = suite.token.view("balanceOf", payee)
        expectations.append((f"balance of {payee}", view, state.balances.get(payee, 0)))
    return expectations


def _negative_amounts(state: State, pool: int, gifts: int) -> list[str]:
    view = escrow(state, pool)
    parts = {"gifts": gifts, "reserved": view.reserved, "unpaid": view.unpaid, "owed fees": view.owed_fees}
    parts |= {"free": view.free}
    return [f"escrow: {name} is {amount}" for name, amount in parts.items() if amount < 0]


def _sent(state: State, address: str) -> dict[str, int]:
    """Receiver → grains that an address ever sent there, by the token's own transfers."""
    return {to: amount for (sender, to), amount in state.transfers.items() if sender == address}


def _unmatched_payments(state: State, transferred: dict[str, int]) -> list[str]:
    """What the pools contract says it paid against what the token says it moved."""
    paid = paid_out(state, "claim", "fee", "leftover")
    burnt = sum(pool.fees_burnt + pool.forfeited for pool in state.pools.values())
    if burnt:
        paid[SINK] = paid.get(SINK, 0) + burnt
    return [
        f"{address} was paid {paid.get(address, 0)} by Pools' events, {transferred.get(address, 0)} by transfers"
        for address in sorted({*paid, *transferred})
        if paid.get(address, 0) != transferred.get(address, 0)
    ]


def _differences(client: ChainClient, expectations: list[Expected], block: int) -> list[str]:
    wrong = []
    answers = client.read_many([view for _, view, _ in expectations], block)
    for (what, _, expected), found in zip(expectations, answers, strict=True):
        if isinstance(expected, int):
            if found != expected:
                wrong.append(f"{what}: {found} on chain, {expected} by the ledger")
            continue
        for field, value in expected.items():
            if found[field] != value:
                wrong.append(f"{what}: {field} is {found[field]} on chain, {value} by the ledger")
    return wrong
