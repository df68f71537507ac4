"""A service with the game's service key on a real chain, its database on disk and its bucket in memory."""

import time
from pathlib import Path

from chain.indexer.records import Submission
from orchestrator.chain import PoolView
from orchestrator.db import Database, default_url
from orchestrator.relay import Claims, Relay
from orchestrator.sponsor import Sponsor
from orchestrator.uploads import Uploads
from protocol.accounts import LocalAccount
from protocol.api.work import ReceiptSigner, SubmissionRequest, SubmissionResponse
from storage.keys import object_key
from tests.chain.game import Game, work
from tests.orchestrator.conftest import FakeBucket


class Bench:
    """`leads`: whether this replica leads; `ahead`: how far its clock is ahead, in seconds."""

    def __init__(self, game: Game, home: Path) -> None:
        self.game, self.home, self.bucket = game, home, FakeBucket()
        self.ahead, self.leads, self.lane_seconds = 0.0, True, 0.0
        self.start(game.service)

    def start(self, key: LocalAccount, most: int = 0, a_day: int = 16) -> None:
        """As after kill -9: nothing of the old process is used again."""
        self.view = PoolView(self.game.projection, self.game.pool, 1)
        self.view.refresh()
        db, receipts = Database(default_url(self.home)), ReceiptSigner(key, self.game.pool_id)
        self.uploads = Uploads(db, self.view, self.bucket, receipts, 1 << 20, clock=self.clock)
        suite = self.game.deployed.suite(key)
        self.relay = Relay(db, self.view, self.uploads, suite, self.lane_seconds, lambda: self.leads, self.clock)
        self.claims = Claims(self.view, suite.pools)
        self.sponsor = Sponsor(db, self.view, suite, most, a_day, lambda: self.leads, self.clock)

    def clock(self) -> float:
        return time.time() + self.ahead

    def request(self, node: LocalAccount, counter: int, text: str = "", units: int = 1000) -> SubmissionRequest:
        """A node's signed submission for step 0, of a file that is in the bucket."""
        item = work(text or f"{node.address} {counter}", units)
        self.bucket.sizes[object_key("rollouts", item.sha256)] = 1000
        (step, *_), suite = self.view.state.pools[self.game.pool].steps, self.game.suite
        return item.signed(node, self.game.pool_id, 0, counter, suite.step_seed(self.game.pool, step)).file

    def hand_in(self, node: LocalAccount, counter: int, units: int = 1000) -> SubmissionResponse:
        self.view.refresh()
        return self.relay.take(node.address, self.request(node, counter, units=units))

    def turn(self) -> list[Submission]:
        """One turn of the relay on the newest state; all files on chain then."""
        self.view.refresh()
        self.relay.turn()
        self.view.refresh()
        return self.view.state.submissions_of(self.game.pool)

    def nonce(self, key: LocalAccount) -> int:
        """How many transactions a key has sent."""
        return int(self.game.deployed.chain.rpc("eth_getTransactionCount", key.address, "latest"), 16)
