"""What a site tells the keeper of the log: that it joins, that it leaves, that it signed a contribution, that it cannot
use files that are dealt to it.

A note is the canonical JSON {note, signature}, the `number`-th of its site; its place follows from these, so nobody can
put it elsewhere or say it again.
"""

import hashlib
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from protocol import signing
from protocol.accounts import LocalAccount
from protocol.api.base import Address, Hex64, Signature, SignedBody
from protocol.encoding import canonical_json
from protocol.errors import IntegrityError
from protocol.sites.contribution import MAX_STEP
from protocol.sites.run import SitesRun
from protocol.sites.sealing import RunSeal

STRUCT = (
    "Note(uint256 pool,address site,uint256 number,bytes32 run,uint256 step,uint256 attempt,bytes32 document,"
    "bytes32 body)"
)
"""`document`: the contribution that it signs, zero if it signs none. So a contract sees two contributions to one
attempt (protocol/sites/contradiction.py)."""
MAX_NOTE_BYTES = 2048
MAX_NAMED = 16
MAX_NOTES = 10**10
NoteWhat = Literal["join", "leave", "sign", "unusable", "products", "means", "checked", "accuse"]


class MalformedNote(IntegrityError):
    """Bytes that are no note, or not the one that belongs there."""


class SiteNote(SignedBody):
    """`join`: the site holds the outer state `step` of `digest` and asks to be a member. `leave`: it ends. `sign`: its
    contribution to attempt `attempt` at outer step `step` is the document of SHA-256 `digest`. `unusable`: of what is
    dealt to it in that attempt it cannot train on `items` (SHA-256 each; there may be more). Where sites reduce shards,
    of its own ones in that attempt, `products`, `means`: are the documents of `digest`; `checked`: by all means it
    comes to the state of `digest`; `accuse`: the document of `digest`, another's, is wrong."""

    version: Literal[1] = 1
    run: Hex64
    site: Address
    number: int = Field(ge=0, lt=MAX_NOTES)
    what: NoteWhat
    step: int = Field(ge=0, lt=MAX_STEP)
    attempt: int = Field(0, ge=0, lt=1 << 32)
    digest: Hex64 | None = None
    items: Annotated[list[Hex64], Field(max_length=MAX_NAMED)] = Field(default_factory=list)

    @model_validator(mode="after")
    def _names_what_it_is_about(self) -> Self:
        if (self.digest is None) != (self.what in ("leave", "unusable")):
            raise ValueError("`digest` belongs to all but `leave` and `unusable`")
        if bool(self.items) != (self.what == "unusable"):
            raise ValueError("`items` belong to `unusable`")
        return self

    @property
    def document(self) -> bytes:
        """SHA-256 of the contribution that it signs; zeros if it signs none."""
        return bytes.fromhex(self.digest) if self.what == "sign" and self.digest is not None else bytes(32)

    @property
    def body(self) -> bytes:
        """What its signature covers of it."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json"))).digest()


class SignedNote(SignedBody):
    """As it is stored."""

    note: SiteNote
    signature: Signature


def _place(note: SiteNote) -> tuple[signing.Value, ...]:
    return note.site, note.number, bytes.fromhex(note.run), note.step, note.attempt, note.document


_SEAL: RunSeal[SiteNote] = RunSeal(SignedNote, "note", STRUCT, _place, MAX_NOTE_BYTES, "a note", MalformedNote)


def seal_note(note: SiteNote, run: SitesRun, account: LocalAccount) -> bytes:
    """The stored bytes. Raises ValueError for another's note."""
    if account.address != note.site:
        raise ValueError(f"a note of {note.site} cannot be signed by {account.address}")
    return _SEAL.seal(note, run, account)


def open_note(data: bytes, run: SitesRun, site: str, number: int) -> SiteNote:
    """The `number`-th note of `site`. Raises MalformedNote for anything else."""

    def misplaced(note: SiteNote) -> str:
        if (note.run, note.site, note.number) == (run.digest, site, number):
            return ""
        return f"it is note {note.number} of {note.site} in run {note.run[:16]}…, here belongs {number}"

    return _SEAL.open(data, run, site, misplaced)
