"""A small pool with eleven seats, played on a real chain: what tests of state, follower and facades share."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from chain.contracts import BallotContract, Place, SignedFile
from chain.indexer.follower import Follower
from chain.indexer.projection import Projection
from chain.indexer.records import Submission, Terms
from chain.indexer.state import State
from chain.suite import Suite
from protocol.accounts import LocalAccount
from protocol.api.work import UNSIGNED, ReceiptSigner, SubmissionRequest, UploadReceipt
from protocol.identity import PoolId
from tests.conftest import TOKEN, Deployed

RATE, FEE = 1000, 50_000_000
SEATS = 2 * 3 + 5
"""Two committees and a jury of different seats."""


def terms(**changes: object) -> Terms:
    values: dict[str, object] = {
        "rate": RATE,
        "fee": FEE,
        "juryFee": 2 * FEE,
        "minStake": 10 * TOKEN,
        "leverage": 100,
        "maxUnits": 100_000,
        "committee": 3,
        "jury": 5,
        "appealJury": 0,
        "maxLag": 2,
        "auditRate": 65536,
        "drawBlocks": 24,
        "commitWindow": 30,
        "revealWindow": 30,
        "challengeWindow": 60,
        "appealWindow": 30,
        "juryCommitWindow": 30,
        "juryRevealWindow": 30,
        "receiptWindow": 30,
        "group": 0,
        "inviteOnly": False,
        "configHash": hashlib.sha256(b"config").digest(),
    }
    return Terms.of(values | changes)


@dataclass(frozen=True)
class WorkItem:
    """What a node says of its file: Merkle root and SHA-256 (32 bytes each), units and rows."""

    root: bytes
    sha256: bytes
    units: int
    rows: int

    def signed(
        self, node: LocalAccount, pool: PoolId, step: int, counter: int, seed: bytes | None = None
    ) -> SignedFile:
        hashes = {"root": self.root.hex(), "sha256": self.sha256.hex(), "size": 1000, "signature": UNSIGNED}
        hashes |= {"seed": seed.hex()} if seed else {}
        said = SubmissionRequest(step=step, counter=counter, units=self.units, rows=self.rows, **hashes)  # type: ignore[arg-type]
        return SignedFile(str(node.address), said.signed(node, pool))


def work(text: str, units: int = 1000, rows: int = 8) -> WorkItem:
    root, sha256 = (hashlib.sha256(word + text.encode()).digest() for word in (b"root", b""))
    return WorkItem(root, sha256, units, rows)


@dataclass
class Game:
    """`voters[seat]` is a seat's suite for its voting key; `owner` owns the pool, `validator` all seats. `service`:
    the key that relays files."""

    deployed: Deployed
    projection: Projection
    owner: LocalAccount
    service: LocalAccount
    validator: Suite
    voters: dict[int, Suite] = field(default_factory=dict)
    pool: int = 0

    @property
    def state(self) -> State:
        self.projection.refresh()
        return self.projection.state

    @property
    def suite(self) -> Suite:
        return self.deployed.suite(self.owner)

    def node(self, stake: int = 100 * TOKEN) -> tuple[LocalAccount, LocalAccount]:
        """(operator, node), registered and joined."""
        operator, node = self.deployed.rich(), self.deployed.chain.account()
        suite = self.deployed.suite(operator)
        expiry = suite.client.now() + 3600
        consent = suite.stakes.sign_consent(node, operator.address, expiry)
        suite.stakes.register_node(node.address, operator.address, 0, stake, expiry, consent).send()
        suite.pools.join(self.pool, node.address).send()
        return operator, node

    def publish(self, canary_root: bytes = bytes(32)) -> int:
        """The next step, with its seed block mined."""
        step = self.state.pools[self.pool].step + 1
        manifest = hashlib.sha256(f"step {step}".encode()).digest()
        seed_block = self.suite.pools.publish_step(self.pool, step, manifest, canary_root).send()
        self.mine_to(seed_block + 1)
        return step

    def mine_to(self, block: int) -> None:
        head = self.suite.client.head().number
        if head < block:
            self.deployed.chain.mine(block - head)

    @property
    def pool_id(self) -> PoolId:
        return PoolId(self.suite.client.chain_id, self.suite.pools.address, self.pool)

    def submit(self, node: LocalAccount, step: int, item: WorkItem, receipt: UploadReceipt | None = None) -> Submission:
        """A lane of one file: by the service, or by the node itself with its receipt."""
        if receipt is None:
            return self.submit_lane(step, (node, item))[0]
        counter = self.state.accounts[self.pool, node.address].counter
        pools = self.deployed.suite(node).pools
        pools.submit_lane(self.pool, [item.signed(node, self.pool_id, step, counter)], [receipt]).send()
        return self.state.submissions[self.pool, self.state.pools[self.pool].sequences[-1]]

    def submit_lane(self, step: int, *files: tuple[LocalAccount, WorkItem]) -> list[Submission]:
        """The service relays files as one lane."""
        state, given = self.state, Counter[str]()
        signed = []
        for node, item in files:
            counter = state.accounts[self.pool, node.address].counter + given[node.address]
            signed.append(item.signed(node, self.pool_id, step, counter))
            given[node.address] += 1
        self.deployed.suite(self.service).pools.submit_lane(self.pool, signed).send()
        return [self.state.submissions[self.pool, one] for one in self.state.pools[self.pool].sequences[-len(files) :]]

    def receipt(self, node: str, sha256: bytes, time: int) -> UploadReceipt:
        """The service's word that a node's file was uploaded at chain time `time`."""
        return ReceiptSigner(self.service, self.pool_id).sign(node, sha256.hex(), 1000, time)

    def committee(self, lane: int, round: int = 0) -> tuple[int, ...]:
        """The seats of a lane's committee, once its seed block is mined."""
        self.mine_to(self.state.lanes[self.pool, lane].rounds[round].seed_block + 1)
        committee = self.suite.court.committee_of((self.pool, lane, round))
        assert committee is not None
        return committee.seats

    def draw(self, lane: int) -> None:
        """Draw the newest committee, as anybody may after half of the time for it: from now on silence costs."""
        state = self.state
        current, terms = state.lanes[self.pool, lane].round, state.pools[self.pool].terms
        self.mine_to(current.seed_block + terms.drawBlocks // 2)
        self.suite.court.call("draw", self.pool, lane, current.round).send()

    def vote(self, lane: int, codes: Mapping[int, int], round: int = 0) -> None:
        """Draw, commit, reveal and settle; `codes`: place → code that every member votes."""
        place, seats = (self.pool, lane, round), self.committee(lane, round)
        word = sum(code << (4 * place) for place, code in codes.items())
        self.cast(place, [(self.voters[seat].court, word) for seat in seats])
        self.settle(lane, round)

    def cast(self, place: Place, votes: Sequence[tuple[BallotContract, int]], pause: int = 0) -> None:
        """Commit and reveal a word of codes as each of the first members, `pause` seconds before the second."""
        verdict, salt = b"\x08" * 32, b"\x07" * 32
        for member, (contract, word) in enumerate(votes):
            commitment = contract.ballot_hash(place, contract.client.address, word, verdict, salt)
            contract.commit(place, member, commitment).send()
        if pause:
            self.deployed.chain.later(pause)
        for member, (contract, word) in enumerate(votes):
            contract.reveal(place, member, word, verdict, salt).send()

    def settle(self, lane: int, round: int = 0) -> None:
        files = self.state.files_of(self.state.lanes[self.pool, lane])
        self.suite.court.settle((self.pool, lane, round), files).send()

    def again(self, file: Submission) -> Submission:
        """The file as it stands now."""
        return self.state.submissions[file.pool, file.sequence]

    def hint(self, node: LocalAccount) -> Submission | None:
        """What a claim of the node would name now."""
        return self.state.claim_hint(self.pool, node.address, self.suite.client.now())

    def claim(self, node: LocalAccount) -> int:
        """Claim what has vested; the base units that the operator got."""
        hint = self.hint(node)
        assert hint is not None
        return self.suite.pools.claim(hint).send()

    def forfeit(self, file: Submission) -> None:
        call = self.suite.pools.call("forfeit", *file.named)
        replace(call, before=self.suite.pools.unpacking([file])).send()

    def draw_jury(self, trial: int) -> None:
        """As anybody can, an epoch after its seed block."""
        self.mine_to(self.state.trials[trial].seed_block + self.suite.seats.epoch_blocks() + 1)
        self.suite.juries.draw(trial).send()

    def try_case(self, trial: int, code: int) -> None:
        """All jurors vote `code`."""
        self.mine_to(self.state.trials[trial].seed_block + 1)
        jury = self.suite.juries.committee_of((trial,))
        assert jury is not None
        self.cast((trial,), [(self.voters[seat].juries, code) for seat in jury.seats])


def begin(deployed: Deployed, folder: Path, budget: int = 1000 * TOKEN, **changes: object) -> Game:
    """An open pool with as many drawable seats as it needs, step 0 not yet published; its terms with `changes`."""
    owner, service = deployed.rich(), deployed.chain.account()
    suite = deployed.suite(owner)
    follower = Follower(suite.client, deployed.deployment, folder / "events.db")
    # Not the pool's owner: its seats may not judge its canaries.
    bonded = deployed.suite(deployed.rich())
    game = Game(deployed, Projection(follower), owner, service, bonded)
    game.pool = suite.pools.create_pool(terms(**changes), budget).send()
    suite.court.set_service(game.pool, service.address).send()
    bonded.token.approve(suite.seats.address, SEATS * suite.seats.bond()).send()
    for _ in range(SEATS):
        voter = deployed.chain.account()
        game.voters[bonded.seats.open_seat(voter.address, [game.pool]).send()] = deployed.suite(voter)
    deployed.chain.mine(2 * suite.seats.epoch_blocks())
    suite.pools.review_seats(game.pool).send()
    return game
