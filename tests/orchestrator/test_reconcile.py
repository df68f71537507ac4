"""Ledger and escrow against a real chain: every kind of outcome, and differences that must be found."""

from pathlib import Path

import pytest

from chain.indexer.follower import Follower
from chain.indexer.projection import Projection
from chain.indexer.records import Status
from orchestrator.chain import PoolView
from orchestrator.ledger import escrow, reconcile, rows
from protocol.api.run import Reconciliation
from protocol.verdict import Code
from tests.chain.game import FEE, RATE, Game, begin, work
from tests.conftest import Deployed


@pytest.fixture
def game(deployed: Deployed, tmp_path: Path) -> Game:
    return begin(deployed, tmp_path)


@pytest.fixture
def watch(game: Game, tmp_path: Path) -> PoolView:
    follower = Follower(game.suite.client, game.deployed.deployment, tmp_path / "orchestrator.db")
    return PoolView(Projection(follower), game.pool, 1)


def check(watch: PoolView, game: Game) -> Reconciliation:
    watch.refresh()
    found = reconcile(watch.state, game.pool, game.suite)
    assert found is not None
    return found


def close_committee(game: Game, lane: int) -> None:
    for member in range(3):
        game.suite.court.close((game.pool, lane, 0), member).send()


def test_the_ledger_equals_the_chain_through_every_outcome(game: Game, watch: PoolView) -> None:
    operator, node = game.node()
    _, second = game.node()
    step = game.publish()
    outcomes = {0: Code.ACCEPT, 1: Code.UNSURE, 2: Code.MALFORMED, 3: Code.UNAVAILABLE, 4: Code.REJECT_WEIGHTS}
    files = [game.submit(node if i < 4 else second, step, work(f"file {i}", 1000 + i)) for i in range(5)]
    assert check(watch, game).findings == []
    game.vote(0, {place: int(code) for place, code in outcomes.items()})
    assert check(watch, game).findings == []
    game.deployed.chain.later(61)
    for place in (2, 3, 4):
        game.suite.pools.finalize(game.state.submissions[game.pool, files[place].sequence]).send()
        assert check(watch, game).findings == []
    close_committee(game, 0)
    assert check(watch, game).findings == []
    hint = game.state.claim_hint(game.pool, node.address, game.suite.client.now())
    assert hint is not None
    assert game.suite.pools.claim(hint).send() == 3004 * RATE
    done = check(watch, game)
    assert (done.ledger_matches_chain, done.escrow_balanced, done.findings) == (True, True, [])
    state = watch.state
    by_node = {row.address: row for row in rows(state, game.pool, 2**40) if row.role == "worker"}
    assert by_node[node.address].claimed == 3004 * RATE
    assert by_node[node.address].payee == operator.address
    assert by_node[second.address].slashed == 100 * 10**9
    view = escrow(state, game.pool)
    assert (view.reserved, view.unpaid, view.owed_fees) == (0, 0, 0)
    assert view.fees == 3 * (4 * FEE + FEE // 4)
    assert view.held == view.free == game.suite.pools.pool_of(game.pool).free


def test_a_void_lane_gives_everything_back(game: Game, watch: PoolView) -> None:
    _, node = game.node()
    step = game.publish()
    game.submit(node, step, work("lost"))
    game.attest(0)
    for number in range(2):  # neither its committee nor a second one is drawn
        game.deployed.chain.mine(120)
        game.suite.court.settle((game.pool, 0, number), game.state.files_of(game.state.lanes[game.pool, 0])).send()
    found = check(watch, game)
    assert found.findings == []
    state = watch.state
    assert escrow(state, game.pool).free == state.pools[game.pool].funded


def test_the_escrow_is_exact_for_files_that_were_late_or_that_a_jury_could_not_get(game: Game, watch: PoolView) -> None:
    (_, node), (_, absent) = game.node(), game.node()
    step = game.publish()
    lost, late = game.submit(node, step, work("lost")), game.submit(absent, step, work("late"))
    game.attest(0, 0b01)
    game.vote(0, {0: Code.ACCEPT})
    assert check(watch, game).findings == []
    game.suite.pools.finalize(game.state.submissions[game.pool, late.sequence]).send()
    assert check(watch, game).findings == []
    assert escrow(watch.state, game.pool).reserved == 0
    trial = game.suite.appeals.dispute(game.state.submissions[game.pool, lost.sequence]).send()
    assert check(watch, game).findings == []
    game.try_case(trial, Code.UNAVAILABLE)
    game.suite.appeals.conclude(game.state.submissions[game.pool, lost.sequence]).send()
    assert check(watch, game).findings == []
    file = watch.state.submissions[game.pool, lost.sequence]
    assert (file.status, file.votes_code) == (Status.UNAVAILABLE, Code.ACCEPT)
    game.deployed.chain.later(61)
    close_committee(game, 0)
    assert check(watch, game).findings == []
    hint = game.state.claim_hint(game.pool, node.address, game.suite.client.now())
    assert hint is not None
    assert game.suite.pools.claim(hint).send() == lost.units * RATE
    assert check(watch, game).findings == []
    view = escrow(watch.state, game.pool)
    assert (view.reserved, view.unpaid, view.owed_fees) == (0, 0, 0)


def test_a_gift_to_the_contract_is_named_and_disturbs_nothing(game: Game, watch: PoolView) -> None:
    game.suite.token.transfer(game.suite.pools.address, 7).send()
    found = check(watch, game)
    assert (found.gifts, found.escrow_balanced, found.ledger_matches_chain) == (7, True, True)


def test_a_missed_payment_is_found(game: Game, watch: PoolView) -> None:
    _, node = game.node()
    step = game.publish()
    game.submit(node, step, work("file"))
    game.vote(0, {0: Code.ACCEPT})
    watch.refresh()
    state = watch.state
    account = state.accounts[game.pool, node.address]
    account.units_earned += 1
    state.pools[game.pool].claimed += 5
    state.payments.pop() if state.payments else None
    found = reconcile(watch.state, game.pool, game.suite)
    assert found is not None
    assert not found.ledger_matches_chain
    assert not found.escrow_balanced
    assert any("earned is 1000 on chain, 1001 by the ledger" in line for line in found.findings)


def test_a_reorganisation_changes_the_ledger_with_the_chain(game: Game, watch: PoolView) -> None:
    _, node = game.node()
    step = game.publish()
    snapshot = game.deployed.chain.rpc("evm_snapshot")
    game.submit(node, step, work("file"))
    assert check(watch, game).findings == []
    state = watch.state
    assert escrow(state, game.pool).reserved == 1000 * RATE
    assert game.deployed.chain.rpc("evm_revert", snapshot)
    game.deployed.chain.mine(1)
    assert check(watch, game).findings == []
    state = watch.state
    assert escrow(state, game.pool).reserved == 0
    assert state.submissions_of(game.pool) == []
