"""What a site tells the keeper of the log: that it joins, that it leaves, that it signed a contribution, that it cannot
use files that are dealt to it.

A note is the canonical JSON {note, signature}, the `number`-th of its site; its place follows from these, so nobody can
put it elsewhere or say it again.
"""

from typing import Annotated, Literal, Self

from eth_account.signers.local import LocalAccount
from pydantic import Field, model_validator

from protocol.api.base import Address, Hex64, Signature, SignedBody
from protocol.errors import IntegrityError
from protocol.sites.contribution import MAX_STEP
from protocol.sites.run import SitesRun
from protocol.sites.sealing import RunSeal

STRUCT = "Note(uint256 pool,address site,uint256 number,bytes32 run,bytes32 body)"
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


class SignedNote(SignedBody):
    """As it is stored."""

    note: SiteNote
    signature: Signature


_SEAL: RunSeal[SiteNote] = RunSeal(
    SignedNote, "note", STRUCT, lambda note: (note.site, note.number, bytes.fromhex(note.run)),
    MAX_NOTE_BYTES, "a note", MalformedNote,
)  # fmt: skip


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
