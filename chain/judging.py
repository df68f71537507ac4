"""Records of who judges: lanes and their committees, juries, disputes, opened canaries, node cases, disputed outer
steps.

Units and names as in `chain.records`.
"""

from dataclasses import dataclass, field
from enum import IntEnum

from protocol.verdict import LANE, Code, code_at


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

    def code_at(self, place: int, member: int) -> Code:
        """The code that member `member` revealed for the file at `place`; NONE when not revealed."""
        codes, _ = self.reveals.get(member, (0, b""))
        return code_at(codes, place)

    def had(self, seat: int, place: int) -> bool:
        """Whether a seat showed by its vote that it had the bytes of the file at `place`."""
        if seat not in self.seats:
            return False
        return self.code_at(place, self.seats.index(seat)) not in (Code.NONE, Code.UNAVAILABLE)


@dataclass
class Lane:
    """Up to sixteen submissions with one committee. `start` is its first submission's block, `last_block` the last one
    in which it takes any. `attested`: bit p is set once the upload of the file at place p was attested; until anything
    is, `rounds[0].seed_block` is 0."""

    pool: int
    lane: int
    start: int
    last_block: int
    rounds: list[Round]
    sequences: list[int] = field(default_factory=list)
    attested: int = 0

    @property
    def full(self) -> bool:
        return len(self.sequences) == LANE

    def ended(self, head: int) -> bool:
        """Whether it takes no more files after block `head`."""
        return self.full or head >= self.last_block

    @property
    def missing(self) -> int:
        """The places of its files that are not attested, as a bitmap."""
        return (1 << len(self.sequences)) - 1 & ~self.attested

    def is_judged(self, place: int) -> bool:
        """Whether its committee votes on the file at a place: what was not attested is late, whatever it is."""
        return self.attested >> place & 1 == 1

    @property
    def round(self) -> Round:
        """The newest round."""
        return self.rounds[-1]


@dataclass
class Trial(Panel):
    """A jury on one submission, on a node case's, of which `sequence` is the last, or on an outer step of a run, where
    `sequence` is no file's. `code` once settled (0: none)."""

    trial: int
    pool: int
    sequence: int
    size: int
    code: int = 0


@dataclass
class Dispute:
    """A dispute of one file. `verdict` is the first jury's code (0 before), `code` the final one when `resolved`."""

    pool: int
    sequence: int
    disputer: str
    trial: int
    deposit: int
    time: int
    verdict: int = 0
    appeal_until: int = 0
    appellant: str = ""
    resolved: bool = False
    code: int = 0
    overturned: bool = False
    reward: int = 0


@dataclass
class Canary:
    """An opened canary. `upheld` and `code` once concluded."""

    pool: int
    sequence: int
    row: int
    reason: int
    accused: tuple[int, ...]
    deposit: int
    time: int
    contester: str = ""
    trial: int = 0
    concluded: bool = False
    upheld: bool = False
    code: int = 0
    slashed: dict[int, int] = field(default_factory=dict)


class CaseOutcome(IntEnum):
    """IOneJury.Outcome."""

    NONE = 0
    OPEN = 1
    UPHELD = 2
    REFUTED = 3
    DISMISSED = 4
    LAPSED = 5


@dataclass(kw_only=True)
class OneJury:
    """What one jury decides (IOneJury). `bond`: grains that whoever brought it deposited; `trials`: its jury, and the
    one that replaced it; `block`, `time`: of its opening. Once concluded: `code`; `slashed`, of the accused's stake;
    `back`, to whoever brought it."""

    bond: int
    trials: list[int]
    block: int
    time: int
    outcome: CaseOutcome = CaseOutcome.OPEN
    code: int = 0
    slashed: int = 0
    back: int = 0

    @property
    def trial(self) -> int:
        """The jury that decides."""
        return self.trials[-1]

    def concluded(self, outcome: int, code: int, slashed: int, back: int) -> None:
        """As the contract's event says."""
        self.outcome, self.code, self.slashed, self.back = CaseOutcome(outcome), code, slashed, back


@dataclass
class Accusation(OneJury):
    """A case against a node, for the files `sequences` (ascending). `evidence`: the SHA-256 of what the accuser
    says."""

    case: int
    pool: int
    node: str
    accuser: str
    sequences: tuple[int, ...]
    evidence: bytes
