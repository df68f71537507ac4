"""The records of the projected state: plain data, filled by `chain.indexer.reducers` from events only.

Amounts are base units, times Unix seconds, hashes 32 bytes, addresses checksum strings. Names are those of
docs/reference/contracts.md.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum, StrEnum
from functools import cache
from operator import eq
from typing import Any

from protocol.encoding import encode_words, keccak
from protocol.verdict import LANE, Code, challenge_label, code_at


class Status(StrEnum):
    """Where a submission stands. `accepted` and the refusals may still be disputed until its `final_time`."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    MALFORMED = "malformed"
    UNAVAILABLE = "unavailable"
    VOID = "void"
    CANARY = "canary"


@cache
def status_of(code: int) -> Status:
    """Return the status that an outcome code gives a submission."""
    value = Code(code)
    if value.is_accept:
        return Status.ACCEPTED
    if value.is_reject:
        return Status.REJECTED
    return Status.__members__.get(value.name, Status.PENDING)


@dataclass(frozen=True)
class Terms:
    """A pool's immutable terms: `PoolTerms` of contracts/src/libraries/Types.sol, member by member."""

    committee: int
    drawBlocks: int
    commitWindow: int
    revealWindow: int
    challengeWindow: int
    receiptWindow: int
    fee: int
    group: int
    auditRate: int
    maxLag: int
    jury: int
    rate: int
    juryFee: int
    minStake: int
    leverage: int
    maxUnits: int
    appealJury: int
    appealWindow: int
    juryCommitWindow: int
    inviteOnly: bool
    juryRevealWindow: int
    configHash: bytes

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Terms":
        return cls(**{f.name: values[f.name] for f in fields(cls)})

    def as_tuple(self) -> tuple[Any, ...]:
        """In ABI order."""
        return tuple(getattr(self, f.name) for f in fields(self))

    @property
    def audit_fraction(self) -> float:
        return self.auditRate / 65536


@dataclass(frozen=True)
class Step:
    """A published policy step; its seed follows from the hash of block `seed_block`."""

    step: int
    manifest: bytes
    canary_root: bytes
    seed_block: int
    block: int
    time: int
    tx: str


ReadNumbers = Callable[[int], tuple[int, "array[int]"]]


class FileNumbers(Sequence[int]):
    """Numbers of files in their order, which only grow. The first `archived` of them lie elsewhere, from where `read`
    gets them: it returns a run of numbers with the one at that position, and the position of its first."""

    def __init__(self, numbers: Iterable[int] = (), archived: int = 0, read: "ReadNumbers | None" = None) -> None:
        self.kept, self.archived, self.read = array("I", numbers), archived, read
        self._run = 0, array("I")

    def append(self, number: int) -> None:
        self.kept.append(number)

    def after(self, count: int, read: "ReadNumbers") -> "FileNumbers":
        """Return the same numbers, of which the first `count` of those kept are archived."""
        return FileNumbers(self.kept[count:], self.archived + count, read)

    def __len__(self) -> int:
        return self.archived + len(self.kept)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        position = index + len(self) if index < 0 else index
        if position >= self.archived:
            return self.kept[position - self.archived]
        if position < 0 or self.read is None:
            raise IndexError(index)
        first, run = self._run
        if not 0 <= position - first < len(run):
            first, run = self._run = self.read(position)
        return run[position - first]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileNumbers) and len(self) == len(other) and all(map(eq, self, other))

    def __copy__(self) -> "FileNumbers":
        return self.after(0, self.read) if self.read else FileNumbers(self.kept)

    def __reduce__(self) -> Any:
        return FileNumbers, (self.kept, self.archived)


@dataclass
class Pool:
    """`service`: the key that relays files, at `service_url` (unchecked); the one before it may until `previous_until`.
    `forfeited`: slashed nodes' burnt pay. `refused`: files that were refused and are not finalised."""

    pool: int
    owner: str
    config_hash: bytes
    terms: Terms
    unbonding: int
    block: int
    status: str = "open"
    service: str = ""
    previous_service: str = ""
    previous_until: int = 0
    service_url: str = ""
    funded: int = 0
    claimed: int = 0
    fees_paid: int = 0
    fees_burnt: int = 0
    juries_paid: int = 0
    forfeited: int = 0
    leftover: int = 0
    from_stakes: int = 0
    steps: list[Step] = field(default_factory=list)
    sequences: FileNumbers = field(default_factory=FileNumbers)
    refused: set[int] = field(default_factory=set)

    @property
    def validator_group(self) -> int:
        return self.terms.group or self.pool

    def is_service(self, key: str, now: int) -> bool:
        """Return whether the chain takes what a key relays or signs at chain time `now`."""
        return key == self.service or (key == self.previous_service and now < self.previous_until)

    @property
    def step(self) -> int:
        """The newest step, −1 before the first."""
        return len(self.steps) - 1

    @property
    def escrow(self) -> int:
        """What Pools should hold for it, in base units."""
        gone = self.claimed + self.fees_paid + self.juries_paid + self.fees_burnt + self.forfeited + self.leftover
        return self.funded + self.from_stakes - gone


@dataclass
class Account:
    """A node in a pool. `counter` is that of its next submission; `units_*` count output tokens, `paid` base units.

    `units_awarded`: in files that are to be paid as things stand. `units_earned`, `units_spent`: the contract's running
    totals behind claims. `frozen`: its rejected files that are not final, while it cannot submit. `eject_challenge`:
    the node challenge that ejected it. `archived_hint`: the archived file that a claim would name (−1: none).
    """

    pool: int
    node: str
    operator: str
    member: bool = False
    joined_step: int = 0
    limit: int = 0
    counter: int = 0
    units_pending: int = 0
    units_awarded: int = 0
    units_earned: int = 0
    units_spent: int = 0
    paid: int = 0
    frozen: int = 0
    frozen_at: int = 0
    slashed_at: int = 0
    removed: bool = False
    ejected: bool = False
    eject_code: int = 0
    eject_sequence: int = -1
    eject_challenge: int = 0
    slashed: int = 0
    archived_hint: int = -1
    sequences: FileNumbers = field(default_factory=FileNumbers)

    @property
    def eject_label(self) -> str:
        code = Code(self.eject_code)
        return challenge_label(code) if self.eject_challenge else code.label

    @property
    def eject_reason(self) -> str:
        """What an ejected node was ejected for, and by which file or challenge."""
        number = self.eject_challenge
        by = f"node challenge {number}" if number else f"submission {self.eject_sequence}"
        return f"{self.eject_label}, {by}"

    @property
    def barrier(self) -> int:
        """The time from which on nothing that vests can be claimed (0: no such limit)."""
        return min(self.frozen_at or self.slashed_at, self.slashed_at or self.frozen_at)


def pack_work(pool: int, step: int, counter: int, units: int, rows: int) -> int:
    """Pack what a file's hashes do not say into one word, without its sequence."""
    return pool << 136 | step << 72 | counter << 48 | units << 16 | rows


@dataclass
class Submission:
    """One file. `code` is the current outcome (0 while pending), `votes_code` the committee's before any dispute.
    `final_time`: settled outcomes can be disputed before it, accepted work claimed from it on. `finalized` once
    nothing can change it any more (a paid file nobody disputed is final by the clock alone: see `is_final`).
    `committees`: how many were drawn for it until it was settled; each earns a fee.
    `cumulative`: the node's earned units up to this file if it can be named in a claim, else 0.
    `lane_words`: its lane's words (`FileSlot`), where one round settled all of it and the file has none of its own.
    """

    pool: int
    sequence: int
    node: str
    step: int
    counter: int
    units: int
    rows: int
    root: bytes
    sha256: bytes
    block: int
    time: int
    tx: str
    code: int = 0
    votes_code: int = 0
    decided_block: int = 0
    decided_time: int = 0
    final_time: int = 0
    disputed: bool = False
    finalized: bool = False
    frozen: bool = False
    committees: int = 0
    cumulative: int = 0
    lane_words: tuple[int, ...] = ()
    forfeited: bool = False
    slashed: int = 0

    @property
    def status(self) -> Status:
        return status_of(self.code)

    @property
    def is_paid(self) -> bool:
        """Whether its outcome, as it stands, pays its node."""
        return Code(self.code).is_paid

    @property
    def lane(self) -> int:
        return self.sequence >> 4

    @property
    def place(self) -> int:
        return self.sequence & 15

    def is_final(self, now: int) -> bool:
        """Return whether the outcome stands for good at chain time `now`."""
        by_the_clock = self.is_paid and not self.disputed and now >= self.final_time
        return self.finalized or by_the_clock

    @property
    def inner(self) -> bytes:
        """`Pools.innerHash`: what a claim, a settlement and a finalisation name the file by."""
        packed = pack_work(self.pool, self.step, self.counter, self.units, self.rows)
        return keccak(encode_words(self.root, self.sha256, packed | self.sequence << 104))

    @property
    def file_ref(self) -> tuple[bytes, str, int]:
        """`FileRef(inner, node, units)`."""
        return self.inner, self.node, self.units

    @property
    def named(self) -> tuple[Any, ...]:
        """Pool, sequence and `FileData(node, step, counter, units, rows, root, fileHash)`: how calls name the file."""
        data = self.node, self.step, self.counter, self.units, self.rows, self.root, self.sha256
        return self.pool, self.sequence, data


@dataclass
class Node:
    """A node key at Stakes; `pool` 0 when in none. `loan`: how much of its stake its `sponsor` lent."""

    node: str
    operator: str
    stake: int
    pool: int = 0
    release_at: int = 0
    frozen: int = 0
    slashed: int = 0
    block: int = 0
    sponsor: str = ""
    loan: int = 0


@dataclass
class Seat:
    """A validator's seat; drawable from epoch `active_from` on until `left_epoch` (0: still active), for the pools of
    the validator `groups` it opted into, and of those in `left_groups` up to the epoch there. `fees`: base units of
    committees' fees that its owner can withdraw."""

    seat: int
    owner: str
    voter: str
    bond: int
    active_from: int
    left_epoch: int = 0
    evicted: bool = False
    release_at: int = 0
    frozen: int = 0
    closed: bool = False
    penalised: int = 0
    earned: int = 0
    fees: int = 0
    groups: tuple[int, ...] = ()
    left_groups: dict[int, int] = field(default_factory=dict)

    @property
    def active(self) -> bool:
        return not self.left_epoch and not self.closed


@dataclass(frozen=True)
class Slash:
    """Base units taken of a node (`who`: its address) or a seat (its number as text); `code` is 0 for a seat's minority
    or withheld vote."""

    kind: str
    who: str
    pool: int
    sequence: int
    code: int
    amount: int
    block: int
    time: int
    tx: str


@dataclass(frozen=True)
class Payment:
    """Base units paid out: `kind` claim (to the operator of `node`), fee (which a seat's owner withdraws), jury (to
    such an owner) or leftover."""

    kind: str
    to: str
    pool: int
    amount: int
    node: str
    units: int
    block: int
    time: int
    tx: str


# Committees, juries, disputes, canaries, node challenges


@dataclass(kw_only=True)
class Panel:
    """Seats drawn by lot that vote in secret: a lane's committee or a jury. `seats` in order of membership (member j is
    seats[j]); empty until drawn. `commits`: member → hash; `reveals`: member → (codes, verdict hash), sixteen packed
    codes for a lane and one code for a jury; `closed`: members paid off; `settled`: its votes were counted."""

    seed_block: int
    seed: bytes = b""
    seats: tuple[int, ...] = ()
    drawn_time: int = 0
    commit_until: int = 0
    reveal_until: int = 0
    commits: dict[int, bytes] = field(default_factory=dict)
    reveals: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)
    settled: bool = False

    @property
    def drawn(self) -> bool:
        return bool(self.seats)

    @property
    def duties(self) -> set[int]:
        """The seats whose part is not closed."""
        return {seat for member, seat in enumerate(self.seats) if member not in self.closed}

    @property
    def all_committed(self) -> bool:
        return self.drawn and len(self.commits) == len(self.seats)

    @property
    def all_revealed(self) -> bool:
        return self.drawn and len(self.reveals) == len(self.seats)


@dataclass
class Round(Panel):
    """One committee of a lane, and the packed codes that it settled."""

    round: int
    settled_time: int = 0
    codes: int = 0

    def code_at(self, position: int, member: int) -> Code:
        """Return what a member revealed for the file at `place`; NONE if nothing."""
        codes, _ = self.reveals.get(member, (0, b""))
        return code_at(codes, position)

    def had(self, seat: int, position: int) -> bool:
        """Return whether a seat showed by its vote that it had the bytes of the file at `place`."""
        none = Code.NONE, Code.UNAVAILABLE
        return seat in self.seats and self.code_at(position, self.seats.index(seat)) not in none


@dataclass
class Lane:
    """One to sixteen submissions with one committee."""

    pool: int
    lane: int
    rounds: list[Round]
    sequences: list[int] = field(default_factory=list)

    @property
    def round(self) -> Round:
        """The newest one."""
        return self.rounds[-1]


@dataclass
class Trial(Panel):
    """A jury on one submission, or on a node challenge's, of which `sequence` is the last. Once its case is over
    (`settled`), `code` is what its jurors were judged by (0: nothing). Of a case's first jury: `appeal_until` from its
    verdict on, the appealing party as `appellant`, and the second jury's trial as `next` (0: none)."""

    trial: int
    pool: int
    sequence: int
    size: int
    code: int = 0
    appeal_until: int = 0
    appellant: str = ""
    next: int = 0

    def proceeds(self, now: int) -> bool:
        """Whether its case can be taken on by this jury as of chain time `now`."""
        if self.settled or self.next:
            return False
        if self.appeal_until:
            return now >= self.appeal_until
        return self.all_revealed or (self.drawn and now >= self.reveal_until)


@dataclass
class Dispute:
    """A dispute of one file. `trial` is its first jury, `code` the final outcome when `resolved`."""

    pool: int
    sequence: int
    disputer: str
    trial: int
    deposit: int
    time: int
    resolved: bool = False
    code: int = 0
    overturned: bool = False
    reward: int = 0


@dataclass
class Canary:
    """An opened canary; `trial`: its jury, 0 when it accuses nobody. `upheld` and `code` once concluded."""

    pool: int
    sequence: int
    row: int
    reason: int
    accused: tuple[int, ...]
    deposit: int
    time: int
    trial: int = 0
    concluded: bool = False
    upheld: bool = False
    code: int = 0
    slashed: dict[int, int] = field(default_factory=dict)


class ChallengeOutcome(IntEnum):
    """How a node challenge ended, if it has."""

    OPEN = 1
    UPHELD = 2
    REFUTED = 3
    DISMISSED = 4
    LAPSED = 5
    DIFFERENT = 6

    @property
    def ends_membership(self) -> bool:
        """Whether the node is in the pool no more."""
        return self in (ChallengeOutcome.UPHELD, ChallengeOutcome.DIFFERENT)


def outcome_for(code: Code) -> ChallengeOutcome:
    """Return how a challenge ends by its jury's majority, as the contract decides it."""
    if code is Code.NONE:
        return ChallengeOutcome.LAPSED
    if code is Code.UNAVAILABLE:
        return ChallengeOutcome.DISMISSED
    if code is Code.DIFFERENT:
        return ChallengeOutcome.DIFFERENT
    return ChallengeOutcome.UPHELD if code.is_reject else ChallengeOutcome.REFUTED


@dataclass
class NodeChallenge:
    """A challenge of a node, for the files `sequences` (ascending). `evidence`: the SHA-256 of what the accuser says;
    `bond`: the accuser's base units; `trials`: its juries in order; `block`, `time`: of its opening.
    Once concluded: `code`; `slashed`, of the node's stake; `back`, to the accuser."""

    challenge: int
    pool: int
    node: str
    accuser: str
    sequences: tuple[int, ...]
    evidence: bytes
    bond: int
    trials: list[int]
    block: int
    time: int
    outcome: ChallengeOutcome = ChallengeOutcome.OPEN
    code: int = 0
    slashed: int = 0
    back: int = 0

    @property
    def trial(self) -> int:
        """The newest jury."""
        return self.trials[-1]


MAX_MIRROR = 500  # characters of an announced URL; longer ones are not believed
MOST_NODE_MIRRORS = 3  # URLs that a node may announce for one file; a seat has one, its newest


@dataclass
class Mirrors:
    """Of one file: URLs of its own node, and of the seats that showed by their vote that they had it. Unchecked."""

    node: list[str] = field(default_factory=list)
    seats: dict[int, str] = field(default_factory=dict)

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.seats.values(), *self.node)))


@dataclass(frozen=True)
class ProposedCall:
    """A call that the timelock will make. `value` is wei."""

    target: str
    value: int
    data: bytes = field(repr=False)


@dataclass
class Proposal:
    """One operation of the timelock: its calls, all or none of them, from `ready_at` on and after the operation
    `predecessor`, if that is not zero. `status` is scheduled, done or cancelled."""

    id: bytes
    calls: list[ProposedCall]
    predecessor: bytes
    ready_at: int
    block: int
    salt: bytes = bytes(32)
    status: str = "scheduled"


# Jurors' windows, as in Juries.sol


MAX_WINDOW = 30 * 24 * 3600  # seconds; `Bounds.MAX_WINDOW`


def jury_commit_window(terms: Terms, files: int) -> int:
    """Seconds from the draw: the jury's window for the first file, a committee's for every further sixteen begun."""
    return min(terms.juryCommitWindow + further_lanes(files) * terms.commitWindow, MAX_WINDOW)


def further_lanes(files: int) -> int:
    """How many lanes are begun by all but the first of `files` files."""
    return -(-max(0, files - 1) // LANE)
