"""The log of a run: one line of signed entries, each naming the one before, from which every replica computes the same
members and the same outer steps.

The keeper orders what happens. It cannot forge a contribution, nor choose which counts: both follow from published
bytes that everybody checks. A boundary, which ends its entry, begins an outer step and says all that a newcomer must
know to follow from there.
"""

import hashlib
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from protocol.accounts import LocalAccount
from protocol.api.base import Address, Hex64, Signature, SignedBody, UnixTime, at_most
from protocol.encoding import canonical_json
from protocol.errors import IntegrityError
from protocol.sites.config import MAX_SITES
from protocol.sites.contribution import MAX_STEP
from protocol.sites.dealing import MAX_ITEMS
from protocol.sites.notes import MAX_NAMED, MAX_NOTES
from protocol.sites.run import SitesRun
from protocol.sites.sealing import RunSeal

STRUCT = "LogEntry(uint256 pool,uint256 number,bytes32 run,bytes32 previous,bytes32 body)"
MAX_ENTRY_BYTES, MAX_EVENTS = 1 << 16, 128
"""A whole step of 64 sites may take more events than that: then it takes more entries."""
MAX_ENTRIES = 10**10
MAX_WORDS = 200
FIRST = "0" * 64
"""What the first entry names as the one before."""

_Step = Annotated[int, Field(ge=0, lt=MAX_STEP)]
_Number = Annotated[int, Field(ge=0, lt=MAX_NOTES)]
_Attempt = Annotated[int, Field(ge=0, lt=1 << 32)]
_Members = Annotated[list[Address], Field(max_length=MAX_SITES)]
_Documents = Annotated[dict[Address, Hex64], at_most(MAX_SITES)]
_Cursors = Annotated[dict[Address, _Number], at_most(MAX_SITES)]


class MalformedEntry(IntegrityError):
    """Bytes that the keeper of this log did not write for this place: anybody's who may write to the bucket."""


class MarksOfSite(SignedBody):
    """Of a site that held up outer steps: `marks`, of which the last keeps it out of those before `until`; `made`:
    outer steps that it contributed to since a mark came or went (trainer/sites/exclusion.py)."""

    marks: int = Field(ge=1, le=64)
    until: int = Field(ge=0, lt=2 * MAX_STEP)
    made: int = Field(ge=0, le=64)


class Boundary(SignedBody):
    """Outer step `step` begins, from the state of `digest`, with `members`, or once those of `waiting` are enough. It
    was made in attempt `attempt` at the step before, of the documents `made_of`: all that were opened, also those that
    do not count; `counted`: the sites whose do. `before`: number of the boundary before (null: none). `state`: SHA-256
    of the list of files in which the state is published, if it is. `notes`: of each site, the number of its first note
    that is not in the log. `marks`: of those who held up outer steps. Where sites reduce shards, `products`, `means`:
    of each reducer its documents, of which the step was made."""

    kind: Literal["boundary"] = "boundary"
    step: _Step
    digest: Hex64
    attempt: _Attempt = 0
    members: _Members = Field(default_factory=list)
    waiting: _Members = Field(default_factory=list)
    made_of: _Documents = Field(default_factory=dict)
    counted: _Members = Field(default_factory=list)
    before: _Number | None = None
    state: Hex64 | None = None
    notes: _Cursors = Field(default_factory=dict)
    products: _Documents = Field(default_factory=dict)
    means: _Documents = Field(default_factory=dict)
    marks: Annotated[dict[Address, MarksOfSite], at_most(MAX_SITES)] = Field(default_factory=dict)


class WorkGiven(SignedBody):
    """What outer step `step` trains on: the items (SHA-256) that are dealt to its members."""

    kind: Literal["work"] = "work"
    step: _Step
    items: Annotated[list[Hex64], Field(max_length=MAX_ITEMS)]


class Noted(SignedBody):
    """Note `note` of `site` is taken: it joined (`join`, holding the state `digest`), left (`leave`), or signed
    (`sign`) the contribution `digest`."""

    kind: Literal["noted"] = "noted"
    site: Address
    note: _Number
    what: Literal["join", "leave", "sign"]
    digest: Hex64 | None = None

    @model_validator(mode="after")
    def _names_what_it_is_about(self) -> Self:
        if (self.digest is None) != (self.what == "leave"):
            raise ValueError("`digest` belongs to all but `leave`")
        return self


class Unusable(SignedBody):
    """Note `note` of `site` is taken: it cannot train on `items` of those that are dealt to it. It has no part in this
    outer step any more, unless too few others are left; then all come back, and what was named is left out."""

    kind: Literal["unusable"] = "unusable"
    site: Address
    note: _Number
    items: Annotated[list[Hex64], Field(min_length=1, max_length=MAX_NAMED)]


class ContributionRefused(SignedBody):
    """Note `note` of `site` is taken: it signed `document`, which is no contribution to the attempt under way, and
    `why`. It has no part in this outer step any more, as who names files that are unusable."""

    kind: Literal["refused"] = "refused"
    site: Address
    note: _Number
    document: Hex64
    why: str = Field(min_length=1, max_length=MAX_WORDS)


class ContributionOpened(SignedBody):
    """The payload of `document` is published whole, and decodes."""

    kind: Literal["opened"] = "opened"
    site: Address
    document: Hex64


class PartsSaid(SignedBody):
    """Each of the sites said in note `notes` of its own that `documents` are its `what`: products or means of the
    shards that it reduces, or (`checked`) the digest of the state that all means lead it to."""

    kind: Literal["parts"] = "parts"
    what: Literal["products", "means", "checked"]
    documents: _Documents = Field(min_length=1)
    notes: _Cursors

    @model_validator(mode="after")
    def _each_in_a_note(self) -> Self:
        if self.documents.keys() != self.notes.keys():
            raise ValueError("a note belongs to each document")
        return self


class PartRefused(SignedBody):
    """`document`, which `site` signed in the attempt under way, is wrong in shard `shard`, and `why`: its products or
    means are not those of what is published, or the payload of its contribution does not decode. It has no part in this
    outer step any more. `unseen`: in its products it says that a contribution does not decode there, which decodes now:
    other bytes may have lain in its place, so it is no liar."""

    kind: Literal["part-refused"] = "part-refused"
    site: Address
    document: Hex64
    shard: int = Field(ge=0, lt=1024)
    why: str = Field(min_length=1, max_length=MAX_WORDS)
    unseen: bool = False


class TimeUp(SignedBody):
    """For phase `phase` of the `attempt`-th try at the outer step under way."""

    kind: Literal["time-up"] = "time-up"
    attempt: _Attempt
    phase: Literal["collect", "open", "products", "means", "check", "settle"]


class Failed(SignedBody):
    """Attempt `attempt` made no outer step, because too little of what was opened counts."""

    kind: Literal["failed"] = "failed"
    attempt: _Attempt


LogEvent = Annotated[
    Boundary
    | WorkGiven
    | Noted
    | Unusable
    | ContributionRefused
    | ContributionOpened
    | PartsSaid
    | PartRefused
    | TimeUp
    | Failed,
    Field(discriminator="kind"),
]


class LogEntry(SignedBody):
    """Entry `number` after the one of SHA-256 `previous` (of its stored bytes): `events` that happened one after the
    other, which are taken together or not at all. `chapter`: number of the entry with the boundary that began the step
    it is in. `time`: the keeper's clock."""

    version: Literal[2] = 2
    run: Hex64
    number: _Number
    previous: Hex64
    chapter: _Number
    time: UnixTime
    events: Annotated[list[LogEvent], Field(min_length=1, max_length=MAX_EVENTS)]

    @model_validator(mode="after")
    def _ends_with_a_boundary(self) -> Self:
        if any(isinstance(one, Boundary) for one in self.events[:-1]):
            raise ValueError("a boundary is the last event of its entry")
        return self

    @property
    def boundary(self) -> Boundary | None:
        """Which it ends with, if it does. It says all that must be known to follow from there."""
        last = self.events[-1]
        return last if isinstance(last, Boundary) else None

    @property
    def body(self) -> bytes:
        """What the keeper's signature covers of it, besides place and run."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json"))).digest()


class SignedEntry(SignedBody):
    """As it is stored."""

    entry: LogEntry
    signature: Signature


_SEAL: RunSeal[LogEntry] = RunSeal(
    SignedEntry, "entry", STRUCT, lambda entry: (entry.number, bytes.fromhex(entry.run), bytes.fromhex(entry.previous)),
    MAX_ENTRY_BYTES, "an entry of the log", MalformedEntry,
)  # fmt: skip


def seal_entry(entry: LogEntry, run: SitesRun, account: LocalAccount) -> bytes:
    """The stored bytes. Raises ValueError for anyone but the keeper."""
    if account.address != run.keeper:
        raise ValueError(f"the log of {run.name} is kept by {run.keeper}, not {account.address}")
    return _SEAL.seal(entry, run, account)


def open_entry(data: bytes, run: SitesRun, number: int, previous: str | None) -> LogEntry:
    """Entry `number`, after the one of hash `previous` (None: not known). Raises MalformedEntry for what the keeper did
    not write there, IntegrityError where it follows another entry than that."""

    def misplaced(found: LogEntry) -> str:
        if (found.run, found.number) == (run.digest, number):
            return ""
        return f"it is entry {found.number} of run {found.run[:16]}…, here belongs {number}"

    entry = _SEAL.open(data, run, run.keeper, misplaced)
    if previous is not None and entry.previous != previous:
        raise IntegrityError(
            f"entry {number} of the log follows {entry.previous[:16]}…, the log has {previous[:16]}… before it",
            "run one keeper",
        )
    return entry
