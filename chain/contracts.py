"""Typed calls and views of the suite's contracts: one class per contract.

Methods that change a contract return a `ContractCall`, which can be simulated, priced and sent; views read at once.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Generic, TypeVar

from chain import abi
from chain.client import ChainClient, View
from chain.deployment import Deployment
from chain.errors import ContractError
from chain.indexer.logs import Event, decode_logs
from chain.indexer.records import CaseOutcome, Proposal, Submission, Terms, pack_work
from chain.transactions import Call, Receipt
from protocol import signing
from protocol.accounts import LocalAccount
from protocol.api.work import UploadReceipt
from protocol.encoding import encode_words, keccak
from protocol.errors import ConfigError

R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class ContractCall(Call, Generic[R]):
    """A call with checked arguments, not yet sent. The client can simulate and price it like any `Call`; `send` does
    all that the call needs and returns what it is for.

    `result` reads that from the receipt. `base_units` leave the sender's account. `approval`, for a call whose contract
    takes them by allowance: the call that lets it take so many base units, None if it may already.
    """

    client: ChainClient = field(repr=False)
    result: Callable[[Receipt], R] = field(repr=False)
    base_units: int = 0
    approval: Callable[[int], "ContractCall[Receipt] | None"] | None = field(default=None, repr=False)

    def send(self) -> R:
        """Approve if need be, send, and wait until mined. Raises ContractError with the decoded reason when the
        contract refuses; other errors: see `ChainClient.send`."""
        approval = self.approval(self.base_units) if self.approval and self.base_units else None
        if approval is not None:
            approval.send()
        return self.result(self.client.send(self))


class Contract:
    """A contract of a deployment. Methods that change it return a `ContractCall`; views read at once. Both raise
    ConfigError for arguments that do not fit the ABI."""

    name = ""

    def __init__(self, client: ChainClient, deployment: Deployment) -> None:
        self.client = client
        self.deployment = deployment
        self.address = deployment.address(self.name)
        self.abi = abi.load(self.name)

    def call(self, function: str, *args: Any) -> ContractCall[Receipt]:
        """Prepare a call of any function by its name in the ABI."""
        data, label = self.abi[function].encode(*args), f"{self.name}.{function}"
        return ContractCall(self.address, data, label, client=self.client, result=lambda receipt: receipt)

    def _returning(self, call: ContractCall[Any], event: str, argument: str) -> ContractCall[int]:
        """The call, whose result is a number in the event that it emits."""
        return replace(call, result=lambda receipt: int(self.event(receipt, event).args[argument]))

    def view(self, function: str, *args: Any) -> View:
        return View(self.address, self.abi[function], args)

    def read(self, function: str, *args: Any) -> Any:
        return self.client.read_many([self.view(function, *args)])[0]

    def event(self, receipt: Receipt, name: str) -> Event:
        """Return the first event `name` of this contract in a receipt."""
        for event in decode_logs(receipt.logs, self.deployment):
            if event.key == (self.name, name):
                return event
        raise ConfigError(f"{receipt.tx_hash} did not emit {name}", "check the deployment file")

    def signed(self, account: LocalAccount, domain: str, struct: str, *values: signing.Value) -> bytes:
        """Sign a struct as `account`, in this contract's EIP-712 domain of that name."""
        at = signing.Domain(domain, "1", self.deployment.chain_id, self.address)
        return signing.sign(account, signing.digest(at, struct, *values))


def record(kind: type[R], values: dict[str, Any], **extra: Any) -> R:
    """Build a dataclass from a struct's members, camelCase to snake_case; members that it lacks are dropped."""
    named = {re.sub(r"(?<!^)([A-Z])", lambda m: "_" + m[1].lower(), k): v for k, v in values.items()} | extra
    wanted = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in named.items() if k in wanted})


# ---- The token, and governance's parameters


Permit = tuple[int, int, bytes, bytes]
"""An ERC-2612 permit: deadline, v, r, s."""


class Token(Contract):
    """Amounts are base units."""

    name = "MusterToken"

    def balance_of(self, owner: str) -> int:
        return int(self.read("balanceOf", owner))

    def mint(self, to: str, base_units: int) -> ContractCall[Receipt]:
        return self.call("mint", to, base_units)

    def transfer(self, to: str, base_units: int) -> ContractCall[Receipt]:
        return self.call("transfer", to, base_units)

    def approve(self, spender: str, base_units: int) -> ContractCall[Receipt]:
        return self.call("approve", spender, base_units)

    def approval(self, spender: str, base_units: int) -> ContractCall[Receipt] | None:
        """Return what the client's account has to approve so that `spender` may take `base_units`; None if it may
        already."""
        allowed = int(self.read("allowance", self.client.address, spender))
        return None if allowed >= base_units else self.approve(spender, base_units)

    def sign_permit(self, owner: LocalAccount, spender: str, base_units: int, deadline: int) -> Permit:
        """Sign the owner's permit for `spender` to take `base_units` until `deadline`."""
        struct = "Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)"
        nonce = self.read("nonces", owner.address)
        values = owner.address, spender, base_units, nonce, deadline
        signature = self.signed(owner, self.read("name"), struct, *values)
        return deadline, signature[64], signature[:32], signature[32:64]


class TokenTaker(Contract):
    """A contract that takes tokens from its callers, by allowance."""

    def __init__(self, client: ChainClient, deployment: Deployment) -> None:
        super().__init__(client, deployment)
        self._token = Token(client, deployment)

    def _taking(self, base_units: int, function: str, *args: Any) -> ContractCall[Receipt]:
        """A call in which this contract takes `base_units`."""
        approval = partial(self._token.approval, self.address)
        return replace(self.call(function, *args), base_units=base_units, approval=approval)


class Params(Contract):
    """Penalties (base units, shares in 1/10000) and bounds."""

    name = "Params"

    def values(self, time: int | None = None) -> dict[str, int]:
        """`IParams.Values` for what begins at `time` (now if missing), by the struct's names."""
        return dict(self.read("values") if time is None else self.read("valuesAt", time))

    def block_seconds(self) -> int:
        """Return the seconds between blocks, an upper estimate."""
        return int(self.read("blockSeconds"))

    def unbonding(self) -> int:
        """Return how many seconds a validator's bond stays locked after leaving."""
        return int(self.read("unbonding"))

    def unbonding_of(self, terms: tuple[object, ...]) -> int:
        """Return how many seconds the stake of a pool with these terms stays locked. Raises ContractError
        `BadTerms`."""
        return int(self.read("checkTerms", terms))


# ---- Operators' stake and validators' seats


CONSENT = "Consent(address node,address operator,uint256 expiry)"

DRAW_REACH = 3
"""Epochs after its own in which a seed can still be drawn with, and so after leaving in which a seat can be drawn."""


@dataclass(frozen=True)
class NodeView:
    """What is asked of IStakes.Node now. `operator` is the zero address when the node is unknown."""

    operator: str
    stake: int
    pool: int
    frozen: int
    release_at: int


@dataclass(frozen=True)
class SeatView:
    """What is asked of ISeats.Seat now."""

    owner: str
    voter: str
    bond: int
    left_epoch: int
    release_at: int
    frozen: int


class Stakes(TokenTaker):
    """Called by operators."""

    name = "Stakes"

    def sign_consent(self, node: LocalAccount, operator: str, expiry: int) -> bytes:
        """Sign the node key's consent to belong to `operator`, usable until `expiry` (chain time)."""
        return self.signed(node, "muster-stakes", CONSENT, node.address, operator, expiry)

    def register_node(self, node: str, amount: int, expiry: int, consent: bytes) -> ContractCall[Receipt]:
        """Register `node` under the caller with `amount` base units at stake."""
        return self._taking(amount, "registerNode", node, amount, expiry, consent)

    def register_node_with_permit(
        self, node: str, amount: int, expiry: int, consent: bytes, permit: Permit
    ) -> ContractCall[Receipt]:
        """Register a node with a permit in place of an approval."""
        call = self.call("registerNodeWithPermit", node, amount, expiry, consent, permit)
        return replace(call, base_units=amount)

    def deposit(self, node: str, amount: int) -> ContractCall[Receipt]:
        """Add `amount` base units; follow with `pools.refresh` to raise the limit in the node's pool."""
        return self._taking(amount, "deposit", node, amount)

    def withdraw(self, node: str, amount: int) -> ContractCall[Receipt]:
        """Take `amount` base units of unlocked stake back."""
        return self.call("withdraw", node, amount)

    def node_of(self, node: str) -> NodeView:
        return record(NodeView, self.read("nodeOf", node))

    def withdrawable(self, node: str) -> int:
        return int(self.read("withdrawable", node))


class Seats(TokenTaker):
    """Called by validators' owners."""

    name = "Seats"

    def open_seat(self, voter: str, groups: Sequence[int]) -> ContractCall[int]:
        """Bond one seat for the hot key `voter`; returns its number. Drawable for `groups` from the next epoch."""
        call = self._taking(self.bond(), "openSeat", voter, list(groups))
        return self._returning(call, "SeatOpened", "seat")

    def opt_in(self, seat: int, validator_group: int) -> ContractCall[Receipt]:
        """Judge the pools of one class more, from the next epoch on."""
        return self.call("optIn", seat, validator_group)

    def opt_out(self, seat: int, validator_group: int) -> ContractCall[Receipt]:
        """Judge them no more; what is drawn from earlier epochs stays a duty."""
        return self.call("optOut", seat, validator_group)

    def set_voter(self, seat: int, voter: str) -> ContractCall[Receipt]:
        return self.call("setVoter", seat, voter)

    def top_up(self, seat: int) -> ContractCall[Receipt]:
        """Fill the bond of `seat` up to the full bond; nothing is taken from a complete one."""
        return self._taking(max(self.bond() - self.seat_of(seat).bond, 0), "topUp", seat)

    def leave_seat(self, seat: int) -> ContractCall[Receipt]:
        return self.call("leaveSeat", seat)

    def unbond_seat(self, seat: int) -> ContractCall[Receipt]:
        """Start the unbonding period of a seat that has left."""
        return self.call("unbondSeat", seat)

    def withdraw_seat(self, seat: int) -> ContractCall[Receipt]:
        """Take the bond back after the unbonding period."""
        return self.call("withdrawSeat", seat)

    def seat_of(self, seat: int) -> SeatView:
        return record(SeatView, self.read("seatOf", seat))

    def bond(self) -> int:
        return int(self.read("bond"))

    def epoch_blocks(self) -> int:
        return int(self.read("epochBlocks"))

    def current_epoch(self) -> int:
        return int(self.read("currentEpoch"))


# ---- Pools


INVITE = "Invite(uint256 pool,address node,uint256 expiry)"


@dataclass(frozen=True)
class WorkItem:
    """What a node says of its file: Merkle root and SHA-256 (32 bytes each), units and rows."""

    root: bytes
    sha256: bytes
    units: int
    rows: int

    def as_tuple(self, pool: int, step: int, counter: int) -> tuple[int, bytes, bytes]:
        """`Work(packed, root, fileHash)`."""
        return pack_work(pool, step, counter, self.units, self.rows), self.root, self.sha256


@dataclass(frozen=True)
class Submitted:
    """Where a submission landed."""

    sequence: int
    receipt: Receipt


@dataclass(frozen=True)
class PoolView:
    """What is asked of IPools.Pool now."""

    owner: str
    free: int
    steps: int
    seed_block: int
    unbonding: int
    settle_at: int


class Pools(TokenTaker):
    """Called by pool owners, operators, nodes and keepers."""

    name = "Pools"

    # ---- Owner

    def create_pool(self, terms: Terms, budget: int) -> ContractCall[int]:
        """Create an open pool and escrow `budget` base units; returns its number."""
        call = self._taking(budget, "createPool", terms.as_tuple(), budget)
        return self._returning(call, "PoolCreated", "pool")

    def fund(self, pool: int, amount: int) -> ContractCall[Receipt]:
        """Add `amount` base units to the budget."""
        return self._taking(amount, "fund", pool, amount)

    def publish_step(self, pool: int, step: int, manifest: bytes, canary_root: bytes = bytes(32)) -> ContractCall[int]:
        """Publish the next step; returns the block whose hash seeds it."""
        call = self.call("publishStep", pool, step, manifest, canary_root)
        return self._returning(call, "StepPublished", "seedBlock")

    def ensure_step(self, pool: int, step: int, manifest: bytes, canary_root: bytes = bytes(32)) -> int:
        """Publish the next step, or find that it just was (by this owner, before a crash); returns its seed block."""
        try:
            return self.publish_step(pool, step, manifest, canary_root).send()
        except ContractError as error:
            view = self.pool_of(pool) if error.name == "StepMismatch" else None
            if view is None or view.steps != step + 1:
                raise
            return view.seed_block

    def pause_pool(self, pool: int) -> ContractCall[Receipt]:
        return self.call("pausePool", pool)

    def resume_pool(self, pool: int) -> ContractCall[Receipt]:
        return self.call("resumePool", pool)

    def close_pool(self, pool: int) -> ContractCall[Receipt]:
        return self.call("closePool", pool)

    def settle_pool(self, pool: int) -> ContractCall[int]:
        """After the last window: returns the leftover base units sent to the owner."""
        return self._returning(self.call("settlePool", pool), "LeftoverTaken", "amount")

    def remove_node(self, pool: int, node: str) -> ContractCall[Receipt]:
        return self.call("removeNode", pool, node)

    # ---- Operator

    def join(self, pool: int, node: str) -> ContractCall[Receipt]:
        return self.call("join", pool, node)

    def join_with_invite(self, pool: int, node: str, expiry: int, invite: bytes) -> ContractCall[Receipt]:
        return self.call("joinWithInvite", pool, node, expiry, invite)

    def leave_pool(self, pool: int, node: str) -> ContractCall[Receipt]:
        return self.call("leavePool", pool, node)

    def refresh(self, pool: int, node: str) -> ContractCall[Receipt]:
        """Recompute a member's limit after its stake grew."""
        return self.call("refresh", pool, node)

    def claim(self, submission: Submission) -> ContractCall[int]:
        """Pay everything of the submission's node that vested up to it (choose it with `State.claim_hint`); returns
        base units paid to the operator."""
        call = self.call("claim", submission.pool, submission.node, submission.sequence, submission.inner)
        return self._returning(call, "Claimed", "amount")

    # ---- Node

    def submit(
        self, pool: int, step: int, counter: int, work: WorkItem, upload: UploadReceipt | None = None
    ) -> ContractCall[Submitted]:
        """Submit one file as the client's account (the node key). With the receipt of its upload it needs no other
        attestation, and is taken although the pool has paused or closed, or the step has passed, since."""

        def landed(receipt: Receipt) -> Submitted:
            return Submitted(int(self.event(receipt, "WorkSubmitted").args["placed"]) >> 96 & 0xFFFFFFFF, receipt)

        function, more = ("submitWithReceipt", [upload.on_chain]) if upload else ("submit", [])
        call: ContractCall[Any] = self.call(function, work.as_tuple(pool, step, counter), *more)
        return replace(call, result=landed)

    def announce_mirror(self, pool: int, sequence: int, url: str) -> ContractCall[Receipt]:
        """Say where else the file of the node's own submission is served."""
        return self.call("announceMirror", pool, sequence, url)

    # ---- Keeper

    def review_seats(self, pool: int) -> ContractCall[Receipt]:
        """Let an understaffed pool take work once its class has the seats, or the reverse."""
        return self.call("reviewSeats", pool)

    def finalize(self, submission: Submission) -> ContractCall[Receipt]:
        """After the challenge window of a file that was not accepted."""
        return self.call("finalize", submission.pool, submission.sequence, submission.file_ref)

    # ---- Views

    def pool_of(self, pool: int) -> PoolView:
        return record(PoolView, self.read("poolOf", pool))

    def pool_count(self) -> int:
        return int(self.read("poolCount"))


# ---- Committees and juries


Place = tuple[int, ...]
"""Where votes are cast: (pool, lane, round) at Court, (trial,) at Juries."""
_NOT_YET = frozenset({"SeedNotMined", "NoSuchLane", "NoSuchTrial"})


@dataclass(frozen=True)
class Committee:
    """`seats[j]` votes with the key `voters[j]` as member (juror) j. `seed` is the draw's."""

    seats: tuple[int, ...]
    voters: tuple[str, ...]
    seed: bytes


class BallotContract(Contract):
    """A contract at which drawn members commit to hidden votes, reveal them and are paid."""

    committee_view = ""
    close_function, closed_event = "", ""

    def committee_of(self, place: Place) -> Committee | None:
        """Committee or jury, drawn or not; None while its seed block is not mined."""
        try:
            seats, voters, seed, _ = self.read(self.committee_view, *place)
        except ContractError as error:
            if error.name in _NOT_YET:
                return None
            raise
        return Committee(tuple(seats), tuple(voters), seed)

    def ballot_hash(self, place: Place, voter: str, codes: int, verdict_hash: bytes, salt: bytes) -> bytes:
        """Compute the commitment to a vote."""
        return keccak(encode_words(self.deployment.chain_id, self.address, *place, voter, codes, verdict_hash, salt))

    def commit(self, place: Place, member: int, commitment: bytes) -> ContractCall[Receipt]:
        """Send the hidden vote."""
        return self.call("commit", *place, member, commitment)

    def reveal(self, place: Place, member: int, codes: int, verdict_hash: bytes, salt: bytes) -> ContractCall[Receipt]:
        """Open the vote."""
        return self.call("reveal", *place, member, codes, verdict_hash, salt)

    def vote(self, place: Place, member: int, codes: int, verdict_hash: bytes, salt: bytes) -> ContractCall[Receipt]:
        """Commit and open the vote at once, as the last member to commit.

        Sending raises ContractError, before anything is sent, while anybody else has not committed.
        """
        return self.call("vote", *place, member, codes, verdict_hash, salt)

    def close(self, place: Place, member: int) -> ContractCall[int]:
        """Pay one member once nothing can change any more; returns the base units its seat's owner got."""
        return self._returning(self.call(self.close_function, *place, member), self.closed_event, "paid")


class Court(BallotContract):
    """Called by validators' voting keys and keepers."""

    name = "Court"
    committee_view = "committeeOf"
    close_function, closed_event = "closeMember", "MemberClosed"

    def set_service(self, pool: int, service: str) -> ContractCall[Receipt]:
        """Name the key that attests uploads and signs receipts; the pool's owner."""
        return self.call("setService", pool, service)

    def announce_service(self, pool: int, url: str) -> ContractCall[Receipt]:
        """Say where the pool's service answers; the pool's owner."""
        return self.call("announceService", pool, url)

    def staffed(self, pool: int) -> bool:
        """Return whether the pool's class has enough seats in this epoch."""
        return bool(self.read("staffed", pool))

    def attest(self, pool: int, lane: int, places: int) -> ContractCall[Receipt]:
        """Attest, as the service, that these files (bit p for place p) are in the pool's storage."""
        return self.call("attest", pool, lane, places)

    def attest_by_receipt(self, file: Submission, receipt: UploadReceipt) -> ContractCall[Receipt]:
        """Anybody: the same for one file, by its receipt."""
        return self.call("attestByReceipt", file.pool, file.sequence, file.file_data, receipt.on_chain)

    def terms_of(self, pool: int) -> Terms:
        return Terms.of(self.read("termsOf", pool))

    def vote(self, place: Place, member: int, codes: int, verdict_hash: bytes, salt: bytes) -> ContractCall[Receipt]:
        """See BallotContract; a committee's needs no salt."""
        return self.call("vote", *place, member, codes, verdict_hash)

    def reveal_and_settle(
        self, place: Place, member: int, codes: int, verdict_hash: bytes, salt: bytes, files: Sequence[Submission]
    ) -> ContractCall[Receipt]:
        """Reveal as the last revealer, and settle the round.

        Sending raises ContractError, before anything is sent, while another reveal is neither mined nor pending.
        """
        refs = [file.file_ref for file in files]
        return replace(self.call("revealAndSettle", *place, member, codes, verdict_hash, salt, refs), pending=True)

    def settle(self, place: Place, files: Sequence[Submission]) -> ContractCall[Receipt]:
        """Tally a round; `files` are all of the lane's submissions in order (`State.files_of(lane)`)."""
        return self.call("settle", *place, [file.file_ref for file in files])


class Juries(BallotContract):
    """Called by jurors' voting keys and keepers."""

    name = "Juries"
    committee_view = "juryOf"
    close_function, closed_event = "closeJuror", "JurorClosed"

    def draw(self, trial: int) -> ContractCall[Receipt]:
        return self.call("draw", trial)


# ---- Disputes, appeals and canaries


CANARY_CONSENT = "DecoyConsent(bytes32 leaf)"


class Appeals(TokenTaker):
    """Called by anyone who disagrees with an outcome."""

    name = "Appeals"

    def dispute(self, submission: Submission) -> ContractCall[int]:
        """Dispute the committee's outcome before `final_time`; returns the jury's trial number."""
        deposit = int(self.read("depositOf", submission.pool, 0))
        call = self._taking(deposit, "dispute", submission.pool, submission.sequence, submission.file_data)
        return self._returning(call, "Disputed", "trial")

    def conclude(self, submission: Submission) -> ContractCall[Receipt]:
        """Keeper: record the first verdict, or resolve for good."""
        return self.call("conclude", submission.pool, submission.sequence, submission.file_data)


@dataclass(frozen=True)
class Planted:
    """A canary's place in its step's root: the owner's salt, and the proof (pairs sorted)."""

    salt: bytes
    proof: Sequence[bytes]


@dataclass(frozen=True)
class FailingRollout:
    """The rollout that fails: row number, keccak256 of its row bytes, its proof in the file's root."""

    row: int
    row_hash: bytes
    proof: Sequence[bytes]


class Canaries(TokenTaker):
    """Called by pool owners, for files whose nodes' keys they have."""

    name = "Canaries"

    @staticmethod
    def leaf(salt: bytes, pool: int, step: int, node: str, counter: int) -> bytes:
        """Return a canary's leaf; hash the real ones and random padding into a tree of sixteen."""
        return keccak(keccak(encode_words(salt, pool, step, node, counter)))

    def open(
        self, submission: Submission, planted: Planted, decoy: LocalAccount, rollout: FailingRollout, reason: int
    ) -> ContractCall[Receipt]:
        """Open a canary after settlement, within its challenge window, as the pool's owner. `decoy`: the key of the
        file's node, which consents. `reason`: the reject code that an honest check gives. The deposit (accused bonds
        and jury fees) comes back if the opening stands."""
        params = Params(self.client, self.deployment).values()
        terms = Court(self.client, self.deployment).terms_of(submission.pool)
        # The jurors of a dispute that the opening ends are paid, too.
        fees = terms.jury + terms.appealJury if submission.disputed else 0
        return self._taking(
            terms.committee * params["canarySlash"] + (terms.jury + fees) * terms.juryFee,
            "open",
            submission.pool,
            submission.sequence,
            submission.file_data,
            (planted.salt, list(planted.proof), self._consent(submission, planted, decoy)),
            (rollout.row, rollout.row_hash, list(rollout.proof)),
            int(reason),
        )

    def _consent(self, submission: Submission, planted: Planted, decoy: LocalAccount) -> bytes:
        at = submission.pool, submission.step, submission.node, submission.counter
        return self.signed(decoy, "muster-canaries", CANARY_CONSENT, self.leaf(planted.salt, *at))

    def conclude(self, submission: Submission) -> ContractCall[Receipt]:
        """Keeper: after the jury, or at once when nobody is accused."""
        return self.call("conclude", submission.pool, submission.sequence, submission.file_data)


# ---- Node challenges


MOST_FILES = 256
"""NodeChallenges.MAX_FILES."""


@dataclass(frozen=True)
class NodeChallengeView:
    """INodeChallenges.NodeChallenge; `bond` in base units. `outcome` is NONE for a number that no challenge has."""

    pool: int
    node: str
    accuser: str
    bond: int
    trial: int
    outcome: CaseOutcome
    opened_at: int


class NodeChallenges(TokenTaker):
    """Called by whoever accuses, and by keepers."""

    name = "NodeChallenges"

    def open(self, files: Sequence[Submission], evidence: bytes) -> ContractCall[int]:
        """Accuse a node by some of its files, in their order: all of one pool, accepted and final. Takes the bond;
        returns the challenge's number. `evidence`: SHA-256 of what the accuser says, 32 bytes."""
        pool, node = files[0].pool, files[0].node
        inners = [file.inner for file in files]
        sequences, bond = [file.sequence for file in files], self.bond(pool, len(files))
        call = self._taking(bond, "open", pool, node, sequences, inners, evidence)
        return self._returning(call, "ChallengeOpened", "challenge")

    def conclude(self, challenge: int) -> ContractCall[Receipt]:
        """Keeper: once its jury is done, end a challenge or have its jury replaced."""
        return self.call("conclude", challenge)

    def bond(self, pool: int, files: int) -> int:
        """Return the bond of a challenge that names so many files, 1 to MOST_FILES, in base units."""
        return int(self.read("bondOf", pool, files))

    def tried(self, pool: int, sequences: Sequence[int]) -> int:
        """Return the challenge over exactly these files that is open or was decided; 0 if there is none."""
        return int(self.read("triedIn", pool, list(sequences)))

    def challenge_of(self, challenge: int) -> NodeChallengeView:
        values = self.read("challengeOf", challenge)
        return record(NodeChallengeView, values | {"outcome": CaseOutcome(values["outcome"])})


# ---- The timelock that owns the parameters


class Timelock(Contract):
    """Called by governance and its guardian."""

    name = "Timelock"

    def delay(self) -> int:
        """Return the seconds from scheduling to executing, for what is scheduled now."""
        return int(self.read("getMinDelay"))

    def is_guardian(self, account: str) -> bool:
        return bool(self.read("hasRole", self.read("GUARDIAN_ROLE"), account))

    def schedule(self, call: Call, salt: bytes) -> ContractCall[Receipt]:
        """Propose that the timelock makes `call`. `salt` tells equal proposals apart."""
        return self.call("schedule", call.to, call.value, call.data, bytes(32), salt, self.delay())

    def execute(self, proposal: Proposal) -> ContractCall[Receipt]:
        """Make a proposal's calls, once its time has come."""
        if len(proposal.calls) == 1:
            (call,) = proposal.calls
            return self.call("execute", call.target, call.value, call.data, proposal.predecessor, proposal.salt)
        columns = ([getattr(call, name) for call in proposal.calls] for name in ("target", "value", "data"))
        return self.call("executeBatch", *columns, proposal.predecessor, proposal.salt)
