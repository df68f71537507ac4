"""Verdicts: the 4-bit codes voters put on chain (`contracts/src/libraries/Codes.sol`), and the document behind each.

Measurements differ between engines and machines, so only the code is voted on; the keccak256 of the ballot's document
is bound into the voter's commitment as its own evidence (docs/reference/protocol.md, 7).
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from itertools import chain
from typing import Literal, TypeVar

from pydantic import TypeAdapter

from protocol.encoding import canonical_json, keccak
from protocol.errors import IntegrityError, first_line

LANE = 16  # Submissions of one lane, and codes of one vote
D = TypeVar("D", "Verdict", "BallotDocument")
MAX_DOCUMENT_BYTES = 16 << 20  # Of one vote's document: in a node challenge it covers up to 256 files


class Code(IntEnum):
    """What a vote or an outcome says of one submission; 12 and above are outcomes only."""

    NONE = 0
    ACCEPT = 1
    UNSURE = 2
    REJECT_WEIGHTS = 3
    REJECT_SAMPLING = 4
    REJECT_ASSIGNMENT = 5
    REJECT_REWARD = 6
    REJECT_DUPLICATE = 7
    REJECT_TERMINATION = 8
    REJECT_COMMITMENT = 9
    MALFORMED = 10
    DIFFERENT = 10  # Of a node challenge: the node computes otherwise than was calibrated
    UNAVAILABLE = 11
    CANARY = 12
    VOID = 13
    UNDECIDED = 14
    DISPUTED = 15

    @property
    def is_reject(self) -> bool:
        """Whether the code names a fraud, which slashes and ejects."""
        return Code.REJECT_WEIGHTS <= self <= Code.REJECT_COMMITMENT

    @property
    def is_accept(self) -> bool:
        """Whether the file is paid and may be trained on."""
        return self in (Code.ACCEPT, Code.UNSURE)

    @property
    def is_paid(self) -> bool:
        """Whether the file is paid: what the service took keeps its pay if it cannot be fetched later, or if two
        committees left it undecided."""
        return self.is_accept or self in (Code.UNAVAILABLE, Code.VOID)

    @property
    def label(self) -> str:
        """For people: `reject: weights`, `accept`, …"""
        name = self.name.lower()
        return "reject: " + name.removeprefix("reject_") if self.is_reject else name


def challenge_label(code: Code) -> str:
    """Return a juror's code in a node challenge for people: there MALFORMED says that the node computes otherwise than
    calibrated."""
    return "different" if code is Code.MALFORMED else code.label


Measurement = int | float | str | bool | list[int] | list[float] | list[str]


@dataclass(frozen=True)
class Finding:
    """What one check saw: its code, and the measurements it judged by. `note` is one sentence for people."""

    check: str
    code: Code
    measurements: dict[str, Measurement]
    note: str = ""

    def __post_init__(self) -> None:
        # JSON has no NaN or infinity: they become text, which still tells a reader what happened.
        measured = self.measurements.items()
        shown = {k: repr(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in measured}
        object.__setattr__(self, "measurements", shown)


@dataclass(frozen=True)
class Verdict:
    """One voter's judgement of one submission, with everything needed to repeat it. Hashes are hex without 0x;
    `audited` are the rows that were prefilled (none if the file fell before); `engine` is the verifier's arithmetic."""

    chain_id: int
    pools: str
    pool: int
    sequence: int
    node: str
    step: int
    counter: int
    sha256: str
    lane_seed: str
    config_hash: str
    code: Code
    engine: dict[str, str]
    audited: list[int]
    findings: tuple[Finding, ...]
    version: Literal[1] = 1

    def canonical(self) -> bytes:
        return canonical_json(asdict(self))

    @classmethod
    def parse(cls, data: bytes) -> "Verdict":
        """Parse what `canonical` wrote. Raises IntegrityError for anything else."""
        return _parsed(_VERDICT, data)


@dataclass(frozen=True)
class BallotDocument:
    """What the verdict hash of one vote binds: a verdict on every file of the lane (or trial), in order. `where` names
    the round or trial; `seed` is the draw's, hex without 0x."""

    where: str
    seed: str
    verdicts: tuple[Verdict, ...]
    version: Literal[1] = 1

    def canonical(self) -> bytes:
        """Encode the bytes that are published as `verdicts/<keccak256>.json`."""
        return canonical_json(asdict(self))

    @property
    def digest(self) -> bytes:
        return keccak(self.canonical())

    @classmethod
    def parse(cls, data: bytes, digest: bytes) -> "BallotDocument":
        """Parse the bytes that the vote was bound to. Raises IntegrityError for any others."""
        if keccak(data) != digest:
            raise IntegrityError("the verdict document is not the one that was voted with", "ask another source")
        return _parsed(_BALLOT, data)

    def on(self, sequence: int) -> Verdict:
        """Return the verdict on one file. Raises IntegrityError if there is none."""
        chosen = [verdict for verdict in self.verdicts if verdict.sequence == sequence]
        if len(chosen) != 1:
            raise IntegrityError(f"the verdict document says nothing on file {sequence}", "ask its voter")
        return chosen[0]


_VERDICT, _BALLOT = TypeAdapter(Verdict), TypeAdapter(BallotDocument)


def _parsed(kind: TypeAdapter[D], data: bytes) -> D:
    try:
        document = kind.validate_json(data)
        if document.canonical() != data:
            raise ValueError("not canonical")
        return document
    except ValueError as error:
        raise IntegrityError(f"not a verdict document: {first_line(error)}", "ask its voter for it again") from None


def combine(findings: Sequence[Finding]) -> Code:
    """Return the worst code: reject before malformed before unavailable before unsure before accept; of frauds the
    first in order, so that voters with the same order of checks give the same reason."""
    codes = [finding.code for finding in findings]
    rejects = (code for code in codes if code.is_reject)
    others = (code for code in (Code.MALFORMED, Code.UNAVAILABLE, Code.UNSURE) if code in codes)
    return next(chain(rejects, others), Code.ACCEPT)


def tally(votes: Sequence[Code], seats: int) -> Code:
    """Return what the contracts make of the votes that a body of `seats` seats opened (`Reckoning.sol`): UNDECIDED
    unless more than half of the seats say the same."""
    majority = seats // 2 + 1
    rejects = Counter(vote for vote in votes if vote.is_reject)
    if sum(vote.is_accept for vote in votes) >= majority:
        return Code.ACCEPT
    if rejects.total() >= majority:
        return min(rejects, key=lambda code: (-rejects[code], code))
    if rejects.total() + votes.count(Code.MALFORMED) >= majority:
        return Code.MALFORMED
    return Code.UNAVAILABLE if votes.count(Code.UNAVAILABLE) >= majority else Code.UNDECIDED


def pack(codes: Sequence[Code]) -> int:
    """Pack up to 16 codes into one word, code i at bits 4i … 4i+3, as `Codes.at` reads them."""
    if len(codes) > LANE:
        raise ValueError(f"a lane has at most {LANE} submissions, not {len(codes)}")
    return sum(int(code) << (4 * i) for i, code in enumerate(codes))


def unpack(word: int) -> list[Code]:
    """Return the 16 codes of a word; places without a submission hold NONE."""
    return [code_at(word, index) for index in range(LANE)]


def code_at(word: int, index: int) -> Code:
    """Return the code of the submission at `place` of a lane, 0 to 15."""
    return Code(word >> (4 * index) & 15)
