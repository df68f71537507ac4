"""Notes, log and states of strangers: the one encoding, by the one signer, at the one place, or a clear refusal."""

import json
from typing import Any

import numpy as np
import pytest

from protocol import signing
from protocol.encoding import canonical_json, sha256_hex
from protocol.errors import IntegrityError
from protocol.sites.config import AdmissionConfig, SitesConfig
from protocol.sites.identity import DOMAIN
from protocol.sites.log import (
    FIRST,
    MAX_EVENTS,
    STRUCT,
    Boundary,
    LogEntry,
    LogEvent,
    MalformedEntry,
    MarksOfSite,
    TimeUp,
    open_entry,
    seal_entry,
)
from protocol.sites.notes import MAX_NAMED, MalformedNote, SiteNote, open_note, seal_note
from protocol.sites.run import SitesRun
from protocol.sites.state_files import MalformedState, list_state, open_list, read_state, state_shards
from tests.protocol.sites.samples import KEYS, LAYOUT, STATE

SITE, OTHER, KEEPER = KEYS[0], KEYS[1], KEYS[3]
RUN = SitesRun(
    name="a",
    keeper=KEEPER.address,
    sites=tuple(str(one.address) for one in KEYS[:3]),
    settings=SitesConfig(inner_steps=10),
)
NEXT = RUN.model_copy(update={"name": "b"})
NOTE = SiteNote(run=RUN.digest, site=SITE.address, number=3, what="sign", step=1, digest="ab" * 32)
ENTRY = LogEntry(
    run=RUN.digest, number=0, previous=FIRST, chapter=0, time=5.0, events=[Boundary(step=0, digest="cd" * 32)]
)
STORED = seal_entry(ENTRY, RUN, KEEPER)


def altered(**changes: Any) -> bytes:
    """The stored note with other values under the old signature."""
    stored = json.loads(seal_note(NOTE, RUN, SITE))
    return canonical_json(stored | {"note": stored["note"] | changes})


def test_a_note_is_opened_where_it_belongs_alone() -> None:
    data = seal_note(NOTE, RUN, SITE)
    assert open_note(data, RUN, SITE.address, 3) == NOTE
    for run, site, number in ((NEXT, SITE, 3), (RUN, OTHER, 3), (RUN, SITE, 4)):
        with pytest.raises(MalformedNote, match="here belongs"):
            open_note(data, run, str(site.address), number)
    with pytest.raises(ValueError, match="cannot be signed by"):
        seal_note(NOTE, RUN, OTHER)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "not JSON"),
        (b"[" * 900, "not JSON"),
        (b"x" * 3000, "at most"),
        (seal_note(NOTE, RUN, SITE) + b" ", "canonical"),
        (altered(what="leave"), "belongs to"),
        (altered(digest=None), "belongs to"),
        (altered(what="win"), "what"),
        (altered(what="unusable", digest=None), "belong to `unusable`"),
        (altered(items=["ab" * 32]), "belong to `unusable`"),
        (altered(what="unusable", digest=None, items=["ab" * 32] * 17), "items"),
        (altered(step=-1), "step"),
        (altered(step=2), "not signed by"),
    ],
)
def test_any_other_note_is_refused(data: bytes, word: str) -> None:
    with pytest.raises(MalformedNote, match=word):
        open_note(data, RUN, SITE.address, 3)


def test_a_full_note_fits_its_limit() -> None:
    made = NOTE.model_copy(
        update={"what": "unusable", "digest": None, "items": ["ab" * 32] * MAX_NAMED, "attempt": (1 << 32) - 1}
    )
    assert open_note(seal_note(made, RUN, SITE), RUN, SITE.address, 3) == made


def test_an_entry_is_opened_where_it_belongs_alone() -> None:
    assert open_entry(STORED, RUN, 0, FIRST) == ENTRY == open_entry(STORED, RUN, 0, None)
    for run, number in ((NEXT, 0), (RUN, 1)):
        with pytest.raises(MalformedEntry, match="here belongs"):
            open_entry(STORED, run, number, FIRST)
    with pytest.raises(IntegrityError, match="follows") as found:
        open_entry(STORED, RUN, 0, "ef" * 32)
    assert not isinstance(found.value, MalformedEntry), "the keeper signed it: no stranger's bytes to pass over"
    with pytest.raises(ValueError, match="is kept by"):
        seal_entry(ENTRY, RUN, SITE)


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        (("entry", "time"), 6.0, "not signed by"),
        (("entry", "events", 0, "kind"), "won", "events"),
        (("entry", "events", 0, "members"), [SITE.address] * 65, "members"),
        (("entry", "events", 0, "made_of"), {"0x0": "ab" * 32}, "made_of"),
        (("entry", "events", 0, "extra"), 1, "extra"),
        (("signature",), "0x" + "00" * 65, "27 or 28"),
    ],
)
def test_any_other_entry_is_refused(path: tuple[str | int, ...], value: Any, word: str) -> None:
    stored = json.loads(STORED)
    place = stored
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(MalformedEntry, match=word):
        open_entry(canonical_json(stored), RUN, 0, FIRST)


@pytest.mark.parametrize(("what", "digest"), [("join", None), ("sign", None), ("leave", "ab" * 32)])
def test_a_note_is_taken_with_what_it_is_about(what: str, digest: str | None) -> None:
    stored = json.loads(STORED)
    event = {"kind": "noted", "site": SITE.address, "note": 0, "what": what, "digest": digest}
    with pytest.raises(MalformedEntry, match="belongs to all but"):
        open_entry(canonical_json({**stored, "entry": stored["entry"] | {"events": [event]}}), RUN, 0, FIRST)


def events_of(number: int) -> list[LogEvent]:
    return [TimeUp(attempt=attempt, phase="open") for attempt in range(number)]


@pytest.mark.parametrize(
    ("events", "word"),
    [
        ([], "events"),
        (events_of(MAX_EVENTS + 1), "events"),
        ([ENTRY.events[0], *events_of(1)], "a boundary is the last event"),
        ([ENTRY.events[0], ENTRY.events[0]], "a boundary is the last event"),
    ],
)
def test_an_entry_of_other_events_than_it_may_have_is_refused(events: list[LogEvent], word: str) -> None:
    """Also where the keeper signed it: whoever reads the log passes it over, as what strangers put there."""
    entry = ENTRY.model_copy(update={"events": events})
    with pytest.raises(MalformedEntry, match=word):
        open_entry(sealed_as_it_is(entry), RUN, 0, FIRST)


def test_as_many_events_as_it_may_have_and_a_boundary() -> None:
    entry = ENTRY.model_copy(update={"events": [*events_of(MAX_EVENTS - 1), *ENTRY.events]})
    assert open_entry(seal_entry(entry, RUN, KEEPER), RUN, 0, FIRST).boundary == ENTRY.events[0]
    assert ENTRY.model_copy(update={"events": events_of(2)}).boundary is None


def sealed_as_it_is(entry: LogEntry) -> bytes:
    """Signed by the keeper, whatever it says."""
    digest = signing.digest(
        RUN.pool_id.domain(DOMAIN), STRUCT, RUN.pool_id.pool, entry.number, bytes.fromhex(RUN.digest),
        bytes.fromhex(entry.previous), entry.body,
    )  # fmt: skip
    signature = "0x" + signing.sign(KEEPER, digest).hex()
    return canonical_json({"entry": entry.model_dump(mode="json"), "signature": signature})


def test_a_full_entry_fits_its_limit() -> None:
    sites = tuple("0x" + f"{number:040x}" for number in range(10, 74))
    digests = dict.fromkeys(sites, "ab" * 32)
    event = Boundary(
        step=1,
        digest="cd" * 32,
        members=list(sites),
        made_of=digests,
        notes=dict.fromkeys(sites, 10**9),
        before=0,
        marks=dict.fromkeys(sites, MarksOfSite(marks=64, until=10**6, made=64)),
    )
    made = seal_entry(ENTRY.model_copy(update={"events": [event], "number": 10**9}), RUN, KEEPER)
    assert len(made) < 1 << 15


def test_a_state_comes_back_from_its_files_and_no_other_does() -> None:
    files, shards = list_state(STATE, 3), list(state_shards(STATE, 3))
    assert open_list(files.encode(), 3) == files
    assert files.shards == [sha256_hex(one) for one in shards]
    assert read_state(files.step, files.digest, shards, LAYOUT).digest == STATE.digest
    flipped = bytearray(shards[1])
    flipped[5] ^= 1
    for wrong, word in (
        ([shards[0], bytes(flipped), shards[2]], "are outer state"),
        ([shards[0], b"", shards[2]], "0 bytes"),
    ):
        with pytest.raises(MalformedState, match=word):
            read_state(files.step, files.digest, wrong, LAYOUT)
    with pytest.raises(MalformedState, match="are outer state"):
        read_state(files.step + 1, files.digest, shards, LAYOUT)
    with pytest.raises(MalformedState, match="3 shards, not 4"):
        open_list(files.encode(), 4)
    nothing = np.zeros(0, np.float32).tobytes()
    with pytest.raises(MalformedState, match="bytes, not"):
        read_state(0, files.digest, [nothing] * 3, LAYOUT)


def test_a_run_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="stands in it twice"):
        SitesRun(name="a", keeper=KEEPER.address, sites=(str(SITE.address),) * 3)
    with pytest.raises(ValueError, match="an outer step needs 3"):
        SitesRun(name="a", keeper=KEEPER.address, sites=RUN.sites[:2])
    with pytest.raises(ValueError, match="overlap"):
        SitesConfig(inner_steps=5, overlap=5)
    alone = SitesConfig(inner_steps=5, overlap=2, admission=AdmissionConfig(minimum=1, cosine=None))
    with pytest.raises(ValueError, match="needs `work` that sites have"):
        SitesRun(name="a", keeper=KEEPER.address, sites=RUN.sites, work="given", settings=alone)
