"""The service relays what nodes signed, on a real chain: nothing is lost or sent twice, and nobody holds up others."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chain.errors import ContractError, TransactionError
from chain.indexer.records import Status, Step
from chain.transactions import Sender
from orchestrator.auth import HttpError
from orchestrator.relay import RETRY_SECONDS
from protocol.api.work import MOST_LEASES
from protocol.errors import ConfigError, IntegrityError, printable
from protocol.verdict import Code
from protocol.waits import wait_for
from runtime.diagnose import LONGEST
from tests.chain.conftest import gift
from tests.chain.game import FEE, RATE, Game, begin, work
from tests.conftest import ETHER, Deployed
from tests.orchestrator.relay_bench import Bench


@pytest.fixture
def bench(deployed: Deployed, tmp_path: Path) -> Bench:
    return Bench(begin(deployed, tmp_path), tmp_path)


def test_files_of_nodes_without_ether_are_judged_and_paid(bench: Bench, deployed: Deployed) -> None:
    game = bench.game
    operator, node = game.node()
    other = game.node()[1]
    for account in (operator, node, other):
        deployed.chain.fund(account.address, 0)
    game.publish()
    for maker, counter in ((node, 0), (other, 0), (node, 1)):
        answer = bench.hand_in(maker, counter)
        assert (answer.state, answer.sequence, answer.reason) == ("waiting", None, "")
    files = bench.turn()
    assert len(files) == 3
    assert {file.lane for file in files} == {0}
    assert [bench.hand_in(node, counter).sequence for counter in (0, 1)] == [
        file.sequence for file in files if file.node == node.address
    ]
    assert bench.hand_in(node, 0).state == "landed"
    game.vote(0, dict.fromkeys(range(3), Code.ACCEPT))
    deployed.chain.later(61)
    bench.view.refresh()
    before = game.state.balances[operator.address]
    bench.claims.turn()
    assert game.state.balances[operator.address] == before + 2000 * RATE
    game.suite.court.close_committee(game.pool, 0, 0).send()
    assert sum(seat.earned for seat in game.state.seats.values()) == 3 * 3 * FEE
    sent = bench.nonce(game.service)
    bench.view.refresh()
    bench.claims.turn()
    assert bench.nonce(game.service) == sent, "nothing is left to claim"


def test_what_the_contract_refuses_is_named_with_its_reason_and_the_others_go(bench: Bench) -> None:
    game = bench.game
    (_, greedy), (_, honest) = game.node(), game.node()
    game.publish()
    for counter in range(2):
        bench.hand_in(greedy, counter, units=100_001 if counter == 0 else 1000)
    bench.hand_in(honest, 0)
    assert [file.node for file in bench.turn()] == [honest.address]
    refused = bench.hand_in(greedy, 0, units=100_001)
    assert refused.state == "refused"
    assert "100001 output tokens" in refused.reason
    assert bench.hand_in(greedy, 1).state == "waiting", "it follows the refused one"
    sent = bench.nonce(game.service)
    bench.turn()
    assert bench.nonce(game.service) == sent
    assert bench.hand_in(greedy, 0).state == "waiting", "another file takes the place of the refused one"
    assert [file.counter for file in bench.turn() if file.node == greedy.address] == [0, 1]


def test_a_refused_file_is_tried_again_later(bench: Bench) -> None:
    """A file of a frozen node lands once the node is free again."""
    game = bench.game
    _, node = game.node()
    game.publish()
    bench.hand_in(node, 0)
    (file,) = bench.turn()
    bench.hand_in(node, 1)
    game.vote(0, {0: Code.REJECT_SAMPLING})
    bench.turn()
    (row,) = bench.relay.waiting(bench.view.state, bench.clock())
    assert "NodeIsFrozen" in row.reason
    trial = game.suite.appeals.dispute(game.again(file)).send()
    game.try_case(trial, Code.ACCEPT)
    game.suite.appeals.conclude(game.again(file)).send()
    assert len(bench.turn()) == 1, "not yet"
    bench.ahead = RETRY_SECONDS
    assert len(bench.turn()) == 2


def test_a_lane_that_reverts_because_a_file_became_invalid_loses_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner removes a node between the simulation and the block."""
    game = bench.game
    (_, gone), (_, honest) = game.node(), game.node()
    game.publish()
    bench.hand_in(gone, 0)
    bench.hand_in(honest, 0)
    relay_client = bench.relay._suite.pools.client
    estimate = relay_client.estimate

    def then_removed(call: object) -> int:
        gas = estimate(call)  # type: ignore[arg-type]
        game.suite.pools.remove_node(game.pool, gone.address).send()
        return gas

    monkeypatch.setattr(relay_client, "estimate", then_removed)
    with pytest.raises(ContractError) as reverted:
        bench.turn()
    assert reverted.value.tx_hash
    monkeypatch.undo()
    files = bench.turn()
    assert {file.node for file in files} == {honest.address, gone.address}
    lanes = {file.node: file.lane for file in files}
    assert lanes[gone.address] != lanes[honest.address], "the removed node's receipt came before its removal"


def test_a_node_that_submits_its_relayed_files_itself_makes_others_lanes_revert_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    game = bench.game
    (_, hostile), (_, honest) = game.node(), game.node()
    game.publish()
    game.deployed.chain.later(2)
    receipts = [bench.hand_in(hostile, counter).receipt for counter in range(3)]
    bench.hand_in(honest, 0)
    own, client = game.deployed.suite(hostile).pools, bench.relay._suite.pools.client
    send_all = client.send_all

    def after_its_own(calls: Any, **options: Any) -> Any:
        counter = game.projection.state.accounts[game.pool, hostile.address].counter
        signed = work(f"{hostile.address} {counter}").signed(hostile, game.pool_id, 0, counter)
        own.submit_lane(game.pool, [signed], [receipts[counter]]).send()
        return send_all(calls, **options)

    monkeypatch.setattr(client, "send_all", after_its_own)
    for _ in range(2):
        with pytest.raises(ContractError, match="FileRefused"):
            bench.turn()
    bench.view.refresh()
    assert [file.node for file in game.state.submissions_of(game.pool)].count(honest.address) == 1
    assert bench.relay._apart.keys() == {hostile.address}


@pytest.mark.parametrize("step", ["taken", "sent", "mined"])
def test_a_service_that_dies_at_any_step_of_a_relay_relays_once(bench: Bench, step: str) -> None:
    game, chain = bench.game, bench.game.deployed.chain
    _, node = game.node()
    game.publish()
    bench.hand_in(node, 0)
    if step == "sent":
        chain.rpc("evm_setAutomine", False)
        with ThreadPoolExecutor(1) as dying:
            turn = dying.submit(bench.turn)
            wait_for("the lane to be sent", lambda: int(chain.rpc("txpool_status")["pending"], 16) == 1, 60)
            bench.start(game.service)
            chain.rpc("evm_setAutomine", True)
            chain.mine()
            turn.result()
    elif step == "mined":
        bench.relay.turn()
    sent = bench.nonce(game.service)
    bench.start(game.service)
    assert [file.counter for file in bench.turn()] == [0]
    bench.turn()
    assert bench.nonce(game.service) == sent + (step == "taken"), "nothing is sent again"


def test_a_second_leader_pays_gas_and_submits_nothing_twice(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both planned and priced the same lane before either sent it: later, its price shows that it was sent."""
    priced, launch = threading.Barrier(2, timeout=60), Sender._launch

    def launch_together(*arguments: Any) -> Any:
        priced.wait()
        return launch(*arguments)

    game, chain = bench.game, bench.game.deployed.chain
    _, node = game.node()
    game.publish()
    bench.hand_in(node, 0)
    other = Bench(game, tmp_path)
    chain.rpc("evm_setAutomine", False)
    monkeypatch.setattr(Sender, "_launch", launch_together)
    with ThreadPoolExecutor(2) as both:
        turns = [both.submit(one.turn) for one in (bench, other)]
        wait_for("both to be sent", lambda: int(chain.rpc("txpool_status")["pending"], 16) == 2, 60)
        chain.rpc("evm_setAutomine", True)
        chain.mine()
        ends = [turn.exception() for turn in turns]
    monkeypatch.undo()
    assert sorted(isinstance(end, ContractError) for end in ends) == [False, True]
    assert [file.counter for file in game.state.submissions_of(game.pool)] == [0]
    assert len(bench.turn()) == len(other.turn()) == 1


def test_a_replica_that_does_not_lead_takes_files_for_the_one_that_does(bench: Bench, tmp_path: Path) -> None:
    game = bench.game
    _, node = game.node()
    game.publish()
    follower = Bench(game, tmp_path)
    follower.leads = False
    follower.bucket = bench.bucket
    follower.start(game.service)
    assert follower.hand_in(node, 0).state == "waiting"
    assert follower.turn() == []
    assert len(bench.turn()) == 1
    assert follower.hand_in(node, 0).state == "landed"


def test_a_lane_that_a_reorganisation_took_away_is_relayed_again_when_its_node_hands_it_in(bench: Bench) -> None:
    game = bench.game
    _, node = game.node()
    game.publish()
    bench.hand_in(node, 0)
    assert len(bench.turn()) == 1
    bench.turn()
    game.deployed.chain.rpc("anvil_reorg", 1, [])
    game.deployed.chain.mine()
    assert bench.turn() == []
    assert bench.hand_in(node, 0).state == "waiting"
    assert len(bench.turn()) == 1


def test_no_file_is_relayed_to_a_step_whose_seed_a_reorganisation_of_60_blocks_changed(bench: Bench) -> None:
    """It would be malformed, and an honest node pay. One that was made from the new seed is relayed in its place."""
    game = bench.game
    (_, node), (_, other) = game.node(), game.node()
    game.deployed.chain.mine(60)
    game.publish()
    bench.view.refresh()
    old = bench.request(node, 0)
    bench.relay.take(node.address, old)
    bench.hand_in(other, 0)
    game.deployed.chain.rpc("anvil_reorg", 60, [])
    assert bench.turn() == []
    game.publish()
    assert bench.turn() == []
    assert bench.relay.take(node.address, old).state == "waiting", "its node does not know yet"
    assert bench.turn() == []
    assert bench.hand_in(node, 0, units=2000).state == "waiting"
    (landed,) = bench.turn()
    assert (landed.node, landed.units) == (node.address, 2000)


def test_a_lane_in_flight_is_taken_by_no_chain_that_lacks_its_seed(bench: Bench) -> None:
    """Whoever sends it again, such as a block producer that kept it; on the chain that it names it is taken."""
    game, chain = bench.game, bench.game.deployed.chain
    _, node = game.node()
    pools = game.deployed.suite(game.service).pools
    chain.mine(60)
    game.publish()
    chain.mine(2)
    seed_block = game.state.pools[game.pool].steps[0].seed_block
    anchor = pools.anchor(seed_block)
    assert anchor[0] == seed_block
    lane = pools.submit_lane(game.pool, [work("file").signed(node, game.pool_id, 0, 0)], anchor=anchor)
    kept = chain.rpc("evm_snapshot")
    lane.send()
    chain.rpc("evm_revert", kept)
    chain.rpc("anvil_reorg", 60, [])
    game.publish()  # the step has another seed now
    chain.mine(60)
    with pytest.raises(ContractError, match="made on another chain") as caught:
        lane.send()
    assert caught.value.name == "OtherChain"
    assert game.state.submissions_of(game.pool) == []
    assert pools.anchor(1)[0] == pools.anchor()[0] == game.suite.client.head().number - 8


def test_a_lane_that_was_mined_before_its_seed_changed_fills_no_gap_of_nonces(bench: Bench) -> None:
    """While a later transaction of the service waits, which the chain cannot mine without what it forgot."""
    game, chain = bench.game, bench.game.deployed.chain
    _, node = game.node()
    chain.mine(60)
    game.publish()
    bench.hand_in(node, 0)
    assert len(bench.turn()) == 1
    before, done = bench.nonce(game.service), list[object]()
    chain.rpc("evm_setAutomine", False)
    client = bench.relay._suite.client
    thread = threading.Thread(target=lambda: done.append(client.send(gift(1), timeout=100)))
    thread.start()
    wait_for("a pending transaction", lambda: int(chain.rpc("txpool_status")["pending"], 16) > 0, 60, poll=0.02)
    chain.rpc("anvil_reorg", 60, [])
    chain.rpc("evm_setAutomine", True)
    game.publish()  # the step has another seed now
    thread.join(60)
    assert done
    bench.view.refresh()
    assert bench.view.state.submissions_of(game.pool) == []
    assert bench.nonce(game.service) == before + 1, "the gap was filled"


def test_files_of_many_steps_cost_no_question_a_turn(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may follow a gap, so that they are never relayed and wait for as long as a receipt counts."""
    (_, node), asked, suite = bench.game.node(), list[int](), bench.relay._suite
    bench.game.publish()
    bench.view.refresh()
    bench.relay.take(node.address, bench.request(node, 1))
    seed = suite.step_seed

    def ask(pool: int, step: Step) -> bytes | None:
        asked.append(step.step)
        return seed(pool, step)

    monkeypatch.setattr(suite, "step_seed", ask)
    assert bench.turn() == []
    assert asked == []
    bench.relay.take(node.address, bench.request(node, 0))
    assert len(bench.turn()) == 2
    assert asked == [0]


def test_a_forged_submission_is_refused_in_words(bench: Bench) -> None:
    game = bench.game
    (_, node), (_, thief) = game.node(), game.node()
    game.publish()
    bench.view.refresh()
    mine = bench.request(node, 0)
    elsewhere = work("elsewhere").signed(node, replace(game.pool_id, pool=game.pool + 1), 0, 0).file
    other_chain = work("elsewhere").signed(node, replace(game.pool_id, chain_id=1), 0, 0).file
    for sender, forged in (
        (thief, mine),
        (node, elsewhere),
        (node, other_chain),
        (node, mine.model_copy(update={"units": 99_999})),
        (node, mine.model_copy(update={"counter": 1})),
    ):
        with pytest.raises(IntegrityError, match=rf"for pool {game.pool} is not signed by {sender.address}"):
            bench.relay.take(sender.address, forged)
    with pytest.raises(IntegrityError, match=r"the signature of submission .*: a signature ends in 27 or 28, not 0"):
        bench.relay.take(node.address, mine.model_copy(update={"signature": mine.signature[:-2] + "00"}))
    assert bench.turn() == []


def test_strangers_missing_bytes_and_counters_out_of_reach_are_refused(bench: Bench) -> None:
    game = bench.game
    _, node = game.node()
    game.publish()
    bench.view.refresh()
    stranger, missing = game.deployed.chain.account(), work("never uploaded").signed(node, game.pool_id, 0, 0).file
    for sender, request, status, words in (
        (stranger, bench.request(stranger, 0), 403, "has not joined"),
        (node, missing, 404, "is not in the bucket"),
        (node, bench.request(node, MOST_LEASES), 409, f"file {MOST_LEASES} is too far ahead of file 0"),
    ):
        with pytest.raises(HttpError, match=words) as refused:
            bench.relay.take(sender.address, request)
        assert refused.value.status == status
    most = bench.relay.take(node.address, bench.request(node, MOST_LEASES - 1))
    assert most.state == "waiting", "as many files may wait as a node may make at a time"
    bench.hand_in(node, 0)
    bench.turn()
    with pytest.raises(HttpError, match="on chain with other bytes") as refused:
        bench.relay.take(node.address, bench.request(node, 0, "another"))
    assert refused.value.status == 409


def pause(game: Game) -> None:
    game.suite.pools.pause_pool(game.pool).send()


def close(game: Game) -> None:
    game.suite.pools.close_pool(game.pool).send()


def move_on(game: Game) -> None:
    for _ in range(game.state.pools[game.pool].terms.maxLag + 1):
        game.publish()


@pytest.mark.parametrize("act", [pause, close, move_on])
def test_the_service_keeps_what_its_receipt_promised(bench: Bench, act: Callable[[Game], None]) -> None:
    game = bench.game
    _, node = game.node()
    game.publish()
    game.deployed.chain.later(2)
    bench.hand_in(node, 0)
    game.deployed.chain.later(2)
    act(game)
    assert [file.status for file in bench.turn()] == [Status.PENDING]


def test_no_file_is_refused_because_an_endpoint_lags(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    game = bench.game
    _, node = game.node()
    game.publish()
    game.deployed.chain.later(2)
    bench.hand_in(node, 0)
    game.deployed.chain.later(2)
    pause(game)
    unknown = game.suite.client.head().number + 9, b"\7" * 32
    monkeypatch.setattr(bench.relay._suite.pools, "anchor", lambda *_: unknown)
    assert bench.turn() == []
    monkeypatch.undo()
    assert len(bench.turn()) == 1, "at once"


def test_a_file_that_its_node_submitted_itself_is_not_relayed(bench: Bench) -> None:
    game = bench.game
    _, node = game.node()
    game.publish()
    receipt = bench.hand_in(node, 0).receipt
    signed = work(f"{node.address} 0").signed(node, game.pool_id, 0, 0)
    game.deployed.suite(node).pools.submit_lane(game.pool, [signed], [receipt]).send()
    sent = bench.nonce(game.service)
    bench.relay.turn()  # its state does not show the file yet
    assert len(bench.turn()) == 1
    assert (bench.nonce(game.service), bench.hand_in(node, 0).state) == (sent, "landed")


def test_a_key_that_the_owner_did_not_name_relays_nothing_and_says_so(bench: Bench) -> None:
    game = bench.game
    _, node = game.node()
    game.publish()
    bench.hand_in(node, 0)
    other = game.deployed.chain.account()
    bench.start(other)
    with pytest.raises(ConfigError) as wrong:
        bench.turn()
    expected = f"this service has the key {other.address}, and the pool's owner named {game.service.address}"
    assert wrong.value.what == expected
    shown = bench.view.unrelayed
    assert shown == f"files are not relayed: {expected}"
    assert printable(shown, LONGEST) == shown
    bench.start(game.service)
    assert len(bench.turn()) == 1


def test_a_service_key_without_gas_says_so_until_it_has_some(bench: Bench) -> None:
    game, chain = bench.game, bench.game.deployed.chain
    _, node = game.node()
    game.publish()
    bench.hand_in(node, 0)
    chain.fund(game.service.address, 0)
    with pytest.raises(TransactionError, match="ETH for gas"):
        bench.turn()
    assert "ETH for gas" in bench.view.unrelayed
    chain.fund(game.service.address, ETHER)
    assert (len(bench.turn()), bench.view.unrelayed) == (1, "")
