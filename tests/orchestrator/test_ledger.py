"""The ledger: base units neither appear nor vanish, whatever becomes of a file."""

import csv
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chain.indexer.follower import Follower
from chain.indexer.projection import Projection
from chain.indexer.records import Status, Submission
from cli.audit.ledger import write_table
from orchestrator.chain import PoolView
from orchestrator.ledger import NAMES, escrow, reconcile, rows, tables
from protocol.accounts import LocalAccount
from protocol.api.run import EscrowEntry, Reconciliation
from protocol.errors import ConfigError
from protocol.verdict import Code
from tests.chain.game import FEE as GAME_FEE
from tests.chain.game import RATE as GAME_RATE
from tests.chain.game import Game, begin, work
from tests.conftest import Deployed
from tests.orchestrator.chain import CHEAT, COMMITTEE, FEE, NODE, RATE, VOTER, WINDOW, replay, started

FEES = FEE * COMMITTEE
BUDGET = 10_000_000


class Budget:
    """The contract's own account of the free budget, as contracts/src/pools keeps it."""

    def __init__(self) -> None:
        self.free = BUDGET

    def submitted(self, units: int) -> None:
        self.free -= units * RATE + 2 * FEES

    def settled(self) -> None:
        """The fees of the second committee go back."""
        self.free += FEES

    def returned(self, code: Code, units: int, fees_from_stake: int) -> None:
        if not code.is_paid:
            self.free += units * RATE + fees_from_stake


PAID = (Code.ACCEPT, Code.UNSURE, Code.UNAVAILABLE, Code.VOID)
outcomes = st.sampled_from([Code.NONE, *PAID, Code.MALFORMED, Code.CANARY, Code.REJECT_WEIGHTS])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(outcomes, st.integers(1, 5000), st.booleans(), st.booleans()), max_size=12))
def test_free_budget_follows_from_the_events_alone(files: list[tuple[Code, int, bool, bool]]) -> None:
    chain, budget, claimable = started(NODE, budget=BUDGET), Budget(), 0
    for counter, (code, units, final, close) in enumerate(files):
        sequence = chain.submit(NODE, counter, units=units)
        budget.submitted(units)
        if code is Code.NONE:
            continue
        chain.settle(NODE, sequence, code, units)
        budget.settled()
        if code.is_paid:
            claimable += units
        if final and not code.is_paid:
            fees = 0 if code is Code.CANARY else FEES
            chain.finalize(NODE, sequence, code, fees, fees)
            budget.returned(code, units, fees)
        if close and (final or code.is_paid):
            chain.fee(2 * FEE, FEE)
    if claimable:
        chain.claim(NODE, claimable)
    view = escrow(replay(chain.events), 1)
    assert view.free == budget.free
    assert min(view.reserved, view.unpaid, view.owed_fees) >= 0
    assert view.funded + view.recovered == (
        view.free + view.reserved + view.unpaid + view.owed_fees + view.claimed + view.fees + view.burnt + view.refunded
    )


def test_pay_is_locked_until_it_vests_and_then_claimable() -> None:
    chain = started(NODE)
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
    chain = started(CHEAT)
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


def test_validators_fees_and_penalties_in_this_pool_are_rows_of_their_own() -> None:
    chain = started(NODE, voters=[VOTER])
    chain.settle(NODE, chain.submit(NODE, 0), Code.ACCEPT)
    chain.fee(700, 0)
    chain.create(pool=2)
    for pool, amount in ((1, 50), (2, 60)):
        chain.emit("Court", "MemberAbsent", ballot=pool << 64 | 1 << 16, penalty=amount)
        chain.emit("Seats", "SeatPenalised", seat=1, amount=amount, bond=9000 - amount)
    (row,) = [row for row in rows(replay(chain.events), 1, 0) if row.role == "validator"]
    assert (row.address, row.role, row.fees, row.slashed) == (VOTER.address, "validator", 700, 50)


# The ledger's tables say what the events say, and files keep amounts to the last base unit.


def test_every_table_follows_from_the_events() -> None:
    chain = started(NODE, CHEAT)
    chain.settle(NODE, chain.submit(NODE, 0, units=70), Code.ACCEPT, units=70)
    forged = chain.submit(CHEAT, 0)
    chain.settle(CHEAT, forged, Code.REJECT_WEIGHTS)
    chain.finalize(CHEAT, forged, Code.REJECT_WEIGHTS, 5000, 3003)
    chain.submit(NODE, 1)
    chain.claim(NODE, 70)
    state = replay(chain.history())
    found = {name: list(rows) for name, rows in tables(state, 1, 10_000).items()}
    assert tuple(found) == NAMES
    files = found["submissions"]
    assert [(one["node"], one["status"], one["pay_base_units"]) for one in files] == [
        (NODE.address, "accepted", 70 * RATE),
        (CHEAT.address, "rejected", 0),
        (NODE.address, "pending", 0),
    ]
    assert files[1]["reason"] == "reject: weights"
    by_node = {one["node"]: (one["files"], one["accepted"], one["pending"]) for one in found["contributions"]}
    assert by_node == {NODE.address: (2, 1, 1), CHEAT.address: (1, 0, 0)}
    assert [(one["kind"], one["amount_base_units"]) for one in found["payouts"]] == [("claim", 70 * RATE)]
    assert [(one["who"], one["amount_base_units"]) for one in found["slashes"]] == [(CHEAT.address, 5000)]
    claimed = sum(one["claimed_base_units"] for one in found["accounts"])
    assert claimed == escrow(state, 1).claimed == 70 * RATE


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_amounts_stay_exact_in_files(tmp_path: Path, ending: str) -> None:
    path, huge = tmp_path / f"table.{ending}", 2**100 + 1
    first = {"node": "a", "final": True, "step": 3, "pay_base_units": huge}
    rows = [first, {"node": "b", "final": False, "step": 4, "pay_base_units": 0}]
    assert write_table(path, rows) == 2
    if ending == "csv":
        with path.open() as file:
            assert [int(row["pay_base_units"]) for row in csv.DictReader(file)] == [huge, 0]
    else:
        assert json.loads(path.read_text()) == rows


def test_an_unknown_format_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"table.xlsx names no format; end it in .csv or .json"):
        write_table(tmp_path / "table.xlsx", [])


# Ledger and escrow against a real chain: every kind of outcome, and differences that must be found.


@dataclass
class Audit:
    """A game whose ledger is compared with its chain."""

    game: Game
    view: PoolView

    def compare(self) -> Reconciliation:
        self.view.refresh()
        found = reconcile(self.view.state, self.game.pool, self.game.suite)
        assert found is not None
        return found

    def agree(self) -> EscrowEntry:
        """Assert that nothing differs; return the escrow."""
        assert self.compare().findings == []
        return escrow(self.view.state, self.game.pool)

    def submit(self, name: str = "file", units: int = 1000, node: LocalAccount | None = None) -> Submission:
        """A file of step 0, by a new node unless one is given that joined before it."""
        game, maker = self.game, node or self.game.node()[1]
        if not game.state.pools[game.pool].steps:
            game.publish()
        return game.submit(maker, 0, work(name, units))

    def finalize(self, file: Submission) -> EscrowEntry:
        self.game.suite.pools.finalize(self.game.state.submissions[file.pool, file.sequence]).send()
        return self.agree()

    def close_committee(self) -> EscrowEntry:
        self.game.suite.court.close_committee(self.game.pool, 0, 0).send()
        return self.agree()

    def claim(self, node: str) -> int:
        hint = self.game.state.claim_hint(self.game.pool, node, self.game.suite.client.now())
        assert hint is not None
        paid = self.game.suite.pools.claim(hint).send()
        self.agree()
        return paid


@pytest.fixture
def audit(deployed: Deployed, tmp_path: Path) -> Audit:
    game = begin(deployed, tmp_path)
    follower = Follower(game.suite.client, deployed.deployment, tmp_path / "orchestrator.db")
    return Audit(game, PoolView(Projection(follower), game.pool, 1))


def test_the_ledger_equals_the_chain_through_every_outcome(audit: Audit) -> None:
    game = audit.game
    (operator, node), (_, second) = game.node(), game.node()
    codes = {0: Code.ACCEPT, 1: Code.UNSURE, 2: Code.MALFORMED, 3: Code.UNAVAILABLE, 4: Code.REJECT_WEIGHTS}
    made = [(node if i < 4 else second, work(f"file {i}", 1000 + i)) for i in range(5)]
    files = game.submit_lane(game.publish(), *made)
    audit.agree()
    game.vote(0, {place: int(code) for place, code in codes.items()})
    audit.agree()
    game.deployed.chain.later(61)
    for place in (2, 4):
        audit.finalize(files[place])
    audit.close_committee()
    assert audit.claim(node.address) == 3004 * GAME_RATE
    done = audit.compare()
    assert (done.ledger_matches_chain, done.escrow_balanced, done.findings) == (True, True, [])
    by_node = {row.address: row for row in rows(audit.view.state, game.pool, 2**40) if row.role == "worker"}
    assert by_node[node.address].claimed == 3004 * GAME_RATE
    assert by_node[node.address].payee == operator.address
    assert by_node[second.address].slashed == 100 * 10**9
    view = audit.agree()
    assert (view.reserved, view.unpaid, view.owed_fees) == (0, 0, 0)
    assert view.fees == 3 * (4 * GAME_FEE + GAME_FEE // 4)
    assert view.burnt == 3 * (GAME_FEE - GAME_FEE // 4), "what a committee does not earn for what it could not get"
    assert view.held == view.free == game.suite.pools.pool_of(game.pool)["free"]


def test_a_void_lane_that_nobody_was_drawn_for_gives_its_fees_back(audit: Audit) -> None:
    game = audit.game
    lost = audit.submit("lost")
    for number in range(2):  # neither its committee nor a second one is drawn
        game.deployed.chain.mine(120)
        game.suite.court.settle((game.pool, 0, number), game.state.files_of(game.state.lanes[game.pool, 0])).send()
    assert audit.agree().free == audit.view.state.pools[game.pool].funded - lost.units * GAME_RATE
    game.deployed.chain.later(61)
    assert audit.claim(lost.node) == lost.units * GAME_RATE
    audit.agree()


def test_the_escrow_is_exact_for_a_file_whose_jury_it_paid(audit: Audit) -> None:
    game = audit.game
    lost = audit.submit("lost", node=game.node()[1])
    game.vote(0, {0: Code.UNAVAILABLE})
    audit.agree()
    trial = game.suite.appeals.dispute(game.state.submissions[game.pool, lost.sequence]).send()
    audit.agree()
    game.try_case(trial, Code.MALFORMED)
    game.suite.appeals.conclude(game.state.submissions[game.pool, lost.sequence]).send()
    audit.agree()
    state = audit.view.state
    file, pool = state.submissions[game.pool, lost.sequence], state.pools[game.pool]
    assert (file.status, file.votes_code) == (Status.MALFORMED, Code.UNAVAILABLE)
    assert pool.juries_paid == 5 * pool.terms.juryFee, "its node paid that back"
    game.deployed.chain.later(61)
    audit.close_committee()
    view = audit.agree()
    assert (view.reserved, view.unpaid, view.owed_fees) == (0, 0, 0)


def test_a_gift_to_the_contract_is_named_and_disturbs_nothing(audit: Audit) -> None:
    audit.game.suite.token.transfer(audit.game.suite.pools.address, 7).send()
    found = audit.compare()
    assert (found.gifts, found.escrow_balanced, found.ledger_matches_chain) == (7, True, True)


def test_a_missed_payment_is_found(audit: Audit) -> None:
    game, file = audit.game, audit.submit()
    game.vote(0, {0: Code.ACCEPT})
    audit.view.refresh()
    state = audit.view.state
    state.accounts[game.pool, file.node].units_earned += 1
    state.pools[game.pool].claimed += 5
    state.paid.clear()
    found = reconcile(state, game.pool, game.suite)
    assert found is not None
    assert not found.ledger_matches_chain
    assert not found.escrow_balanced
    assert any("earned is 1000 on chain, 1001 by the ledger" in line for line in found.findings)


def test_a_reorganisation_changes_the_ledger_with_the_chain(audit: Audit) -> None:
    game = audit.game
    _, node = game.node()
    game.publish()
    snapshot = game.deployed.chain.rpc("evm_snapshot")
    audit.submit(node=node)
    assert audit.agree().reserved == 1000 * GAME_RATE
    assert game.deployed.chain.rpc("evm_revert", snapshot)
    game.deployed.chain.mine(1)
    assert audit.agree().reserved == 0
    assert audit.view.state.submissions_of(game.pool) == []
