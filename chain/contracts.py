"""Typed calls and views of the suite's contracts: one class per contract.

What changes a contract returns a `ContractCall`, which can be simulated, priced and sent; views read at once. A
function whose arguments go to the contract as they are is one line: `pause_pool = Sends[[int], Receipt]()`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar, cast

from chain import abi
from chain.client import ChainClient, View
from chain.deployment import Deployment
from chain.errors import ContractError
from chain.indexer.logs import Event, accepted, decode_logs
from chain.indexer.records import Proposal, Submission, Terms
from chain.transactions import Call, Receipt
from protocol import signing
from protocol.accounts import LocalAccount
from protocol.api.work import JOIN_STRUCT, LEAVE_STRUCT, POOLS_DOMAIN, SubmissionRequest, UploadReceipt
from protocol.encoding import encode_words, keccak
from protocol.errors import ConfigError, IntegrityError

P = ParamSpec("P")
R = TypeVar("R")
Struct = dict[str, Any]
"""A struct of the contracts by the names of its members."""


@dataclass(frozen=True, kw_only=True)
class ContractCall(Call, Generic[R]):
    """A call with checked arguments, not yet sent. `send` does all that it needs and returns what `result` reads from
    the receipt.

    `base_units` leave the sender's account. `approval`, for a call whose contract takes them by allowance: the call
    that lets it take so many base units, None if it may already. `before`: what has to be mined first.
    """

    client: ChainClient = field(repr=False)
    result: Callable[[Receipt], R] = field(repr=False)
    base_units: int = 0
    approval: Callable[[int], "ContractCall[Receipt] | None"] | None = field(default=None, repr=False)
    before: "tuple[ContractCall[Receipt], ...]" = field(default=(), repr=False)

    def send(self) -> R:
        """Send what has to come before, approve if need be, send, and wait until mined. Raises ContractError with the
        decoded reason when the contract refuses; other errors: see `ChainClient.send`."""
        for call in self.before:
            call.send()
        approval = self.approval(self.base_units) if self.approval else None
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

    def call(self, function: str, *args: Any, result: str = "", takes: int = 0) -> ContractCall[Any]:
        """Prepare a call of any function by its name in the ABI. Sending it returns the receipt, or the number that
        `result` names, such as `PoolCreated.pool`: an event and its argument. `takes`: how many base units of the
        caller's this contract takes, by allowance."""
        data, label = self.abi[function].encode(*args), f"{self.name}.{function}"
        event, _, argument = result.partition(".")

        def read(receipt: Receipt) -> Any:
            return int(self.event(receipt, event).args[argument]) if result else receipt

        approval = partial(Token(self.client, self.deployment).approval, self.address) if takes else None
        return ContractCall(
            self.address, data, label, client=self.client, result=read, base_units=takes, approval=approval
        )

    def view(self, function: str, *args: Any) -> View:
        return View(self.address, self.abi[function], args)

    def read(self, function: str, *args: Any) -> Any:
        return self.client.read_many([self.view(function, *args)])[0]

    def event(self, receipt: Receipt, name: str) -> Event:
        """Return the first event `name` of this contract in a receipt."""
        for event in decode_logs(receipt.logs, self.deployment):
            if (event.contract, event.name) == (self.name, name):
                return event
        raise ConfigError(f"{receipt.tx_hash} did not emit {name}", "check the deployment file")

    def signed(self, account: LocalAccount, domain: str, struct: str, *values: signing.Value) -> bytes:
        """Sign a struct as `account`, in this contract's EIP-712 domain of that name."""
        at = signing.Domain(domain, "1", self.deployment.chain_id, self.address)
        return signing.sign(account, signing.digest(at, struct, *values))


class _Named:
    """A function of the ABI whose name is the attribute's, in camel case."""

    function = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.function = re.sub("_(.)", lambda match: match[1].upper(), name)


class Sends(_Named, Generic[P, R]):
    """A function that changes the contract. Sending it returns a receipt, or a number: see `Contract.call`. `takes`:
    the place of the argument that is the number of base units taken by allowance."""

    def __init__(self, result: str = "", takes: int | None = None) -> None:
        self._result, self._takes = result, takes

    def __get__(self, contract: Contract, owner: type) -> Callable[P, ContractCall[R]]:
        def prepare(*args: P.args, **named: P.kwargs) -> ContractCall[R]:
            takes = 0 if self._takes is None else cast(int, args[self._takes])
            return contract.call(self.function, *args, result=self._result, takes=takes)

        return prepare


class Reads(_Named, Generic[P, R]):
    """A view; `convert` makes its answer what is returned."""

    def __init__(self, convert: Callable[[Any], R] = lambda answer: cast(R, answer)) -> None:
        self._convert = convert

    def __get__(self, contract: Contract, owner: type) -> Callable[P, R]:
        def read(*args: P.args, **named: P.kwargs) -> R:
            return self._convert(contract.read(self.function, *args))

        return read


class Token(Contract):
    """Amounts are base units."""

    name = "MusterToken"
    balance_of = Reads[[str], int]()
    mint = Sends[[str, int], Receipt]()
    transfer = Sends[[str, int], Receipt]()
    approve = Sends[[str, int], Receipt]()

    def approval(self, spender: str, base_units: int) -> ContractCall[Receipt] | None:
        """Return what the client's account has to approve so that `spender` may take `base_units`; None if it may
        already."""
        allowed = int(self.read("allowance", self.client.address, spender))
        return None if allowed >= base_units else self.approve(spender, base_units)


class Params(Contract):
    """Penalties (base units, shares in 1/10000) and bounds.

    `block_seconds`: between blocks, an upper estimate; `unbonding`: seconds that a validator's bond stays locked after
    leaving; `check_terms`: those that the stake of a pool with these terms does. Raises ContractError `BadTerms`."""

    name = "Params"
    block_seconds = Reads[[], int]()
    unbonding = Reads[[], int]()
    check_terms = Reads[[tuple[object, ...]], int]()

    def values(self) -> dict[str, int]:
        """`Params.Values`, which no deployment changes, by the struct's names."""
        return dict(self.read("values"))


# Operators' stake and validators' seats


CONSENT = "Consent(address node,address operator,address sponsor,uint256 expiry)"
DRAW_REACH = 3
"""Epochs after its own in which a seed can still be drawn with, and so after leaving in which a seat can be drawn."""


class Stakes(Contract):
    """Called by operators and sponsors. `register_node` (node, operator, pool, base units at stake, expiry and
    signature of the node's consent) puts a node under an operator; the stake of another caller is a loan, in that pool
    only. `deposit` adds stake: follow with `pools.refresh` to raise the limit in the node's pool. `withdraw` takes
    unlocked stake back, the loan first, and for its sponsor no more than that."""

    name = "Stakes"
    register_node = Sends[[str, str, int, int, int, bytes], Receipt](takes=3)
    deposit = Sends[[str, int], Receipt](takes=1)
    withdraw = Sends[[str, int], Receipt]()
    node_of = Reads[[str], Struct]()

    def sign_consent(self, node: LocalAccount, operator: str, expiry: int, sponsor: str = "") -> bytes:
        """Sign the node key's consent that `sponsor` (default: the operator) registers it under `operator` and stakes
        for it, usable until `expiry` (chain time)."""
        return self.signed(node, "muster-stakes", CONSENT, node.address, operator, sponsor or operator, expiry)


class Seats(Contract):
    """Called by validators' owners. `opt_in` and `opt_out` name a seat and a validator group, and hold from the next
    epoch on; what is drawn from earlier epochs stays a duty. A seat leaves, unbonds, and then takes its bond back."""

    name = "Seats"
    opt_in = Sends[[int, int], Receipt]()
    opt_out = Sends[[int, int], Receipt]()
    set_voter = Sends[[int, str], Receipt]()
    leave_seat = Sends[[int], Receipt]()
    unbond_seat = Sends[[int], Receipt]()
    withdraw_seat = Sends[[int], Receipt]()
    seat_of = Reads[[int], Struct]()
    bond = Reads[[], int]()
    epoch_blocks = Reads[[], int]()
    current_epoch = Reads[[], int]()

    def open_seat(self, voter: str, groups: Sequence[int]) -> ContractCall[int]:
        """Bond one seat for the hot key `voter`; returns its number. Drawable for `groups` from the next epoch."""
        return self.call("openSeat", 0, voter, list(groups), takes=self.bond(), result="SeatOpened.seat")

    def top_up(self, seat: int) -> ContractCall[Receipt]:
        """Fill the bond of `seat` up to the full bond; nothing is taken from a complete one."""
        return self.call("topUp", seat, takes=max(self.bond() - self.seat_of(seat)["bond"], 0))


NEVER = (1 << 256) - 1  # when what nobody signed expires
INVITE = "Invite(uint256 pool,address node,uint256 expiry)"
# Blocks: chains know the hashes of 256, a call may wait for the rest, and an endpoint lags behind another.
_ANCHOR_REACH, _LAG = 100, 8


@dataclass(frozen=True)
class SignedFile:
    """A file that `node` signed for submission."""

    node: str
    file: SubmissionRequest

    @property
    def on_chain(self) -> tuple[tuple[str, int, int, int, int, bytes, bytes], bytes]:
        """`FileData` and signature."""
        return self.file.on_chain(self.node), bytes.fromhex(self.file.signature[2:])


@dataclass(frozen=True)
class RefusedFile:
    """Why the contract takes no lane with the file at `index`: the `reason` names the error and its arguments."""

    index: int
    reason: ContractError


def refused_file(error: ContractError) -> RefusedFile | None:
    """Return which file a refusal of a lane is about, None if it is about the whole."""
    if error.name != "FileRefused":
        return None
    return RefusedFile(error.arguments["index"], ContractError(error.call, error.arguments["reason"], error.tx_hash))


_ACCOUNT = {
    "earned": 46, "spent": 46, "pending": 34, "limit": 34, "counter": 22, "barrier": 32, "joinedStep": 20,
    "unsettled": 10, "frozen": 10, "removed": 1, "slashed": 1,
}  # fmt: skip


def account_fields(word: int) -> dict[str, int]:
    """Return what a node's account in a pool holds (contracts/src/libraries/AccountSlot.sol)."""
    fields = {}
    for name, bits in _ACCOUNT.items():
        fields[name], word = word & (1 << bits) - 1, word >> bits
    return fields


def pool_fields(words: tuple[Struct, Struct]) -> Struct:
    """Return what `Pools.poolOf` says, and when the owner of a pool that is closing can take the leftovers."""
    intake, desk = words
    return intake | desk | {"settleAt": desk["since"] + desk["unbonding"]}


class Pools(Contract):
    """Called by pool owners, operators, nodes and keepers.

    `fund` adds base units to the budget; `settle_pool`, after the last window, returns those sent to the owner.
    `join` and `leave_pool` are the node's or its operator's, or with the node key's signature anybody's.
    `withdraw_fees` sends a seat's fees of committees to its owner.
    `refresh` recomputes a member's limit after its stake grew. `review_seats` lets an understaffed pool take work once
    its group has the seats, or the reverse.
    """

    name = "Pools"
    fund = Sends[[int, int], Receipt](takes=1)
    pause_pool = Sends[[int], Receipt]()
    resume_pool = Sends[[int], Receipt]()
    close_pool = Sends[[int], Receipt]()
    settle_pool = Sends[[int], int]("LeftoverTaken.amount")
    remove_node = Sends[[int, str], Receipt]()
    withdraw_fees = Sends[[int], Receipt]()
    refresh = Sends[[int, str], Receipt]()
    review_seats = Sends[[int], Receipt]()
    pool_of = Reads[[int], Struct](pool_fields)
    account_of = Reads[[int, str], Struct](account_fields)
    pool_count = Reads[[], int]()

    def join(
        self, pool: int, node: str, expiry: int = NEVER, signature: bytes = b"", invite: bytes = b""
    ) -> ContractCall[Receipt]:
        return self.call("join", pool, node, expiry, signature, invite)

    def leave_pool(self, pool: int, node: str, expiry: int = NEVER, signature: bytes = b"") -> ContractCall[Receipt]:
        return self.call("leavePool", pool, node, expiry, signature)

    def create_pool(self, terms: Terms, budget: int) -> ContractCall[int]:
        """Create an open pool and escrow `budget` base units; returns its number."""
        return self.call("createPool", terms.as_tuple(), budget, takes=budget, result="PoolCreated.pool")

    def publish_step(self, pool: int, step: int, manifest: bytes, canary_root: bytes = bytes(32)) -> ContractCall[int]:
        """Publish the next step; returns the block whose hash seeds it."""
        return self.call("publishStep", pool, step, manifest, canary_root, result="StepPublished.seedBlock")

    def ensure_step(self, pool: int, step: int, manifest: bytes, canary_root: bytes = bytes(32)) -> int:
        """Publish the next step, or find that it just was (by this owner, before a crash); returns its seed block."""
        try:
            return self.publish_step(pool, step, manifest, canary_root).send()
        except ContractError as error:
            view = self.pool_of(pool) if error.name == "StepMismatch" else None
            if view is None or view["steps"] != step + 1:
                raise
            return int(view["seedBlock"])

    def claim(self, submission: Submission) -> ContractCall[int]:
        """Pay everything of the submission's node that vested up to it (choose it with `State.claim_hint`); returns
        base units paid to the operator."""
        named = submission.pool, submission.node, submission.sequence, submission.inner
        return self.call("claim", *named, list(submission.lane_words), result="Claimed.amount")

    def unpacking(self, files: Sequence[Submission]) -> tuple[ContractCall[Receipt], ...]:
        """Return the calls, one a lane, that give those files words of their own that have none."""
        lanes = dict[int, list[Submission]]()
        for file in files:
            if file.lane_words:
                lanes.setdefault(file.lane, []).append(file)
        return tuple(
            self.call("unpack", some[0].pool, lane, list(some[0].lane_words), sum(1 << file.place for file in some))
            for lane, some in lanes.items()
        )

    def submit_lane(
        self,
        pool: int,
        files: Sequence[SignedFile],
        receipts: Sequence[UploadReceipt] = (),
        anchor: tuple[int, bytes] | None = None,
    ) -> ContractCall[Receipt]:
        """Submit one to sixteen files as one lane: as the pool's service, which has their bytes, or as anybody by the
        receipts of their uploads, one a file. By receipts they are taken although the pool has paused or closed, or the
        step has passed, since. A chain takes them only that has the block `anchor` (default: `self.anchor()`)."""
        named, signatures = zip(*(file.on_chain for file in files), strict=True)
        acknowledged = [receipt.on_chain for receipt in receipts]
        call = self.call("submitLane", pool, list(named), list(signatures), acknowledged, *anchor or self.anchor())
        return replace(call, lasting=False)

    def anchor(self, seed_block: int = 0) -> tuple[int, bytes]:
        """Return number and hash of a block for a call to name: on a chain that has it, all that was read of the blocks
        before it holds, such as seeds of steps. It is `seed_block` if that is a new one, else one that endpoints which
        lag behind know too."""
        head = self.client.head()
        number = min(seed_block if seed_block > head.number - _ANCHOR_REACH else head.number - _LAG, head.number - 1)
        block = self.client.block(number) if number > 0 else None
        return (block.number, block.hash) if block else (head.number - 1, head.parent)

    def sign_join(self, node: LocalAccount, pool: int, expiry: int) -> bytes:
        """Sign that the node joins a pool, usable once until `expiry` (chain time)."""
        return self._sign_membership(JOIN_STRUCT, node, pool, expiry)

    def sign_leave(self, node: LocalAccount, pool: int, expiry: int) -> bytes:
        """Sign that the node leaves a pool, usable once until `expiry` (chain time)."""
        return self._sign_membership(LEAVE_STRUCT, node, pool, expiry)

    def _sign_membership(self, struct: str, node: LocalAccount, pool: int, expiry: int) -> bytes:
        nonce = int(self.read("nonceOf", node.address))
        return self.signed(node, POOLS_DOMAIN, struct, pool, node.address, nonce, expiry)

    def finalize(self, submission: Submission) -> ContractCall[Receipt]:
        """After the challenge window of a file that was not accepted. One of a lane at a time: what is in flight for
        another one of its lane names words that the lane has no more."""
        named = submission.pool, submission.sequence, submission.file_ref
        return self.call("finalize", *named, list(submission.lane_words))


# Committees and juries


Place = tuple[int, ...]  # Where votes are cast: (pool, lane, round) at Court, (trial,) at Juries


@dataclass(frozen=True)
class Committee:
    """`seats[j]` votes with the key `voters[j]` as member (juror) j. `seed` is the draw's."""

    seats: tuple[int, ...]
    voters: tuple[str, ...]
    seed: bytes


class BallotContract(Contract):
    """A contract at which drawn members commit to hidden votes, reveal them and are paid. After a reorganisation the
    same place may be about other files, so no vote is lasting."""

    committee_view = ""

    def committee_of(self, place: Place) -> Committee | None:
        """Committee or jury, drawn or not; None while its seed block is not mined."""
        try:
            seats, voters, seed, _ = self.read(self.committee_view, *place)
        except ContractError as error:
            if error.name in ("SeedNotMined", "NoSuchLane", "NoSuchTrial"):
                return None
            raise
        return Committee(tuple(seats), tuple(voters), seed)

    def ballot_hash(self, place: Place, voter: str, codes: int, verdict_hash: bytes, salt: bytes) -> bytes:
        """Return the commitment to a vote."""
        return keccak(encode_words(self.deployment.chain_id, self.address, *place, voter, codes, verdict_hash, salt))

    def commit(self, place: Place, member: int, commitment: bytes) -> ContractCall[Receipt]:
        return replace(self.call("commit", *place, member, commitment), lasting=False)

    def reveal(self, place: Place, member: int, codes: int, verdict_hash: bytes, salt: bytes) -> ContractCall[Receipt]:
        return replace(self.call("reveal", *place, member, codes, verdict_hash, salt), lasting=False)

    def vote(self, place: Place, member: int, codes: int, verdict_hash: bytes, salt: bytes) -> ContractCall[Receipt]:
        """Commit and open the vote at once, as the last member to commit. Raises ContractError, before anything is
        sent, while anybody else has not committed."""
        return replace(self.call("vote", *place, member, codes, verdict_hash, salt), lasting=False)


class Court(BallotContract):
    """Called by validators' voting keys and keepers, and by pools' owners: `set_service` names the key that relays
    submissions and signs receipts, `announce_service` the URL of the pool's service. `close_committee` (pool, lane,
    round) pays and fines its members once nothing that judges their votes can change any more. `announce_mirror`: where
    else a file is served, by its node or a seat that has it."""

    name = "Court"
    committee_view = "committeeOf"
    close_committee = Sends[[int, int, int], Receipt]()
    set_service = Sends[[int, str], Receipt]()
    announce_service = Sends[[int, str], Receipt]()
    announce_mirror = Sends[[int, int, str], Receipt]()
    staffed = Reads[[int], bool]()
    terms_of = Reads[[int], Terms](Terms.of)

    def vote(self, place: Place, member: int, codes: int, verdict_hash: bytes, salt: bytes) -> ContractCall[Receipt]:
        """See BallotContract; a committee's needs no salt."""
        return replace(self.call("vote", *place, member, codes, verdict_hash), lasting=False)

    def reveal_and_settle(
        self, place: Place, member: int, codes: int, verdict_hash: bytes, salt: bytes, files: Sequence[Submission]
    ) -> ContractCall[Receipt]:
        """Reveal as the last revealer, and settle the round. Raises ContractError, before anything is sent, while
        another reveal is neither mined nor pending."""
        refs = [file.file_ref for file in files]
        call = self.call("revealAndSettle", *place, (member, codes, verdict_hash, salt), refs)
        return replace(call, pending=True, lasting=False)

    def settle(self, place: Place, files: Sequence[Submission]) -> ContractCall[Receipt]:
        """Tally a round; `files` are all of the lane's submissions in order (`State.files_of(lane)`)."""
        return self.call("settle", *place, [file.file_ref for file in files])


class Juries(BallotContract):
    """Called by jurors' voting keys and keepers, and by anyone who appeals against a first jury's verdict. `draw` names
    a trial. `deposit_of` (pool, files): what a dispute (one file) or node challenge takes, in base units."""

    name = "Juries"
    committee_view = "juryOf"
    draw = Sends[[int], Receipt]()
    deposit_of = Reads[[int, int], int]()

    def appeal(self, trial: int) -> ContractCall[int]:
        """Appeal against the verdict of a case's first jury; returns the second jury's trial number."""
        return self.call("appeal", trial, takes=int(self.read("appealDepositOf", trial)), result="Appealed.next")

    def close(self, trial: int, juror: int) -> ContractCall[int]:
        """Pay or fine one juror of a concluded case; returns the base units its seat's owner got."""
        return self.call("closeJuror", trial, juror, result="JurorClosed.paid")


# Disputes and canaries


class Appeals(Contract):
    """Called by anyone who disagrees with a committee's outcome."""

    name = "Appeals"

    def dispute(self, submission: Submission) -> ContractCall[int]:
        """Dispute the committee's outcome before `final_time`; returns the first jury's trial number."""
        deposit = Juries(self.client, self.deployment).deposit_of(submission.pool, 1)
        call = self.call("dispute", *submission.named, takes=deposit, result="Disputed.trial")
        return replace(call, before=Pools(self.client, self.deployment).unpacking([submission]))

    def conclude(self, submission: Submission) -> ContractCall[Receipt]:
        """Keeper: take the case on, or resolve it for good."""
        return self.call("conclude", *submission.named)


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


CANARIES_DOMAIN, DECOY_CONSENT = "muster-canaries", "DecoyConsent(bytes32 leaf)"


class Canaries(Contract):
    """Called by pool owners, for files whose nodes' keys they have."""

    name = "Canaries"

    @staticmethod
    def leaf(salt: bytes, pool: int, step: int, node: str, counter: int) -> bytes:
        """Return a canary's leaf; hash the real ones and random padding into a tree of 2 ** DEPTH."""
        return keccak(keccak(encode_words(salt, pool, step, node, counter)))

    def open(
        self, submission: Submission, planted: Planted, decoy: LocalAccount, rollout: FailingRollout, reason: int
    ) -> ContractCall[Receipt]:
        """Open a canary after settlement, within its challenge window, as the pool's owner. `decoy`: the key of the
        file's node, which consents. `reason`: the reject code that an honest check gives. The deposit (accused bonds
        and jury fees) comes back if the opening stands."""
        pool, params = submission.pool, Params(self.client, self.deployment).values()
        terms = Court(self.client, self.deployment).terms_of(pool)
        leaf = self.leaf(planted.salt, pool, submission.step, submission.node, submission.counter)
        consent = self.signed(decoy, CANARIES_DOMAIN, DECOY_CONSENT, leaf)
        # The jurors of a dispute that the opening ends are paid, too.
        juries = 2 if submission.disputed else 1
        deposit = terms.committee * params["canarySlash"] + juries * terms.jury * terms.juryFee
        opening = planted.salt, list(planted.proof), consent
        failing = rollout.row, rollout.row_hash, list(rollout.proof)
        call = self.call("open", *submission.named, opening, failing, int(reason), takes=deposit)
        return replace(call, before=Pools(self.client, self.deployment).unpacking([submission]))

    def conclude(self, submission: Submission) -> ContractCall[Receipt]:
        """Keeper: take the case on, or end it; at once when nobody is accused."""
        return self.call("conclude", *submission.named)


MOST_FILES = 256  # NodeChallenges.MAX_FILES


class NodeChallenges(Contract):
    """Called by accusers and by keepers: `conclude` takes a challenge's case on, or ends it."""

    name = "NodeChallenges"
    conclude = Sends[[int], Receipt]()

    def open(self, files: Sequence[Submission], evidence: bytes) -> ContractCall[int]:
        """Accuse a node by some of its files, in their order: all of one pool, accepted and final. Takes the bond;
        returns the challenge's number. `evidence`: SHA-256 of what the accuser says, 32 bytes."""
        pool, node = files[0].pool, files[0].node
        named = pool, node, [file.sequence for file in files], [file.inner for file in files], evidence
        bond = Juries(self.client, self.deployment).deposit_of(pool, len(files))
        call = self.call("open", *named, takes=bond, result="ChallengeOpened.challenge")
        return replace(call, before=Pools(self.client, self.deployment).unpacking(files))


class Timelock(Contract):
    """Called by governance and its guardian. `get_min_delay`: seconds from scheduling to executing."""

    name = "Timelock"
    get_min_delay = Reads[[], int]()

    def is_guardian(self, account: str) -> bool:
        return bool(self.read("hasRole", self.read("GUARDIAN_ROLE"), account))

    def schedule(self, call: Call, salt: bytes) -> ContractCall[Receipt]:
        """Propose that the timelock makes `call`, after its delay. `salt` tells equal proposals apart."""
        return self.call("schedule", call.to, call.value, call.data, bytes(32), salt, self.get_min_delay())

    def execute(self, proposal: Proposal) -> ContractCall[Receipt]:
        """Make a proposal's calls, once its time has come."""
        if len(proposal.calls) == 1:
            (call,) = proposal.calls
            return self.call("execute", call.target, call.value, call.data, proposal.predecessor, proposal.salt)
        columns = ([getattr(call, name) for call in proposal.calls] for name in ("target", "value", "data"))
        return self.call("executeBatch", *columns, proposal.predecessor, proposal.salt)


WEIGHT_ONE = 10**9  # weights are recorded in billionths, rounded down


@dataclass(frozen=True)
class RecordedContribution:
    """`document`: SHA-256 (hex) of the signed contribution; `weight`: its factor in 1/`WEIGHT_ONE`, 0 if excluded."""

    worker: str
    document: str
    weight: int


@dataclass(frozen=True)
class StepRecord:
    """Outer step `step`, which led to the state of digest `state` (hex). Its commit record is entry `number` of the
    log, whose stored bytes have the SHA-256 `entry` (hex). Contributions ascend by worker."""

    step: int
    state: str
    number: int
    entry: str
    contributions: tuple[RecordedContribution, ...]


class DilocoRuns(Contract):
    """One record per outer step of a DiLoCo run. `open` (document, start) makes the sender a run's coordinator and
    returns its number; `opened` is the newest run's, 0 if there is none."""

    name = "DilocoRuns"
    open = Sends[[bytes, bytes], int]("RunOpened.run")
    opened = Reads[[], int]()
    run_of = Reads[[int], Struct]()

    def record(self, run: int, step_record: StepRecord) -> ContractCall[Receipt]:
        """Record an outer step, as the coordinator."""
        contributions = [
            (contribution.worker, contribution.weight, bytes.fromhex(contribution.document))
            for contribution in step_record.contributions
        ]
        state, entry = bytes.fromhex(step_record.state), bytes.fromhex(step_record.entry)
        call = self.call("record", run, step_record.step, state, step_record.number, entry, contributions)
        # On top of what is not mined yet: a record whose answer was lost is not paid for twice.
        return replace(call, pending=True)

    def recorded(self, run: int, step: int) -> StepRecord | None:
        """Return what is recorded of a step, None if nothing is.

        Raises UnreachableError; IntegrityError where the endpoint lacks the event of a record that it has."""
        number = int(self.read("blockOf", run, step))
        if not number:
            return None
        block = self.client.block(number)
        if block is None:
            raise IntegrityError(f"the chain's endpoint lacks block {number}", "ask another endpoint")
        query = {"address": self.address, "fromBlock": hex(number), "toBlock": hex(number)}
        logs = accepted(self.client.batch([("eth_getLogs", [query])])[0], number, number, block.hash)
        for event in decode_logs(logs, self.deployment):
            a = event.args
            if event.name == "StepRecorded" and (a["run"], a["step"]) == (run, step):
                contributions = tuple(
                    RecordedContribution(contribution["worker"], contribution["document"].hex(), contribution["weight"])
                    for contribution in a["contributions"]
                )
                return StepRecord(a["step"], a["state"].hex(), a["number"], a["entry"].hex(), contributions)
        raise IntegrityError(f"block {number} lacks the record of outer step {step}", "ask another endpoint")
