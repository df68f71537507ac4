"""What a receipt promises, on a real chain: a file that the pool's storage took in time is judged and paid, whatever
the service or the owner does then."""

from collections.abc import Callable

import pytest

from chain.errors import ContractError
from chain.indexer.records import Status, Submission
from protocol.api.work import HeartbeatRequest, HeartbeatResponse
from protocol.verdict import Code
from runtime.entry import Exit
from tests.chain.game import RATE, Game, work
from tests.worker.world import ScriptedService, WorkerWorld
from worker.journal import Journal
from worker.submit import ReceiptKeeper, worth_presenting


def keeper(world: WorkerWorld) -> ReceiptKeeper:
    """That of a worker which was killed and started again: it has the journal and nothing else."""
    return ReceiptKeeper(world.collaborators(ScriptedService(files=0)), 1.0)


def paid(world: WorkerWorld, sequence: int) -> int:
    """Base units that the node's claim pays once the file is accepted and vested."""
    game = world.game
    game.vote(sequence >> 4, {sequence & 15: Code.ACCEPT})
    game.deployed.chain.later(61)
    hint = game.state.claim_hint(game.pool, world.account.address, game.suite.client.now())
    assert hint is not None
    return game.suite.pools.claim(hint).send()


def beside_a_friend(world: WorkerWorld, files: int = 1) -> list[Submission]:
    """The worker's files in a lane that waits for the service anyway: a friend's is in it, without a receipt."""
    friend = world.game.node()[1]
    step = world.game.publish()
    world.game.submit(friend, step, work("a friend's"))
    assert world.start(ScriptedService(files=files)).run() == Exit.DONE
    return world.submissions[1:]


def test_a_worker_brings_its_receipt_where_lanes_hold_few_files(world: WorkerWorld) -> None:
    """The service never attests anything."""
    game = world.game
    assert world.start(ScriptedService(files=1)).run() == Exit.DONE
    (file,) = world.submissions
    lane = game.state.lane_of(file)
    assert (lane.attested, lane.round.seed_block) == (1, lane.last_block + 1)
    seen = game.suite.court.read("roundOf", game.pool, lane.lane, 0)
    assert seen["seedBlock"] == lane.round.seed_block
    assert paid(world, file.sequence) == file.units * RATE


def test_a_lane_that_waits_for_the_service_anyway_is_left_to_it(world: WorkerWorld) -> None:
    (file,) = beside_a_friend(world)
    assert (file.place, world.game.state.lane_of(file).attested) == (1, 0)


def test_a_file_whose_receipt_is_not_taken_is_submitted_without_it(world: WorkerWorld) -> None:
    """The service's clock is ahead of the chain's, which goes on by a second a block however long the test takes."""
    game = world.game
    service = ScriptedService(files=1)
    worker = world.start(service)
    service.receipt = lambda sha256: game.receipt(world.account.address, sha256, game.suite.client.now() + 10)
    game.deployed.chain.rpc("anvil_setBlockTimestampInterval", 1)
    try:
        assert worker.run() == Exit.DONE
    finally:
        game.deployed.chain.rpc("anvil_removeBlockTimestampInterval")
    (file,) = world.submissions
    assert game.state.lane_of(file).attested == 0


@pytest.mark.parametrize(("files", "worth"), [(0, True), (4, True), (5, False), (16, False)])
def test_receipts_are_worth_their_gas_where_the_last_lane_held_few_files(
    world: WorkerWorld, files: int, worth: bool
) -> None:
    game = world.game
    friend = game.node()[1]
    step = game.publish()
    items = [work(f"{i}").as_tuple(game.pool, step, i) for i in range(files)]
    if items:
        game.deployed.suite(friend).pools.call("submitMany", items).send()
        assert not worth_presenting(game.state, game.pool) or files == 16, "it waits for the service"
        game.mine_to(game.state.lanes[game.pool, 0].last_block)
    assert worth_presenting(game.state, game.pool) == worth


def test_a_worker_presents_its_receipt_to_a_chain_whose_service_is_silent_and_is_paid(world: WorkerWorld) -> None:
    game = world.game
    (file,) = beside_a_friend(world)
    lane = game.state.lane_of(file)
    game.mine_to(lane.last_block + 1)
    again = keeper(world)
    again.once()
    assert game.state.lane_of(file).attested == 0, "the service has half of the time for itself"
    game.mine_to(lane.last_block + 2)
    again.once()
    assert game.state.lane_of(file).attested == 0b10
    assert paid(world, file.sequence) == file.units * RATE


def test_what_the_service_leaves_out_on_purpose_is_attested_by_its_receipt(world: WorkerWorld) -> None:
    game = world.game
    (file,) = beside_a_friend(world)
    game.attest(0, 0b01)
    game.mine_to(game.state.lane_of(file).last_block + 2)
    keeper(world).once()
    assert game.state.lane_of(file).attested == 0b11
    assert paid(world, file.sequence) == file.units * RATE


def test_one_receipt_that_the_chain_refuses_does_not_hold_up_another(world: WorkerWorld) -> None:
    game = world.game
    beside_a_friend(world, files=2)
    journal = Journal(world.folder / "journal")
    last = journal.all()[-1]
    journal.change(last, receipt=game.receipt(world.account.address, bytes(32), game.suite.client.now()))
    game.mine_to(game.state.lanes[game.pool, 0].last_block + 2)
    keeper(world).once()
    assert game.state.lanes[game.pool, 0].attested == 0b010


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
    game, service = world.game, ScriptedService(files=1)
    worker = world.start(service)

    def taken() -> None:
        act(game)
        game.deployed.chain.rpc("evm_setIntervalMining", 1)

    def heartbeat(beat: HeartbeatRequest) -> HeartbeatResponse:
        if act is pause and game.projection.state.submissions:
            worker.stop()
        return HeartbeatResponse(next=1.0, step=None, lease_expires=None)

    service.after = taken
    service.heartbeat = heartbeat  # type: ignore[method-assign]
    assert worker.run() in (Exit.DONE, Exit.EJECTED)
    (file,) = world.submissions
    assert file.status is Status.PENDING
    game.deployed.chain.rpc("evm_setAutomine", True)
    if not game.state.lane_of(file).attested:
        game.attest(file.lane)
    assert paid(world, file.sequence) == file.units * RATE


@pytest.mark.parametrize("act", [pause, remove, move_on])
def test_without_an_earlier_receipt_the_same_act_refuses_it(world: WorkerWorld, act: Callable[[Game], None]) -> None:
    """The receipt is given after the owner's act: it promises nothing."""
    game, service = world.game, ScriptedService(files=1)
    worker = world.start(service)

    def late() -> None:
        act(game)
        worker.stop()
        game.deployed.chain.later(5)

    service.before = late
    assert worker.run() in (Exit.DONE, Exit.EJECTED)
    assert world.submissions == []
    (entry,) = Journal(world.folder / "journal").all()
    assert (entry.receipt is not None, entry.overdue) == (True, True)


def test_a_worker_of_a_closed_pool_stays_until_its_files_are_attested(world: WorkerWorld) -> None:
    """The service is silent: nobody else has the receipt."""
    game = world.game
    (file,) = beside_a_friend(world)
    close(game)
    game.mine_to(game.state.lane_of(file).last_block + 2)
    assert world.start(ScriptedService(files=9)).run() == Exit.DONE
    assert game.state.lane_of(file).attested == 0b10


def test_receipts_of_the_key_before_the_last_rotation_count_for_a_while(world: WorkerWorld) -> None:
    game = world.game
    old, new = game.service, game.deployed.chain.account()
    assert world.start(ScriptedService(files=1)).run() == Exit.DONE
    game.suite.court.set_service(game.pool, new.address).send()
    pool, now = game.state.pools[game.pool], game.suite.client.now()
    terms = pool.terms
    # a receipt that is good at the submission is good until the file's last chance; a block counts one second here
    life = terms.receiptWindow + terms.laneBlocks + terms.attestBlocks + 1
    assert pool.previous_until == now + life
    taken = [pool.is_service(key.address, at) for key in (old, new) for at in (now, pool.previous_until)]
    assert taken == [True, False, True, True]
    assert world.start(ScriptedService(files=2)).run() == Exit.DONE
    game.deployed.chain.later(life)
    game.service = new
    assert world.start(ScriptedService(files=3)).run() == Exit.DONE
    assert [file.counter for file in world.submissions] == [0, 1, 2]


def test_nothing_is_submitted_on_the_word_of_a_key_that_the_owner_did_not_name(world: WorkerWorld) -> None:
    world.game.service, service = world.game.deployed.chain.account(), ScriptedService(files=1)
    worker = world.start(service)
    service.before = worker.stop
    assert worker.run() == Exit.DONE
    assert world.submissions == []
    assert [entry.receipt for entry in Journal(world.folder / "journal").all()] == [None]


def test_a_receipt_counts_for_its_own_file_node_and_time_only(world: WorkerWorld) -> None:
    game, node = world.game, world.account
    item, now = work("mine"), game.suite.client.now()
    pause(game)
    for name, address, sha256, time in (
        ("BadReceipt", game.owner.address, item.sha256, now),
        ("BadReceipt", node.address, bytes(32), now),
        ("BadReceipt", node.address, item.sha256, now + 3600),
        ("ReceiptOutOfTime", node.address, item.sha256, now - 40),
    ):
        with pytest.raises(ContractError) as refused:
            game.submit(node, 0, item, game.receipt(address, sha256, time))
        assert refused.value.name == name
    assert game.submit(node, 0, item, game.receipt(node.address, item.sha256, now)).counter == 0
