"""The projected state against the contracts' own views, through a whole life of files."""

from collections import UserDict
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from eth_utils.crypto import keccak

from chain.contracts import INVITE, FailingRollout, refused_file
from chain.errors import ContractError
from chain.indexer.records import MAX_MIRROR, MOST_NODE_MIRRORS, Status
from orchestrator.ledger import penalties
from protocol.rollout_file import merkle
from protocol.verdict import Code
from tests.chain.comparison import compare
from tests.chain.game import FEE, RATE, Game, WorkItem, terms, work
from tests.conftest import TOKEN
from trainer.pool.canaries import CanaryPlan
from validator.decide import to_finalize

SINK = "0x000000000000000000000000000000000000dEaD"


def test_accepted_work_is_paid_to_the_last_base_unit(game: Game) -> None:
    operator, node = game.node()
    step = game.publish()
    files = game.submit_lane(step, *((node, work(f"file {i}", 1000 + i)) for i in range(2)))
    assert [f.counter for f in files] == [0, 1]
    assert files[0].lane == files[1].lane == 0
    assert compare(game).claim_hint(game.pool, node.address, 2**40) is None

    game.vote(0, {0: Code.ACCEPT, 1: Code.UNSURE})
    state = compare(game)
    assert [s.status for s in state.submissions_of(game.pool, node.address)] == [Status.ACCEPTED] * 2
    assert state.lanes[game.pool, 0].round.settled
    assert game.hint(node) is None
    game.deployed.chain.later(61)
    hint = game.hint(node)
    assert hint is not None
    before = state.balances[operator.address]
    assert game.claim(node) == 2001 * RATE
    game.suite.court.close_committee(game.pool, 0, 0).send()
    state = compare(game)
    assert state.balances[operator.address] == before + 2001 * RATE
    assert game.hint(node) is None
    assert state.lanes[game.pool, 0].round.closed == {0, 1, 2}
    assert [p.kind for p in state.payments] == ["claim", "fee", "fee", "fee"]
    assert sum(s.earned for s in state.seats.values()) == sum(s.fees for s in state.seats.values()) == 6 * FEE
    seat = state.seats[state.lanes[game.pool, 0].round.seats[0]]
    before = state.balances.get(seat.owner, 0)
    game.suite.pools.withdraw_fees(seat.seat).send()
    state = compare(game)
    assert (state.seats[seat.seat].fees, state.balances[seat.owner] - before) == (0, 2 * FEE)


def test_rejected_work_slashes_and_ejects(game: Game) -> None:
    _, node = game.node(stake=100 * TOKEN)
    step = game.publish()
    good, bad = game.submit_lane(step, (node, work("good")), (node, work("bad")))
    game.vote(0, {0: Code.ACCEPT, 1: Code.REJECT_WEIGHTS})
    state, bad = compare(game), game.again(bad)
    assert bad.status == Status.REJECTED
    assert state.accounts[game.pool, node.address].frozen_at
    with pytest.raises(ContractError) as refused:
        game.submit(node, step, work("more"))
    file = refused_file(refused.value)
    assert file is not None
    assert (file.index, file.reason.name) == (0, "NodeIsFrozen")
    game.deployed.chain.later(61)
    game.suite.pools.finalize(bad).send()
    state = compare(game)
    account = state.accounts[game.pool, node.address]
    assert (account.ejected, account.eject_code, account.eject_sequence) == (True, Code.REJECT_WEIGHTS, bad.sequence)
    assert account.slashed == 100 * TOKEN
    assert state.nodes[node.address].stake == 0
    (slash,) = state.slashes
    assert (slash.kind, slash.who, slash.amount, slash.code) == ("node", node.address, 100 * TOKEN, 3)
    game.suite.stakes.call("burn").send()
    rest = 100 * TOKEN - 3 * FEE
    assert game.state.balances[SINK] == rest - rest // 20 - 1, "all but the collector's twentieth, and a base unit"
    # What was accepted together with the rejected file had not vested when the node was slashed.
    assert state.claim_hint(game.pool, node.address, 2**40) is None
    game.forfeit(game.again(good))
    compare(game)
    assert game.again(good).forfeited


def test_a_dispute_won_by_the_worker(game: Game) -> None:
    operator, node = game.node()
    step = game.publish()
    sub = game.submit(node, step, work("honest"))
    game.vote(0, {0: Code.REJECT_SAMPLING})
    suite = game.deployed.suite(operator)
    trial = suite.appeals.dispute(game.again(sub)).send()
    state = compare(game)
    assert game.again(sub).disputed
    assert state.disputes[game.pool, sub.sequence].trial == trial
    game.try_case(trial, Code.ACCEPT)
    suite.appeals.conclude(sub).send()
    if not game.state.disputes[game.pool, sub.sequence].resolved:
        game.deployed.chain.later(31)
        suite.appeals.conclude(sub).send()
    state, final = compare(game), game.again(sub)
    dispute = state.disputes[game.pool, sub.sequence]
    assert (dispute.resolved, dispute.overturned, dispute.code) == (True, True, Code.ACCEPT)
    assert final.status == Status.ACCEPTED
    assert final.votes_code == Code.REJECT_SAMPLING
    paid = [suite.juries.close(trial, j).send() for j in range(5)]
    assert paid == [2 * FEE] * 5
    lost = sum(seat.penalised for seat in state.seats.values())
    assert 0 < penalties(state, game.pool).total() == lost, "every penalty is some pool's"
    game.deployed.chain.later(120)
    assert game.claim(node) == 1000 * RATE
    compare(game)


class Counted(UserDict[Any, Any]):
    """Remembers what was read."""

    read: ClassVar[list[Any]] = []

    def __getitem__(self, key: Any) -> Any:
        self.read.append(key)
        return super().__getitem__(key)


def test_files_leave_their_lane_one_by_one(game: Game) -> None:
    """Refused ones by their end, others where somebody gives them words of their own; the lane pays the rest."""
    (_, node), (_, other), (_, cheat) = game.node(), game.node(), game.node()
    makers = (node, cheat, other, cheat)
    game.submit_lane(game.publish(), *((maker, work(str(place))) for place, maker in enumerate(makers)))
    game.vote(0, {0: Code.ACCEPT, 1: Code.MALFORMED, 2: Code.ACCEPT, 3: Code.MALFORMED})
    game.deployed.chain.later(61)
    pools, files = game.suite.pools, list(game.state.submissions.values())
    assert [len(file.lane_words) for file in files] == [4] * 4
    assert [file.sequence for file in to_finalize(game.state, game.pool, game.suite.client.now())] == [1]
    seen: Any = Counted(game.state.submissions)
    counted = replace(game.state, submissions=seen)
    assert len(to_finalize(counted, game.pool, game.suite.client.now())) == 1
    assert Counted.read == [(game.pool, 3), (game.pool, 1)], (
        "only the refused are looked at, however many files there are"
    )
    in_flight = pools.finalize(files[3])
    pools.finalize(files[1]).send()
    state = compare(game)
    assert [bool(file.lane_words) for file in state.submissions.values()] == [True, False, True, True]
    with pytest.raises(ContractError) as caught:
        in_flight.send()
    assert caught.value.name == "WrongFile"
    (unpack,) = pools.unpacking([game.again(files[0]), game.again(files[1])])
    unpack.send()
    assert pools.unpacking([game.again(files[0])]) == (), "it has its own word"
    compare(game)
    pools.finalize(game.again(files[3])).send()
    state = compare(game)
    assert [bool(file.lane_words) for file in state.submissions.values()] == [False, False, True, False]
    assert [game.claim(maker) for maker in (node, other)] == [1000 * RATE] * 2
    compare(game)


def test_malformed_unavailable_and_void(game: Game) -> None:
    _, node = game.node()
    step = game.publish()
    a, b = game.submit_lane(step, (node, work("a")), (node, work("b")))
    game.vote(0, {0: Code.MALFORMED, 1: Code.UNAVAILABLE})
    c = game.submit(node, step, work("c"))
    assert c.lane == 1
    game.deployed.chain.later(61)
    game.suite.pools.finalize(game.again(a)).send()
    state, stand = compare(game), [game.again(sub).status for sub in (a, b, c)]
    assert stand == [Status.MALFORMED, Status.UNAVAILABLE, Status.PENDING]
    assert not state.accounts[game.pool, node.address].ejected
    # Nobody draws its committee: a second one may judge it, and is not drawn either.
    for number, then in enumerate((Status.PENDING, Status.VOID)):
        game.mine_to(game.state.lanes[game.pool, 1].rounds[number].seed_block + 25)
        game.settle(1, number)
        compare(game)
        assert game.again(c).status == then
    game.deployed.chain.later(61)
    assert game.claim(node) == (b.units + c.units) * RATE
    compare(game)


def test_a_split_committee_gives_way_to_a_second_one(game: Game) -> None:
    _, node = game.node()
    step = game.publish()
    game.submit(node, step, work("split"))
    votes = zip(game.committee(0), (Code.ACCEPT, Code.REJECT_WEIGHTS), strict=False)
    game.cast((game.pool, 0, 0), [(game.voters[seat].court, code) for seat, code in votes], pause=31)
    game.deployed.chain.later(31)
    game.settle(0)
    state = compare(game)
    lane = state.lanes[game.pool, 0]
    assert [r.round for r in lane.rounds] == [0, 1]
    assert not lane.round.settled
    assert [one for one in state.lanes.values() if not one.round.settled] == [lane]
    game.vote(0, {0: Code.ACCEPT}, round=1)
    state = compare(game)
    assert state.submissions[game.pool, 0].status == Status.ACCEPTED
    assert state.lanes[game.pool, 0].round.settled


def test_a_canary_that_the_committee_accepted(game: Game) -> None:
    _, node = game.node()
    plan = CanaryPlan(game.owner, game.pool, node)
    step = game.publish(plan.root(0, 1))
    row = b"the row's bytes"
    planted = WorkItem(merkle.root([merkle.leaf(row)]), b"\5" * 32, 500, 1)
    honest, sub = game.submit_lane(step, (node, work("honest")), (node, planted))
    game.vote(0, {0: Code.ACCEPT, 1: Code.ACCEPT})
    sub = game.again(sub)
    assert plan.opening(compare(game), honest) is None
    opening = plan.opening(compare(game), sub)
    assert opening is not None
    failing = FailingRollout(0, keccak(row), [])
    with pytest.raises(ContractError) as strangers:
        game.suite.canaries.open(sub, opening, game.owner, failing, Code.REJECT_WEIGHTS).send()
    assert strangers.value.name == "BadSignature"
    game.suite.canaries.open(sub, opening, node, failing, Code.REJECT_WEIGHTS).send()
    state = compare(game)
    canary = state.canaries[game.pool, sub.sequence]
    assert sorted(canary.accused) == sorted(state.lanes[game.pool, 0].round.seats)
    assert all(state.seats[seat].frozen for seat in canary.accused)
    game.try_case(canary.trial, Code.REJECT_WEIGHTS)
    game.suite.canaries.conclude(sub).send()
    state = compare(game)
    canary = state.canaries[game.pool, sub.sequence]
    assert (canary.concluded, canary.upheld, canary.code) == (True, True, Code.CANARY)
    slash = state.params["canarySlash"]
    assert canary.slashed == dict.fromkeys(canary.accused, slash)
    assert {(s.kind, s.amount) for s in state.slashes} == {("seat", slash)}
    assert penalties(state, game.pool).total() == sum(seat.penalised for seat in state.seats.values())
    assert game.again(sub).status == Status.CANARY
    assert not state.accounts[game.pool, node.address].ejected
    game.deployed.chain.later(61)
    assert game.claim(node) == 1000 * RATE
    compare(game)


def test_owner_and_operator_lifecycle(game: Game) -> None:
    operator, node = game.node()
    suite = game.deployed.suite(operator)
    suite.stakes.deposit(node.address, 5 * TOKEN).send()
    suite.pools.refresh(game.pool, node.address).send()
    suite.pools.leave_pool(game.pool, node.address).send()
    with pytest.raises(ContractError) as locked:
        suite.stakes.withdraw(node.address, TOKEN).send()
    assert locked.value.name == "StakeLocked"
    game.deployed.chain.later(game.state.pools[game.pool].unbonding + 1)
    suite.stakes.withdraw(node.address, 105 * TOKEN).send()
    game.suite.pools.pause_pool(game.pool).send()
    game.suite.pools.resume_pool(game.pool).send()
    game.suite.pools.fund(game.pool, 7 * TOKEN).send()
    game.suite.pools.remove_node(game.pool, node.address).send()
    game.suite.pools.close_pool(game.pool).send()
    assert compare(game).pools[game.pool].status == "closing"
    game.deployed.chain.later(game.state.pools[game.pool].unbonding + 1)
    assert game.suite.pools.settle_pool(game.pool).send() == 1007 * TOKEN
    state = compare(game)
    assert state.pools[game.pool].status == "settled"
    assert state.pools[game.pool].escrow == 0
    assert state.nodes[node.address].stake == 0


def test_invites_and_their_misuse(game: Game) -> None:
    game.pool = game.suite.pools.create_pool(terms(inviteOnly=True), 100 * TOKEN).send()
    operator, node = game.deployed.rich(), game.deployed.chain.account()
    suite = game.deployed.suite(operator)
    expiry = suite.client.now() + 1000
    consent = suite.stakes.sign_consent(node, operator.address, expiry)
    suite.stakes.register_node(node.address, operator.address, 0, 20 * TOKEN, expiry, consent).send()
    with pytest.raises(ContractError) as uninvited:
        suite.pools.join(game.pool, node.address).send()
    assert uninvited.value.name == "BadInvite"
    assert "ask the pool's owner" in str(uninvited.value)
    other = suite.pools.signed(game.owner, "muster-pools", INVITE, game.pool + 1, node.address, expiry)
    with pytest.raises(ContractError) as misused:
        suite.pools.join(game.pool, node.address, expiry, invite=other).send()
    assert misused.value.name == "BadInvite"
    invite = suite.pools.signed(game.owner, "muster-pools", INVITE, game.pool, node.address, expiry)
    suite.pools.join(game.pool, node.address, expiry, invite=invite).send()
    assert compare(game).accounts[game.pool, node.address].member


def test_publishing_the_same_step_again_is_harmless(game: Game) -> None:
    seed_block = game.suite.pools.publish_step(game.pool, 0, b"\1" * 32).send()
    assert game.suite.pools.ensure_step(game.pool, 0, b"\1" * 32) == seed_block
    step = game.state.pools[game.pool].steps[0]
    assert (step.manifest, step.seed_block) == (b"\1" * 32, seed_block)
    assert game.suite.step_seed(game.pool, step) is None
    game.mine_to(seed_block)
    seed = game.suite.step_seed(game.pool, step)
    assert seed is not None
    assert game.suite.step_seed(game.pool, step, confirmations=2) is None
    game.mine_to(seed_block + 2)
    assert game.suite.step_seed(game.pool, step, confirmations=2) == seed


def test_a_files_node_and_the_seats_that_had_it_are_believed_and_nobody_else(game: Game) -> None:
    _, node = game.node()
    _, other = game.node()
    step = game.publish()
    had, lacked = game.submit_lane(step, (node, work("had")), (node, work("lacked")))
    seats = game.committee(0)
    members = [game.voters[seat] for seat in seats]
    outsider = next(suite for seat, suite in game.voters.items() if seat not in seats)
    members[0].court.announce_mirror(game.pool, 0, "https://before-its-vote.example").send()
    game.vote(0, {0: Code.ACCEPT, 1: Code.UNAVAILABLE})
    for sequence in (0, 1, 7):
        members[0].court.announce_mirror(game.pool, sequence, "https://old.example").send()
        for speaker in (*members, outsider, game.suite, game.deployed.suite(other)):
            url = f"https://{speaker.client.address}.example"
            speaker.court.announce_mirror(game.pool, sequence, url).send()
    members[1].court.announce_mirror(game.pool, 0, "https://" + "x" * MAX_MIRROR).send()
    for number in range(MOST_NODE_MIRRORS + 2):
        game.deployed.suite(node).court.announce_mirror(game.pool, 1, f"https://node.example/{number}").send()
    state = compare(game)
    assert state.mirrors_of(had) == tuple(f"https://{member.client.address}.example" for member in members)
    assert state.mirrors_of(lacked) == tuple(f"https://node.example/{number}" for number in range(MOST_NODE_MIRRORS))
    assert set(state.mirrors) == {(game.pool, 0), (game.pool, 1)}
