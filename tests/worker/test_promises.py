"""What a receipt promises, on a real chain: a file that the pool's storage took in time is judged and paid, whatever
the service or the owner does then."""

import logging
from collections.abc import Callable
from functools import cache

import pytest

from chain.indexer.records import Status
from protocol.api.work import MOST_HANDED_IN, HeartbeatRequest
from protocol.verdict import Code
from runtime.entry import Exit
from tests.chain.game import RATE, Game
from tests.conftest import ETHER
from tests.worker.world import ScriptedService, WorkerWorld
from worker.decide import relay_patience
from worker.journal import Journal


def paid(world: WorkerWorld, sequence: int) -> int:
    """Base units that the node's claim pays once the file is accepted and vested."""
    game = world.game
    game.vote(sequence >> 4, {sequence & 15: Code.ACCEPT})
    game.deployed.chain.later(61)
    hint = game.state.claim_hint(game.pool, world.account.address, game.suite.client.now())
    assert hint is not None
    return game.suite.pools.claim(hint).send()


def nonce(world: WorkerWorld) -> int:
    """How many transactions the node has sent."""
    return int(world.game.deployed.chain.rpc("eth_getTransactionCount", world.account.address, "latest"), 16)


def patience(world: WorkerWorld) -> int:
    return relay_patience(world.game.state.pools[world.game.pool].terms)


def test_a_worker_without_ether_is_relayed_and_paid(world: WorkerWorld) -> None:
    world.game.deployed.chain.fund(world.account.address, 0)
    assert world.start(ScriptedService(files=1)).run() == Exit.DONE
    (file,) = world.submissions
    assert paid(world, file.sequence) == file.units * RATE
    assert nonce(world) == 0


def test_a_censored_worker_submits_by_its_receipt_once_the_service_had_its_time(world: WorkerWorld) -> None:
    service = ScriptedService(files=1, relays=False)
    worker = world.start(service)
    waited = list[int]()

    def beat(sent: HeartbeatRequest) -> None:
        """Let time pass once the file is handed in; nothing is sent before."""
        if service.handed_in and not waited:
            waited.append(nonce(world))
            world.game.deployed.chain.later(patience(world))

    service.beat = beat
    assert worker.run() == Exit.DONE
    (file,) = world.submissions
    assert (waited, nonce(world)) == ([0], 1)
    assert paid(world, file.sequence) == file.units * RATE


def test_a_worker_makes_files_while_the_first_ones_wait(world: WorkerWorld) -> None:
    service = ScriptedService(files=MOST_HANDED_IN + 1, relays=False)
    worker = world.start(service)

    def beat(sent: HeartbeatRequest) -> None:
        if len(service.handed_in) >= MOST_HANDED_IN and sent.phase == "waiting":
            service.relays = True
            service.relay()

    service.beat = beat
    assert worker.run() == Exit.DONE
    assert [file.counter for file in world.submissions] == list(range(MOST_HANDED_IN + 1))
    # One more may have been under way when the last of them was handed in.
    assert [file.lane for file in world.submissions[:MOST_HANDED_IN]] == [0] * MOST_HANDED_IN


def test_a_worker_killed_after_handing_in_loses_and_repeats_nothing(world: WorkerWorld) -> None:
    first = ScriptedService(files=2, relays=False)
    killed = world.start(first)
    first.after = killed.stop
    killed.run()
    assert world.submissions == []
    entry, *_ = Journal(world.folder / "journal").all()  # the next one may be finished, too
    second = ScriptedService(files=2)
    assert world.start(second).run() == Exit.DONE
    assert [file.sha256.hex() for file in world.submissions] == [one.file.sha256 for one in second.handed_in]
    assert world.submissions[0].sha256 == entry.sha256
    assert first.handed_in == second.handed_in[:1], "the same signature"


def test_a_worker_without_ether_says_what_to_do_until_it_is_relayed(
    world: WorkerWorld, caplog: pytest.LogCaptureFixture
) -> None:
    game, service = world.game, ScriptedService(files=1, relays=False)
    game.deployed.chain.fund(world.account.address, 0)
    worker = world.start(service)
    service.receipt = cache(service.receipt)  # the service keeps the time of the first one
    service.after = lambda: game.deployed.chain.later(patience(world))

    def beat(sent: HeartbeatRequest) -> None:
        if "send ether to" in caplog.text:
            game.deployed.chain.fund(world.account.address, ETHER)

    service.beat = beat
    with caplog.at_level(logging.INFO, "muster.worker"):
        assert worker.run() == Exit.DONE
    assert f"the service does not relay file 0: send ether to {world.account.address}" in caplog.text
    assert len(world.submissions) == 1


def test_a_worker_without_ether_hands_in_again_what_the_service_lost(world: WorkerWorld) -> None:
    game, service = world.game, ScriptedService(files=1, relays=False)
    game.deployed.chain.fund(world.account.address, 0)
    worker = world.start(service)

    def lost() -> None:
        service.handed_in.clear()
        service.relays, service.after = True, lambda: None
        game.deployed.chain.later(patience(world))

    service.after = lost
    assert worker.run() == Exit.DONE
    assert (len(world.submissions), nonce(world)) == (1, 0)


def test_a_worker_says_why_the_service_cannot_relay_its_file(
    world: WorkerWorld, caplog: pytest.LogCaptureFixture
) -> None:
    service = ScriptedService(files=1, relays=False)
    service.refuses = "the pool's budget has 0 tokens left"
    worker = world.start(service)

    def beat(sent: HeartbeatRequest) -> None:
        if "is not taken" in caplog.text:
            worker.stop()

    service.beat = beat
    with caplog.at_level(logging.INFO, "muster.worker"):
        worker.run()
    assert "file 0 is not taken: the pool's budget has 0 tokens left" in caplog.text


def close(game: Game) -> None:
    game.suite.pools.close_pool(game.pool).send()


def pause(game: Game) -> None:
    game.suite.pools.pause_pool(game.pool).send()


def remove(game: Game) -> None:
    (node,) = (node for _, node in game.state.accounts)
    game.suite.pools.remove_node(game.pool, node).send()


def move_on(game: Game) -> None:
    for _ in range(game.state.pools[game.pool].terms.maxLag + 1):
        game.publish()


@pytest.mark.parametrize("act", [close, pause, remove, move_on])
def test_an_owner_cannot_take_a_file_and_then_refuse_it(world: WorkerWorld, act: Callable[[Game], None]) -> None:
    game, service = world.game, ScriptedService(files=1, relays=False)
    worker = world.start(service)

    def taken() -> None:
        game.deployed.chain.later(1)
        act(game)
        game.deployed.chain.later(patience(world))

    def beat(sent: HeartbeatRequest) -> None:
        if act is pause and game.projection.state.submissions:
            worker.stop()

    service.after = taken
    service.beat = beat
    assert worker.run() in (Exit.DONE, Exit.EJECTED)
    (file,) = world.submissions
    assert file.status is Status.PENDING
    assert paid(world, file.sequence) == file.units * RATE


@pytest.mark.parametrize("act", [pause, remove, move_on])
def test_without_an_earlier_receipt_the_same_act_refuses_it(world: WorkerWorld, act: Callable[[Game], None]) -> None:
    """The receipt is given after the owner's act: it promises nothing."""
    game, service = world.game, ScriptedService(files=1, relays=False)
    worker = world.start(service)

    def late() -> None:
        act(game)
        game.deployed.chain.later(5)

    def beat(sent: HeartbeatRequest) -> None:
        if any(entry.overdue for entry in Journal(world.folder / "journal").all()):
            worker.stop()

    service.before, service.after = late, lambda: game.deployed.chain.later(patience(world))
    service.beat = beat
    assert worker.run() in (Exit.DONE, Exit.EJECTED)
    assert world.submissions == []
    (entry, *_) = Journal(world.folder / "journal").all()
    assert (entry.receipt is not None, entry.overdue) == (True, True)


def test_receipts_of_the_key_before_the_last_rotation_count_for_a_while(world: WorkerWorld) -> None:
    game = world.game
    old, new = game.service, game.deployed.chain.account()
    assert world.start(ScriptedService(files=1)).run() == Exit.DONE
    game.suite.court.set_service(game.pool, new.address).send()
    pool, now = game.state.pools[game.pool], game.suite.client.now()
    assert pool.previous_until == now + pool.terms.receiptWindow + 1
    taken = [pool.is_service(key.address, at) for key in (old, new) for at in (now, pool.previous_until)]
    assert taken == [True, False, True, True]
    assert world.start(ScriptedService(files=2)).run() == Exit.DONE
    game.deployed.chain.later(pool.terms.receiptWindow + 1)
    game.service = new
    assert world.start(ScriptedService(files=3)).run() == Exit.DONE
    assert [file.counter for file in world.submissions] == [0, 1, 2]


def test_nothing_is_handed_in_for_good_on_the_word_of_a_key_that_the_owner_did_not_name(world: WorkerWorld) -> None:
    world.game.service, service = world.game.deployed.chain.account(), ScriptedService(files=1, relays=False)
    worker = world.start(service)
    service.after = worker.stop
    assert worker.run() == Exit.DONE
    assert world.submissions == []
    assert [entry.receipt for entry in Journal(world.folder / "journal").all()] == [None]
