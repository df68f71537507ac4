"""The ledger: base units neither appear nor vanish, whatever becomes of a file."""

from hypothesis import given, settings
from hypothesis import strategies as st

from chain.indexer.reducers import replay
from orchestrator.ledger import escrow, rows
from protocol.verdict import Code
from tests.orchestrator.chain import CHEAT, COMMITTEE, FEE, NODE, RATE, VOTER, WINDOW, ScriptedChain

FEES = FEE * COMMITTEE
BUDGET = 10_000_000


class Budget:
    """The contract's own account of the free budget, as contracts/src/pools keeps it."""

    def __init__(self) -> None:
        self.free = BUDGET

    def submitted(self, units: int) -> None:
        self.free -= units * RATE + FEES

    def returned(self, code: Code, units: int, fees_from_stake: int) -> None:
        if code in (Code.VOID, Code.LATE):
            self.free += units * RATE + FEES
        elif code is Code.UNAVAILABLE:
            self.free += FEES - COMMITTEE * (FEE >> 2)
        elif not code.is_paid:
            self.free += units * RATE + fees_from_stake


REFUNDED = (Code.VOID, Code.LATE)
outcomes = st.sampled_from(
    [Code.NONE, Code.ACCEPT, Code.UNSURE, Code.MALFORMED, Code.UNAVAILABLE, Code.CANARY, Code.REJECT_WEIGHTS, *REFUNDED]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(outcomes, st.integers(1, 5000), st.booleans(), st.booleans()), max_size=12))
def test_free_budget_follows_from_the_events_alone(files: list[tuple[Code, int, bool, bool]]) -> None:
    chain, budget = ScriptedChain(), Budget()
    chain.create(BUDGET)
    chain.join(NODE)
    chain.publish(0)
    claimable = 0
    for counter, (code, units, final, close) in enumerate(files):
        sequence = chain.submit(NODE, counter, units=units)
        budget.submitted(units)
        if code is Code.NONE:
            continue
        chain.settle(NODE, sequence, code, units)
        quarter = FEE >> 2 if code is Code.UNAVAILABLE else FEE
        if code.is_paid:
            claimable += units
        if code in REFUNDED:
            budget.returned(code, units, 0)
        elif final and not code.is_accept:
            fees = 0 if code in (Code.CANARY, Code.UNAVAILABLE) else FEES
            chain.finalize(NODE, sequence, code, fees, fees)
            budget.returned(code, units, fees)
        if final and code is Code.LATE:
            chain.finalize(NODE, sequence, code, 7, 0)
        if close and code not in REFUNDED and (final or code.is_accept):
            chain.fee(VOTER, 2 * quarter, quarter)
    if claimable:
        chain.claim(NODE, claimable)
    view = escrow(replay(chain.events), 1)
    assert view.free == budget.free
    assert min(view.reserved, view.unpaid, view.owed_fees) >= 0
    assert view.funded + view.recovered == (
        view.free + view.reserved + view.unpaid + view.owed_fees + view.claimed + view.fees + view.burnt + view.refunded
    )


def test_pay_is_locked_until_it_vests_and_then_claimable() -> None:
    chain = ScriptedChain()
    chain.create()
    chain.join(NODE)
    chain.publish(0)
    first = chain.submit(NODE, 0, units=100)
    chain.submit(NODE, 1, units=30)
    chain.settle(NODE, first, Code.ACCEPT, 100)
    settled = 1000 + chain.head
    state = replay(chain.events)
    early, late = (rows(state, 1, settled + seconds)[0] for seconds in (WINDOW - 1, WINDOW))
    assert (early.earned, early.pending, early.locked, early.vested) == (1000, 300, 1000, 0)
    assert (late.locked, late.vested, late.claimed) == (0, 1000, 0)
    chain.claim(NODE, 100)
    paid = rows(replay(chain.events), 1, settled + WINDOW)[0]
    assert (paid.locked, paid.vested, paid.claimed) == (0, 0, 1000)


def test_a_slashed_node_keeps_what_vested_before_and_loses_the_rest() -> None:
    chain = ScriptedChain()
    chain.create()
    chain.join(CHEAT)
    chain.publish(0)
    good, late, bad = (chain.submit(CHEAT, n, units=100) for n in range(3))
    chain.settle(CHEAT, good, Code.ACCEPT)
    chain.head += WINDOW
    chain.settle(CHEAT, late, Code.ACCEPT)
    chain.settle(CHEAT, bad, Code.REJECT_WEIGHTS)
    chain.head += WINDOW
    chain.finalize(CHEAT, bad, Code.REJECT_WEIGHTS, taken=5000, fees=FEES)
    row = rows(replay(chain.events), 1, 1000 + chain.head)[0]
    assert row.vested == 1000
    assert row.locked == 1000
    assert row.slashed == 5000
    before = escrow(replay(chain.events), 1)
    chain.emit("Pools", "FileForfeited", pool=1, node=CHEAT.address, sequence=late, amount=1000)
    row = rows(replay(chain.events), 1, 1000 + chain.head)[0]
    assert (row.earned, row.vested, row.locked) == (1000, 1000, 0)
    after = escrow(replay(chain.events), 1)
    assert (after.held, after.burnt, after.free) == (before.held - 1000, 1000, before.free)


def test_validators_fees_are_rows_of_their_own() -> None:
    chain = ScriptedChain()
    chain.create()
    chain.seat(VOTER)
    chain.fee(VOTER, 700, 0)
    chain.emit("Seats", "SeatPenalised", seat=1, amount=50, bond=8950)
    (row,) = rows(replay(chain.events), 1, 0)
    assert (row.address, row.role, row.fees, row.slashed) == (VOTER.address, "validator", 700, 50)
