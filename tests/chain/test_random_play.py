"""Random play with reorganisations: whatever happens, the projected state equals the contracts' views."""

import random
from collections import Counter
from pathlib import Path

import pytest

from chain.errors import ContractError
from chain.indexer.records import Lane, Status, Submission
from protocol.accounts import LocalAccount
from protocol.api.work import UploadReceipt
from protocol.verdict import Code
from tests.chain.comparison import compare
from tests.chain.game import Game, begin, work
from tests.conftest import Deployed


class Play:
    """One random game. Moves that the contracts refuse are fine: the state must be right all the same."""

    def __init__(self, game: Game, seed: int) -> None:
        self.game = game
        self.random = random.Random(seed)
        self.nodes = [game.node() for _ in range(6)]
        self.counts: Counter[str] = Counter()
        self.uploaded = dict[bytes, UploadReceipt]()
        self.forged = game.receipt(self.nodes[0][1].address, bytes(32), 0)
        self.moves = {
            self.submit: 12,
            self.vote: 14,
            self.attest: 6,
            self.present_receipt: 2,
            self.settle_nothing: 1,
            self.pause_or_resume: 2,
            self.hire_or_dismiss: 1,
            self.rotate_service: 1,
            self.finalize: 3,
            self.claim: 3,
            self.dispute: 3,
            self.judge: 3,
            self.conclude: 3,
            self.close: 3,
            self.forfeit: 2,
            self.pass_time: 6,
            self.publish: 2,
            self.leave_and_join: 1,
            self.reorganise: 2,
        }
        game.publish()

    def step(self) -> None:
        status = self.game.state.pools[self.game.pool].status
        if status != "open" and self.random.random() < 0.4:
            (self.pause_or_resume if status == "paused" else self.hire_or_dismiss)()
        (move,) = self.random.choices(list(self.moves), list(self.moves.values()))
        try:
            move()
            self.counts[move.__name__] += 1
        except (ContractError, IndexError):
            self.counts["refused " + move.__name__] += 1

    def pick(self, **wanted: object) -> Submission:
        files = self.game.state.submissions.values()
        return self.random.choice([s for s in files if all(getattr(s, k) == v for k, v in wanted.items())])

    def node(self) -> tuple[LocalAccount, LocalAccount]:
        return self.random.choice(self.nodes)

    def submit(self) -> None:
        step = self.game.state.pools[self.game.pool].step
        node, item = self.node()[1], work(str(self.random.random()), self.random.randint(1, 3000))
        ago, receipt = self.random.choice([None, None, None, 0, 5, 50]), None
        if ago is not None:
            receipt = self.game.receipt(node.address, item.sha256, self.game.suite.client.now() - ago)
        self.game.submit(node, max(0, step - self.random.randint(0, 3)), item, receipt)
        if receipt is not None:
            self.uploaded[item.sha256] = receipt

    def open_lanes(self) -> list[Lane]:
        """Those of which something can still be attested."""
        state, patience = self.game.state, self.game.state.pools[self.game.pool].terms.attestBlocks
        return [lane for lane in state.lanes.values() if lane.missing and state.head < lane.last_block + patience]

    def attest(self) -> None:
        lane = self.random.choice(self.open_lanes())
        self.game.attest(lane.lane, self.random.randint(1, (1 << len(lane.sequences)) - 1))

    def present_receipt(self) -> None:
        file = self.pick(status=Status.PENDING)
        self.game.mine_to(self.game.state.lane_of(file).last_block)
        self.game.suite.court.attest_by_receipt(file, self.uploaded.get(file.sha256) or self.forged).send()

    def settle_nothing(self) -> None:
        lane = self.random.choice([one for one in self.game.state.lanes.values() if not one.attested])
        self.game.mine_to(lane.last_block + self.game.state.pools[self.game.pool].terms.attestBlocks)
        self.game.settle(lane.lane)

    def pause_or_resume(self) -> None:
        pools, paused = self.game.suite.pools, self.game.state.pools[self.game.pool].status == "paused"
        (pools.resume_pool if paused else pools.pause_pool)(self.game.pool).send()

    def hire_or_dismiss(self) -> None:
        """A seat opts out of the pool, or in again; the pool has just as many as it needs."""
        out = [seat for seat in self.game.state.seats.values() if not seat.groups and seat.active]
        if out:
            self.game.validator.seats.opt_in(out[0].seat, self.game.pool).send()
        else:
            seat = self.random.choice([seat.seat for seat in self.game.state.seats.values() if seat.active])
            self.game.validator.seats.opt_out(seat, self.game.pool).send()
        self.game.deployed.chain.mine(self.game.suite.seats.epoch_blocks())
        self.game.suite.pools.review_seats(self.game.pool).send()
        self.counts[self.game.state.pools[self.game.pool].status] += 1

    def rotate_service(self) -> None:
        service = self.game.deployed.chain.account()
        self.game.suite.court.set_service(self.game.pool, service.address).send()
        self.game.service = service

    def vote(self) -> None:
        attested = [one for one in self.game.state.lanes.values() if one.attested and not one.round.settled]
        lane = self.random.choice(attested + self.open_lanes())
        common = [Code.ACCEPT] * 6 + [Code.REJECT_WEIGHTS, Code.MALFORMED, Code.UNAVAILABLE, Code.UNSURE]
        codes: dict[int, int] = {s.place: self.random.choice(common) for s in self.game.state.files_of(lane)}
        self.game.vote(lane.lane, codes, lane.round.round)

    def finalize(self) -> None:
        refused = self.random.choice([Status.REJECTED, Status.MALFORMED, Status.LATE])
        self.game.suite.pools.finalize(self.pick(status=refused, finalized=False)).send()

    def claim(self) -> None:
        node = self.node()[1]
        if self.game.hint(node) is None:
            raise IndexError
        self.game.claim(node)
        assert self.game.hint(node) is None

    def dispute(self) -> None:
        self.game.suite.appeals.dispute(self.pick(disputed=False, finalized=False)).send()

    def judge(self) -> None:
        trials = [t for t in self.game.state.trials.values() if not t.drawn]
        verdict = self.random.choice([Code.ACCEPT, Code.REJECT_SAMPLING, Code.MALFORMED, Code.UNAVAILABLE])
        self.game.try_case(self.random.choice(trials).trial, verdict)

    def conclude(self) -> None:
        self.game.suite.appeals.conclude(self.pick(disputed=True)).send()

    def close(self) -> None:
        done = [(lane, one) for lane in self.game.state.lanes.values() for one in lane.rounds if one.settled]
        lane, round_ = self.random.choice(done)
        self.game.suite.court.close_committee(lane.pool, lane.lane, round_.round).send()

    def forfeit(self) -> None:
        self.game.forfeit(self.pick(status=self.random.choice([Status.ACCEPTED, Status.UNAVAILABLE])))

    def pass_time(self) -> None:
        self.game.deployed.chain.later(self.random.choice([5, 31, 61, 90]))

    def publish(self) -> None:
        self.game.publish()

    def leave_and_join(self) -> None:
        operator, node = self.node()
        suite = self.game.deployed.suite(operator)
        suite.pools.leave_pool(self.game.pool, node.address).send()
        suite.pools.join(self.game.pool, node.address).send()

    def reorganise(self) -> None:
        # Empty blocks would come out the same again.
        suite = self.game.deployed.suite(self.game.deployed.governance)
        suite.token.mint(self.game.owner.address, 1).send()
        assert self.game.state.head
        self.game.deployed.chain.rpc("anvil_reorg", self.random.randint(1, 3), [])


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_random_play(deployed: Deployed, tmp_path: Path, seed: int) -> None:
    game = begin(deployed, tmp_path)
    play = Play(game, seed)
    for turn in range(240):
        play.step()
        if turn % 15 == 14:
            compare(game)
    assert play.counts["submit"] > 5
    assert play.counts["vote"] > 5
    assert play.counts["attest"] >= 1
    assert any(file.status is Status.LATE for file in game.state.submissions.values())
    assert play.counts["reorganise"] >= 1
    assert game.projection.state.generation >= 1
