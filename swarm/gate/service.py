"""A swarm's gate: those who hold no key of the bucket share through it. It signs URLs, and moves no envelopes but those
that it looks at once before it lists them."""

import bisect
import re
import threading
import time
from collections.abc import Callable, Collection
from typing import Protocol

from orchestrator.auth import HttpError
from protocol.api.swarm import MOST_LISTED, PLACE, EnvelopeListing, EnvelopeUpload, ListedEnvelope
from protocol.api.work import UploadExists, UploadNeeded, UploadResponse, UploadTicket
from protocol.errors import IntegrityError
from protocol.swarm.envelope import EnvelopeLimits, MalformedEnvelope, open_envelope
from storage.keys import object_key
from swarm.gate.index import EnvelopeIndex, SeenEnvelope

TICKET_SECONDS = 900
LOOKS_AT_ONCE = 2
"""An envelope may have 32 MiB, and takes several times that while it is opened."""
_SHOWN_SECONDS = 5.0
"""A listing is made at most so often, however many look: one of a thousand members takes 0.2 s of processor time."""


class GateStore(Protocol):
    """What is needed of `storage.s3.Bucket`."""

    def get(self, key: str, limit: int) -> bytes: ...
    def size(self, key: str) -> int | None: ...
    def presign_put(self, key: str, size: int, sha256: bytes, expires: int = 900) -> UploadTicket: ...
    def presign_get(self, key: str, expires: int = 900) -> str: ...


class SwarmGate:
    """`per_hour` envelopes and `bytes_per_hour` of one member."""

    def __init__(
        self,
        limits: EnvelopeLimits,
        members: Collection[str],
        store: GateStore,
        index: EnvelopeIndex,
        per_hour: int,
        bytes_per_hour: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._limits, self._members, self._store, self._index = limits, frozenset(members), store, index
        self._per_hour, self._bytes_per_hour, self._clock = per_hour, bytes_per_hour, clock
        self._lock, self._looking = threading.Lock(), threading.Semaphore(LOOKS_AT_ONCE)
        self._shown: list[SeenEnvelope] = []
        self._shown_until = 0.0

    def upload(self, member: str, body: EnvelopeUpload) -> UploadResponse:
        """Leave to upload an envelope; once it is there, and is one of this member, word that it is listed. Raises
        HttpError 403, 409, 413, 429."""
        if member not in self._members:
            raise HttpError(403, f"{member} is no member of this swarm", "ask the gate's owner to name it")
        key, now = object_key("envelopes", bytes.fromhex(body.sha256)), self._clock()
        if body.size > self._limits.file_bytes:
            raise HttpError(413, f"an envelope of this swarm has at most {self._limits.file_bytes} bytes", "share less")
        if self._index.has(member, body.sha256):
            return UploadExists(key=key)
        if why := self._index.refused(member, body.sha256):
            raise HttpError(409, why, "share another round")
        # Before the bucket is asked, too: whatever a member asks for is counted.
        if not self._index.ask(member, body.sha256, body.size, now, self._per_hour, self._bytes_per_hour):
            what = f"more than {self._per_hour} envelopes or {self._bytes_per_hour} bytes of {member} in an hour"
            raise HttpError(429, what, "share less often", 600)
        there = self._store.size(key)
        if there is None:
            ticket = self._store.presign_put(key, body.size, bytes.fromhex(body.sha256), TICKET_SECONDS)
            return UploadNeeded(key=key, **ticket.model_dump())
        if there != body.size:
            # It was counted with those.
            raise HttpError(409, f"{there} bytes lie there, not {body.size}", "ask with its size")
        if not self._looking.acquire(blocking=False):
            raise HttpError(503, "other envelopes are being looked at", "try again", 1)
        try:
            self._look(member, key, body.sha256, there)
        finally:
            self._looking.release()
        return UploadExists(key=key)

    def listing(self, after: str | None) -> EnvelopeListing:
        """Public. `after`: the `next` of the page before. Raises HttpError 422."""
        shown, place = self._newest(), _place(after)
        begin = 0 if place is None else bisect.bisect_right(shown, place, key=lambda one: one.place)
        page = shown[begin : begin + MOST_LISTED]
        rows = [ListedEnvelope(member=one.member, round=one.round, sha256=one.sha256, size=one.size) for one in page]
        more = begin + len(page) < len(shown)
        return EnvelopeListing(envelopes=rows, next="{}-{}".format(*page[-1].place) if more else None)

    def location(self, sha256: str) -> str:
        """Where an envelope can be read for some minutes."""
        return self._store.presign_get(object_key("envelopes", bytes.fromhex(sha256)), TICKET_SECONDS)

    def _look(self, member: str, key: str, sha256: str, size: int) -> None:
        """List what lies there, if it is the member's. Raises HttpError 409, once looked at without another look."""
        try:
            envelope = open_envelope(self._store.get(key, self._limits.file_bytes), self._limits)
            why = "" if envelope.member == member else f"it is an envelope of {envelope.member}"
        except (MalformedEnvelope, IntegrityError) as error:
            why = f"it is no envelope of this swarm: {error.what}"[:300]
        if not why:
            why = self._index.add(member, envelope.round, sha256, size)
        if why:
            self._index.refuse(member, sha256, why)
            raise HttpError(409, why, "share another round")

    def _newest(self) -> list[SeenEnvelope]:
        with self._lock:
            now = time.monotonic()
            if now >= self._shown_until:
                self._shown, self._shown_until = self._index.listed(), now + _SHOWN_SECONDS
            return self._shown


def _place(after: str | None) -> tuple[int, str] | None:
    if after is None:
        return None
    place = re.fullmatch(PLACE, after)
    if place is None:
        raise HttpError(422, "`after` is no place of a listing", "send the `next` of the page before")
    return int(place[1]), place[2]
