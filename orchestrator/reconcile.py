"""Does the ledger say what the chain says? Compared at one block, to the last grain."""

from dataclasses import asdict, dataclass
from typing import Any

from chain.client import ChainClient, View
from chain.records import Account
from chain.state import State
from chain.suite import Suite
from orchestrator.ledger import escrow, received, rows
from orchestrator.watch import Watch

SINK = "0x000000000000000000000000000000000000dEaD"
MOST_FINDINGS = 20


@dataclass(frozen=True)
class Audit:
    """`ledger_matches_chain`: accounts in the contract, token balances and transfers equal what the events say;
    `escrow_balanced`: the contract holds exactly what all pools need, and this pool's free budget is what is left when
    everything owed is taken off. `findings` name what differs. `block`: where they were compared. `gifts`: grains that
    somebody sent to the contract without funding a pool; nobody can take them."""

    block: int
    ledger_matches_chain: bool
    escrow_balanced: bool
    findings: tuple[str, ...]
    gifts: int = 0

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "findings": list(self.findings)}


@dataclass(frozen=True)
class _Claim:
    """What the ledger says a view returns."""

    what: str
    view: View
    expected: dict[str, int] | int


def audit(watch: Watch, suite: Suite) -> Audit | None:
    """Compare the state with the chain at the state's block; None if the pool is not on chain yet.

    Raises UnreachableError, or MusterError when the endpoint no longer has that block's state.
    """
    with watch.reading() as state:
        if watch.pool(state) is None:
            return None
        block = state.head
        gifts = _received(state, suite.pools.address) - sum(
            pool.funded + pool.from_stakes for pool in state.pools.values()
        )
        books = _escrow_claims(state, watch.pool_id, suite, gifts)
        claims = _ledger_claims(state, watch.pool_id, suite)
        wrong_books = _books(state, watch.pool_id, gifts)
        wrong_flows = _flows(state, _sent(state, suite.pools.address))
    wrong_books += _compare(suite.client, books, block)
    wrong_flows += _compare(suite.client, claims, block)
    findings = tuple((wrong_books + wrong_flows)[:MOST_FINDINGS])
    return Audit(block, not wrong_flows, not wrong_books, findings, gifts)


def _escrow_claims(state: State, pool: int, suite: Suite, gifts: int) -> list[_Claim]:
    held = sum(one.escrow for one in state.pools.values()) + gifts
    return [
        _Claim("tokens held by Pools", suite.token.view("balanceOf", suite.pools.address), held),
        _Claim(f"pool {pool}", suite.pools.view("poolOf", pool), {"free": escrow(state, pool).free}),
    ]


def _ledger_claims(state: State, pool: int, suite: Suite) -> list[_Claim]:
    claims = [
        _Claim(f"account of {account.node}", suite.pools.view("accountOf", pool, account.node), _account(account))
        for (of, _), account in state.accounts.items()
        if of == pool
    ]
    owner = state.pools[pool].owner
    for payee in sorted({row.payee for row in rows(state, pool, 0)} | {owner}):
        view = suite.token.view("balanceOf", payee)
        claims.append(_Claim(f"balance of {payee}", view, state.balances.get(payee, 0)))
    return claims


def _account(account: Account) -> dict[str, int]:
    return {
        "earned": account.units_earned,
        "drawn": account.units_drawn,
        "pending": account.units_pending,
        "counter": account.counter,
    }


def _books(state: State, pool: int, gifts: int) -> list[str]:
    view = escrow(state, pool)
    parts = {"gifts": gifts, "reserved": view.reserved, "unpaid": view.unpaid, "owed fees": view.owed_fees}
    parts["free"] = view.free
    return [f"escrow: {name} is {amount}" for name, amount in parts.items() if amount < 0]


def _received(state: State, address: str) -> int:
    """Grains that an address ever received, by the token's own transfers."""
    return sum(amount for (_, to), amount in state.transfers.items() if to == address)


def _sent(state: State, address: str) -> dict[str, int]:
    """Receiver → grains that an address ever sent there, by the token's own transfers."""
    return {to: amount for (sender, to), amount in state.transfers.items() if sender == address}


def _flows(state: State, transferred: dict[str, int]) -> list[str]:
    """What the pools contract says it paid against what the token says it moved."""
    paid = received(state)
    burnt = sum(pool.fees_burnt for pool in state.pools.values())
    if burnt:
        paid[SINK] = paid.get(SINK, 0) + burnt
    return [
        f"{address} was paid {paid.get(address, 0)} by Pools' events, {transferred.get(address, 0)} by transfers"
        for address in sorted({*paid, *transferred})
        if paid.get(address, 0) != transferred.get(address, 0)
    ]


def _compare(client: ChainClient, claims: list[_Claim], block: int) -> list[str]:
    wrong = []
    for claim, found in zip(claims, client.read_many([claim.view for claim in claims], block), strict=True):
        if isinstance(claim.expected, int):
            if found != claim.expected:
                wrong.append(f"{claim.what}: {found} on chain, {claim.expected} by the ledger")
            continue
        for field, expected in claim.expected.items():
            if found[field] != expected:
                wrong.append(f"{claim.what}: {field} is {found[field]} on chain, {expected} by the ledger")
    return wrong
