"""Proofs that a site or the keeper signed two things that cannot both be: what of them a contract needs to judge it."""

from dataclasses import dataclass

from protocol.errors import IntegrityError
from protocol.signed import open_canonical
from protocol.sites.log import MAX_ENTRY_BYTES, LogEntry, MalformedEntry, SignedEntry, open_entry
from protocol.sites.notes import MAX_NOTE_BYTES, MalformedNote, SignedNote, SiteNote, open_note
from protocol.sites.run import SitesRun


@dataclass(frozen=True)
class SiteContradiction:
    """Two notes of `site` that sign different contributions to attempt `attempt` at outer step `step`, each with its
    signature."""

    site: str
    step: int
    attempt: int
    notes: tuple[tuple[SiteNote, bytes], tuple[SiteNote, bytes]]


@dataclass(frozen=True)
class KeeperContradiction:
    """Two entries of the keeper's at place `number` of its log, each with its signature."""

    number: int
    entries: tuple[tuple[LogEntry, bytes], tuple[LogEntry, bytes]]


def site_contradiction(one: bytes, other: bytes, run: SitesRun) -> SiteContradiction:
    """The proof from two stored notes. Raises MalformedNote for what is no note of that run, IntegrityError for two
    that prove nothing."""
    first, second = _note(one, run), _note(other, run)
    a, b = first[0], second[0]
    if (a.site, a.what, a.step, a.attempt) != (b.site, "sign", b.step, b.attempt) or b.what != "sign":
        what = f"{_said(a)}; {_said(b)}"
        raise IntegrityError(what, "show two notes by which one site signs contributions to one attempt")
    if a.document == b.document:
        raise IntegrityError("both notes sign the same contribution", "saying it twice is no breach")
    return SiteContradiction(a.site, a.step, a.attempt, (first, second))


def keeper_contradiction(one: bytes, other: bytes, run: SitesRun) -> KeeperContradiction:
    """The proof from two stored entries of the log. Raises MalformedEntry for what the keeper did not write, and
    IntegrityError for two that prove nothing."""
    first, second = signed_entry(one, run), signed_entry(other, run)
    a, b = first[0], second[0]
    if a.number != b.number:
        raise IntegrityError(f"entry {a.number} and entry {b.number}", "show two entries of one place")
    if a == b:
        raise IntegrityError("both are the same entry", "writing it twice is no breach")
    return KeeperContradiction(a.number, (first, second))


def signed_entry(data: bytes, run: SitesRun) -> tuple[LogEntry, bytes]:
    """An entry of the run's log and its signature. Raises MalformedEntry for what the keeper did not write."""
    signed = open_canonical(data, SignedEntry, MAX_ENTRY_BYTES, "an entry of the log", MalformedEntry)
    entry = open_entry(data, run, signed.entry.number, None)
    return entry, bytes.fromhex(signed.signature[2:])


def _note(data: bytes, run: SitesRun) -> tuple[SiteNote, bytes]:
    signed = open_canonical(data, SignedNote, MAX_NOTE_BYTES, "a note", MalformedNote)
    note = open_note(data, run, signed.note.site, signed.note.number)
    return note, bytes.fromhex(signed.signature[2:])


def _said(note: SiteNote) -> str:
    return f"{note.site}: {note.what}, outer step {note.step}, attempt {note.attempt}"
