"""Nodes join and leave without ether or tokens, on a real chain, and what that can cost the service is bounded."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.auth import HttpError
from orchestrator.db import MembershipRow
from orchestrator.sponsor import DAY, EXPIRED, MOST_WAITING, REST_SECONDS, RETRY_SECONDS
from protocol.accounts import Account, LocalAccount
from protocol.api.work import JoinRequest, MembershipResponse
from runtime.orchestrator_client import join_request, leave_request
from tests.chain.game import Game, begin
from tests.conftest import TOKEN, Deployed
from tests.orchestrator.relay_bench import Bench

LEAST = 10 * TOKEN  # what the game's pool wants at stake


@pytest.fixture
def bench(deployed: Deployed, tmp_path: Path) -> Bench:
    game = begin(deployed, tmp_path)
    deployed.suite(deployed.governance).token.mint(game.service.address, 100 * LEAST).send()
    made = Bench(game, tmp_path)
    made.start(game.service, most=2)
    return made


def wish(bench: Bench, node: LocalAccount, operator: str = "", sponsor: str = "") -> JoinRequest:
    game, operator = bench.game, operator or str(bench.game.deployed.chain.account().address)
    return join_request(game.suite, node, operator, sponsor or str(game.service.address), game.pool)


def turns(bench: Bench, count: int = 2) -> None:
    for _ in range(count):
        bench.view.refresh()
        bench.sponsor.turn()
        bench.view.refresh()


def join(
    bench: Bench, request: JoinRequest | None = None, node: LocalAccount | None = None
) -> tuple[LocalAccount, MembershipResponse]:
    """A new key's wish to join, as it stands after two turns."""
    node = node or poor(bench.game)
    asked = request or wish(bench, node)
    bench.sponsor.join(node.address, asked)
    turns(bench)
    return node, bench.sponsor.join(node.address, asked)


def poor(game: Game) -> LocalAccount:
    node = game.deployed.chain.account()
    game.deployed.chain.fund(node.address, 0)
    return node


def test_a_key_that_never_held_anything_joins_and_leaves_and_the_loan_comes_back(bench: Bench) -> None:
    game, operator = bench.game, str(bench.game.deployed.chain.account().address)
    node, before = poor(game), game.suite.token.balance_of(game.service.address)
    asked = wish(bench, node, operator)
    assert bench.sponsor.join(node.address, asked) == MembershipResponse(member=False)
    turns(bench)
    assert bench.sponsor.join(node.address, asked) == MembershipResponse(member=True)
    known = game.state.nodes[node.address]
    assert (known.operator, known.stake, known.loan, known.sponsor) == (operator, LEAST, LEAST, game.service.address)
    assert game.suite.token.balance_of(game.service.address) == before - LEAST
    leaving = leave_request(game.suite, node, game.pool)
    assert bench.sponsor.leave(node.address, leaving) == MembershipResponse(member=True)
    turns(bench, 1)
    assert bench.sponsor.leave(node.address, leaving) == MembershipResponse(member=False)
    bench.sponsor.take_back()
    assert game.state.nodes[node.address].loan == LEAST, "its stake is still locked"
    game.deployed.chain.later(game.state.pools[game.pool].unbonding + 1)
    bench.view.refresh()
    bench.sponsor.take_back()
    assert game.suite.token.balance_of(game.service.address) == before
    assert game.state.nodes[node.address].loan == 0
    assert bench.nonce(node) == 0


def test_a_service_that_dies_between_loan_and_joining_goes_on(bench: Bench) -> None:
    node = poor(bench.game)
    bench.sponsor.join(node.address, wish(bench, node))
    turns(bench, 1)
    assert bench.game.state.nodes[node.address].pool == 0
    bench.sponsor.take_back()
    bench.start(bench.game.service, most=2)
    turns(bench, 1)
    assert bench.game.state.nodes[node.address].pool == bench.game.pool


def test_no_more_loans_are_open_than_the_owner_allows(bench: Bench) -> None:
    first, second, third = (join(bench) for _ in range(3))
    assert [answer.member for _, answer in (first, second, third)] == [True, True, False]
    assert third[1].reason.startswith("2 nodes work with lent stakes")
    assert third[0].address not in bench.game.state.nodes
    # Another one leaves and its loan comes back.
    bench.sponsor.leave(first[0].address, leave_request(bench.game.suite, first[0], bench.game.pool))
    turns(bench, 1)
    bench.game.deployed.chain.later(bench.game.state.pools[bench.game.pool].unbonding + 1)
    bench.view.refresh()
    bench.sponsor.take_back()
    turns(bench)
    assert third[0].address not in bench.game.state.nodes, "a refused wish is tried again after a while"
    bench.ahead = RETRY_SECONDS + 1
    turns(bench)
    assert bench.game.state.nodes[third[0].address].pool == bench.game.pool


def test_a_service_without_tokens_says_so_and_lends_once_it_has_some(bench: Bench) -> None:
    game, token = bench.game, bench.game.suite.token
    sender = game.deployed.suite(game.service).token
    sender.transfer(game.owner.address, token.balance_of(game.service.address) - LEAST + 1).send()
    node, answer = join(bench)
    assert not answer.member
    assert answer.reason.startswith("the service holds 9.999999999 tokens and a stake is 10")
    game.deployed.suite(game.deployed.governance).token.mint(game.service.address, LEAST).send()
    bench.ahead = RETRY_SECONDS + 1
    turns(bench)
    assert game.state.nodes[node.address].pool == game.pool


def test_a_wish_whose_signatures_expired_is_dropped(bench: Bench) -> None:
    bench.start(bench.game.service, most=1)
    join(bench)
    node, answer = join(bench)
    assert answer.reason.startswith("1 nodes work with lent stakes")
    bench.game.deployed.chain.later(3601)
    bench.game.publish()
    bench.ahead = RETRY_SECONDS + 1
    turns(bench)
    with bench.uploads.db.reading() as session:
        row = session.get(MembershipRow, node.address)
        assert row is not None
        assert (row.done, row.reason) == (True, EXPIRED)
    bench.ahead += REST_SECONDS + 1
    join(bench)
    with bench.uploads.db.reading() as session:
        assert session.get(MembershipRow, node.address) is None, "it takes no room"


def test_no_more_loans_are_given_in_a_day_than_the_owner_allows(bench: Bench) -> None:
    bench.start(bench.game.service, most=9, a_day=2)
    answers = [join(bench)[1] for _ in range(3)]
    assert [answer.member for answer in answers] == [True, True, False]
    assert answers[2].reason.startswith("2 stakes were lent in the last 24 hours")
    bench.start(bench.game.service, most=9, a_day=2)
    assert not join(bench)[1].member, "a restart forgets no loan"
    bench.ahead = DAY + 1.0
    node = poor(bench.game)
    bench.game.deployed.chain.later(DAY)
    bench.sponsor.join(node.address, wish(bench, node))
    turns(bench)
    assert bench.game.state.nodes[node.address].pool == bench.game.pool


def test_a_thousand_keys_cost_no_more_than_the_sponsor_states(bench: Bench) -> None:
    """Two stakes are locked, two nodes registered and joined; the other keys, however often they ask, cost nothing."""
    game = bench.game
    keys = [Account.create() for _ in range(1000)]
    wishes = [wish(bench, node) for node in keys[: MOST_WAITING + 44]]
    sent, lent = bench.nonce(game.service), game.suite.token.balance_of(game.service.address)
    spent = game.suite.client.balance(game.service.address)
    for again in range(2):
        refused = 0
        for node, asked in zip(keys, wishes + wishes[-1:] * (1000 - len(wishes)), strict=True):
            try:
                bench.sponsor.join(node.address, asked)
            except HttpError as full:
                refused += full.status == 429
        assert refused >= 1000 - MOST_WAITING - 2
        bench.ahead = (again + 1) * (RETRY_SECONDS + 1)
        turns(bench, MOST_WAITING // 16)
    members = [node.address for node in keys if node.address in game.state.nodes]
    assert len(members) == 2
    assert lent - game.suite.token.balance_of(game.service.address) == 2 * LEAST
    assert bench.nonce(game.service) - sent == 6, "to approve, register and join, for each of the two"
    assert spent - game.suite.client.balance(game.service.address) < 6 * 1_000_000 * 3 * 10**9


def test_who_has_a_stake_of_its_own_joins_at_its_own_cost(bench: Bench) -> None:
    """Or a thousand nodes of stakes that come back could have the service pay for joining every hour."""
    game = bench.game
    node, operator = poor(game), game.deployed.rich()
    suite = game.deployed.suite(operator)
    suite.token.approve(suite.stakes.address, LEAST).send()
    expiry = suite.client.now() + 3600
    consent = suite.stakes.sign_consent(node, operator.address, expiry)
    suite.stakes.register_node(node.address, operator.address, 0, LEAST, expiry, consent).send()
    sent = bench.nonce(game.service)
    assert join(bench, wish(bench, node, operator.address), node)[1].reason.startswith("this service lent the node no")
    assert bench.nonce(game.service) == sent


def test_what_a_node_did_not_sign_costs_nothing_and_is_refused_in_words(bench: Bench) -> None:
    game, sent = bench.game, bench.nonce(bench.game.service)
    node, other = poor(game), poor(game)
    for forged in (
        wish(bench, other),
        wish(bench, node, sponsor=str(game.owner.address)),
        wish(bench, node).model_copy(update={"operator": str(other.address)}),
    ):
        bench.sponsor.join(node.address, forged)
        turns(bench)
        answer = bench.sponsor.join(node.address, forged)
        assert not answer.member
        assert "BadSignature" in answer.reason
    assert node.address not in game.state.nodes
    assert bench.nonce(game.service) <= sent + 1, "an approval at most"
    assert join(bench)[1].member, "what was refused counts as no loan"


def test_what_is_lent_to_a_node_that_names_the_service_as_its_operator_is_a_loan(bench: Bench) -> None:
    """Or a stranger's node would join a pool of its own and lose the service's tokens to it."""
    node = poor(bench.game)
    join(bench, wish(bench, node, operator=str(bench.game.service.address)), node)
    record = bench.game.state.nodes[node.address]
    assert (record.sponsor, record.loan) == (bench.game.service.address, LEAST)


def test_a_stranger_cannot_fill_the_queue_or_ask_for_ever(bench: Bench) -> None:
    node = poor(bench.game)
    asked = wish(bench, node)
    with pytest.raises(HttpError, match="sign them for an hour or so"):
        bench.sponsor.join(node.address, asked.model_copy(update={"expiry": asked.expiry + 2 * DAY}))
    with pytest.raises(HttpError, match="sign them for an hour or so"):
        bench.sponsor.join(node.address, asked.model_copy(update={"expiry": 1}))
    member, _ = join(bench)
    turns(bench, 1)
    for number in range(MOST_WAITING):
        bench.sponsor.join(f"0x{number:040x}", asked)
    with pytest.raises(HttpError, match="nodes wait to join") as full:
        bench.sponsor.join(node.address, asked)
    assert full.value.status == 429
    leaving = leave_request(bench.game.suite, member, bench.game.pool)
    assert bench.sponsor.leave(member.address, leaving).reason == "", "members can leave all the same"


def test_a_node_that_left_joins_again_only_after_a_while(bench: Bench) -> None:
    """Each time costs the service gas."""
    game = bench.game
    node, _ = join(bench)
    bench.sponsor.leave(node.address, leave_request(game.suite, node, game.pool))
    turns(bench, 1)
    again = wish(bench, node)
    with pytest.raises(HttpError, match="joined or left within the hour") as early:
        bench.sponsor.join(node.address, again)
    assert early.value.status == 429
    bench.ahead = REST_SECONDS
    assert join(bench, again, node)[1].member


def test_no_wish_to_join_keeps_a_loan_for_ever(bench: Bench) -> None:
    """Its second signature is worthless, so the node takes the loan and never joins."""
    game = bench.game
    node = poor(game)
    asked = wish(bench, node)
    forged = asked.model_copy(update={"join": asked.sponsorship})
    assert "BadSignature" in join(bench, forged, node)[1].reason
    bench.sponsor.take_back()
    assert game.state.nodes[node.address].loan == LEAST, "it may join yet"
    bench.ahead = DAY + 1.0
    bench.sponsor.join(node.address, forged.model_copy(update={"expiry": asked.expiry + DAY}))
    bench.sponsor.take_back()
    bench.view.refresh()
    assert game.state.nodes[node.address].loan == 0


def test_a_node_key_that_is_a_contract_is_never_called(bench: Bench) -> None:
    """It accepts every signature after 131,071 turns of a loop, for more gas than the service pays."""
    game = bench.game
    accepts = "7f1626ba7e" + "00" * 28 + "60005260206000f3"
    node = poor(game)
    game.deployed.chain.rpc("anvil_setCode", node.address, "0x6201ffff5b6001900380600457" + accepts)
    assert join(bench, wish(bench, node), node)[1].member


def test_a_wish_whose_transaction_reverts_is_not_tried_for_ever(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node is registered under another operator between the estimate and the block."""
    game = bench.game
    node, operator = poor(game), game.deployed.rich()
    suite, client = game.deployed.suite(operator), bench.sponsor._suite.client
    suite.token.approve(suite.stakes.address, LEAST).send()
    expiry = suite.client.now() + 3600
    consent = suite.stakes.sign_consent(node, operator.address, expiry)
    estimate = client.estimate

    def then_registered(call: Any) -> int:
        gas = estimate(call)
        suite.stakes.register_node(node.address, operator.address, 0, LEAST, expiry, consent).send()
        return gas

    monkeypatch.setattr(client, "estimate", then_registered)
    asked = wish(bench, node)
    bench.sponsor.join(node.address, asked)
    turns(bench, 1)
    assert "AlreadyRegistered" in bench.sponsor.join(node.address, asked).reason
    with pytest.raises(HttpError, match="joined or left within the hour"):
        bench.sponsor.join(node.address, asked.model_copy(update={"expiry": asked.expiry + 1}))


def test_a_node_that_a_reorganisation_took_out_joins_with_the_same_wish(bench: Bench) -> None:
    game = bench.game
    node = poor(game)
    asked = wish(bench, node)
    assert join(bench, asked, node)[1].member
    game.deployed.chain.rpc("anvil_reorg", 1, [])
    game.deployed.chain.mine()
    bench.view.refresh()
    assert not bench.sponsor.join(node.address, asked).member
    turns(bench)
    assert bench.sponsor.join(node.address, asked).member


def test_a_wish_that_comes_while_an_earlier_one_is_fulfilled_is_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    game, joins = bench.game, bench.sponsor._join
    node = poor(game)

    def then_leaves(*asked: Any) -> str:
        reason = joins(*asked)
        bench.view.refresh()
        if game.state.nodes[node.address].pool:
            bench.sponsor.leave(node.address, leave_request(game.suite, node, game.pool))
        return reason

    monkeypatch.setattr(bench.sponsor, "_join", then_leaves)
    bench.sponsor.join(node.address, wish(bench, node))
    turns(bench, 3)
    assert game.state.nodes[node.address].pool == 0
