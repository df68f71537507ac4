"""The service attests uploads on a real chain: what was stored is judged and paid, what was not is late and fined."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chain.indexer.records import Status, Submission
from orchestrator.chain import Attestor, ChainWatcher, PoolView
from orchestrator.db import Database, default_url
from orchestrator.uploads import Uploads
from protocol.accounts import LocalAccount
from protocol.api.work import ReceiptRequest, ReceiptSigner
from protocol.errors import UnreachableError, printable
from protocol.identity import PoolId
from protocol.verdict import Code
from protocol.waits import wait_for
from runtime.diagnose import LONGEST
from storage.keys import object_key
from tests.chain.game import FEE, RATE, Game, begin, work
from tests.conftest import ETHER, TOKEN, Deployed
from tests.orchestrator.conftest import FakeBucket


class FailingBucket(FakeBucket):
    """A bucket that may be out of reach."""

    down = False

    def size(self, key: str) -> int | None:
        if self.down:
            raise UnreachableError("S3 does not answer")
        return super().size(key)


class Bench:
    """A service with the game's service key, its database on disk and its bucket in memory."""

    def __init__(self, game: Game, home: Path) -> None:
        self.game, self.home, self.bucket, self.ahead = game, home, FailingBucket(), 0.0
        self.start(game.service)

    def start(self, key: LocalAccount) -> None:
        """As after kill -9: nothing of the old process is used again."""
        pool = PoolId(self.game.suite.client.chain_id, self.game.suite.pools.address, self.game.pool)
        self.view, receipts = PoolView(self.game.projection, self.game.pool, 1), ReceiptSigner(key, pool)
        db, clock = Database(default_url(self.home)), lambda: time.time() + self.ahead
        self.uploads = Uploads(db, self.view, self.bucket, receipts, clock=clock)
        court = self.game.deployed.suite(key).court
        attestor = Attestor(court, self.game.pool, (self.uploads.has_receipt, self.uploads.is_stored))
        self.watcher = ChainWatcher(self.view, self.game.suite, attestor)

    def submit(self) -> Submission:
        """A new node's file, of a new policy step."""
        _, node = self.game.node()
        return self.game.submit(node, self.game.publish(), work("file"))

    def upload(self, file: Submission, *, receipt: bool = True) -> None:
        self.bucket.sizes[object_key("rollouts", file.sha256)] = 100
        if receipt:
            self.uploads.receipt(file.node, ReceiptRequest(sha256=file.sha256.hex(), size=100))

    def attest(self) -> int:
        """One poll of the chain watcher, and whatever it began. Return what of the first lane is attested."""
        self.watcher.poll()
        for thread in threading.enumerate():
            if thread.name.startswith("lane "):
                thread.join(100)
        self.watcher.poll()
        return self.attested

    @property
    def attested(self) -> int:
        return self.game.state.lanes[self.game.pool, 0].attested

    def end_lane(self) -> int:
        """Let the first lane end; return what of it is attested then."""
        self.game.mine_to(self.game.state.lanes[self.game.pool, 0].last_block)
        return self.attest()


@pytest.fixture
def bench(deployed: Deployed, tmp_path: Path) -> Bench:
    return Bench(begin(deployed, tmp_path), tmp_path)


def test_what_was_uploaded_is_judged_and_paid_and_what_never_was_is_late_and_fined(bench: Bench) -> None:
    game = bench.game
    (operator, node), (_, absent) = game.node(), game.node()
    step = game.publish()
    good, missing = game.submit(node, step, work("good")), game.submit(absent, step, work("never uploaded"))
    bench.upload(good)
    assert bench.attest() == 0, "the lane still takes files"
    assert (bench.end_lane(), bench.view.error) == (0b01, "")
    free = game.suite.pools.pool_of(game.pool).free
    game.vote(0, {0: Code.ACCEPT})
    state = game.state
    assert state.submissions[game.pool, good.sequence].status is Status.ACCEPTED
    late = state.submissions[game.pool, missing.sequence]
    assert late.status is Status.LATE
    assert game.suite.pools.pool_of(game.pool).free == free + missing.units * RATE + (6 + 3) * FEE
    game.suite.pools.finalize(late).send()
    fine = state.params_at(game.suite.client.now())["malformedPenalty"]
    assert game.state.nodes[absent.address].stake == 100 * TOKEN - fine
    assert game.state.nodes[node.address].stake == 100 * TOKEN
    game.deployed.chain.later(61)
    before = game.state.balances[operator.address]
    hint = game.state.claim_hint(game.pool, node.address, game.suite.client.now())
    assert hint is not None
    game.suite.pools.claim(hint).send()
    assert game.state.balances[operator.address] == before + good.units * RATE
    assert game.state.claim_hint(game.pool, absent.address, 2**40) is None
    game.suite.court.close_committee(game.pool, 0, 0).send()
    assert sum(seat.earned for seat in game.state.seats.values()) == 3 * FEE


def test_lanes_that_end_in_one_block_are_all_attested(bench: Bench) -> None:
    """Two nodes fill a lane each in the same block."""
    game, chain = bench.game, bench.game.deployed.chain
    nodes = [game.node()[1] for _ in range(2)]
    step = game.publish()
    works = [[work(f"{i} {j}", units=10) for j in range(16)] for i in range(2)]
    chain.rpc("evm_setAutomine", False)
    with ThreadPoolExecutor(2) as senders:
        for node, items in zip(nodes, works, strict=True):
            call = game.deployed.suite(node).pools.call(
                "submitMany", [item.as_tuple(game.pool, step, i) for i, item in enumerate(items)]
            )
            senders.submit(call.send)
        wait_for("both to be sent", lambda: int(chain.rpc("txpool_status")["pending"], 16) == 2, 100)
        chain.mine()
    chain.rpc("evm_setAutomine", True)
    lanes = list(game.state.lanes.values())
    assert [(len(lane.sequences), lane.last_block) for lane in lanes] == [(16, game.state.head)] * 2
    for lane in lanes:
        for file in game.state.files_of(lane):
            bench.upload(file)
    bench.attest()
    assert [lane.attested for lane in game.state.lanes.values()] == [0xFFFF] * 2


def test_a_bucket_that_does_not_answer_holds_up_no_file_with_a_receipt_and_is_asked_again(bench: Bench) -> None:
    game = bench.game
    _, node = game.node()
    step = game.publish()
    known, found = game.submit(node, step, work("receipt")), game.submit(node, step, work("bucket only"))
    bench.upload(known)
    bench.upload(found, receipt=False)
    bench.bucket.down = True
    assert bench.end_lane() == 0b01
    assert bench.view.error == "lane 0 is not attested: S3 does not answer"
    bench.bucket.down = False
    game.deployed.chain.mine()
    assert (bench.attest(), bench.view.error) == (0b11, "")


def test_a_file_that_vanished_after_its_receipt_was_given_is_attested(bench: Bench) -> None:
    """Its worker has the receipt: the service's word binds it."""
    bench.upload(bench.submit())
    bench.bucket.sizes.clear()
    assert bench.end_lane() == 1


def test_naming_a_file_again_that_the_bucket_has_forgotten_is_not_attested(bench: Bench) -> None:
    """It would be judged unavailable, and paid."""
    game = bench.game
    _, node = game.node()
    step = game.publish()
    bench.upload(game.submit(node, step, work("paid long ago")))
    bench.ahead = game.state.pools[game.pool].terms.receiptWindow + 1
    bench.bucket.sizes.clear()
    game.submit(node, step, work("paid long ago"))
    assert bench.end_lane() == 0


def test_a_lane_whose_attestation_a_reorganisation_took_away_is_attested_again(bench: Bench) -> None:
    bench.upload(bench.submit())
    assert bench.end_lane() == 1
    bench.game.deployed.chain.rpc("anvil_reorg", 1, [])
    assert bench.attested == 0
    bench.game.deployed.chain.mine()
    assert bench.attest() == 1


def test_a_key_that_the_owner_did_not_name_attests_nothing_and_says_so(bench: Bench) -> None:
    game = bench.game
    file = bench.submit()
    other = game.deployed.chain.account()
    bench.start(other)
    bench.upload(file)
    assert bench.end_lane() == 0
    expected = f"this service has the key {other.address}, and the pool's owner named {game.service.address}; start it"
    assert bench.view.error.startswith(expected)
    assert printable(bench.view.error, LONGEST) == bench.view.error, "an alarm would cut off how to mend it"
    bench.start(game.service)
    assert (bench.attest(), bench.view.error) == (1, "")


def test_a_service_key_without_gas_says_so_until_it_has_some(bench: Bench) -> None:
    game, chain = bench.game, bench.game.deployed.chain
    bench.upload(bench.submit())
    chain.fund(game.service.address, 0)
    assert bench.end_lane() == 0
    assert "lane 0 is not attested" in bench.view.error
    assert "ETH for gas" in bench.view.error
    chain.fund(game.service.address, ETHER)
    chain.mine()
    assert (bench.attest(), bench.view.error) == (1, "")
