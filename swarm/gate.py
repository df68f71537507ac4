"""The gate of a swarm: members who hold no key of its bucket share through it, on signed requests and tickets."""

import bisect
import logging
import re
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import RedirectResponse

from orchestrator import auth
from orchestrator.uploads import ObjectStore
from protocol import VERSION
from protocol.api import endpoints, work
from protocol.api.run import Health
from protocol.api.swarm import CURSOR, ENVELOPES, MOST_LISTED, SHARE, EnvelopeListing, EnvelopeUpload, ListedEnvelope
from protocol.api.work import UploadExists, UploadNeeded, UploadResponse
from protocol.encoding import load_document
from protocol.errors import ConfigError, IntegrityError
from protocol.http.signing import WINDOW, AuthScope
from runtime.process import start
from runtime.server import HttpDaemon, bound, server_options
from storage.keys import object_key
from storage.s3 import Bucket
from swarm.config import GateConfig
from swarm.envelope import DOMAIN, MAX_ROUND, MalformedEnvelope, SwarmDocument, open_envelope

log = logging.getLogger("muster.swarm")
KEPT = 64  # newest envelopes of a member that are listed; nobody takes older ones (`swarm.inbox.REMEMBERED_ROUNDS`)
HOUR = 3600.0
TICKET_SECONDS = 900
MOST_NONCES = 200_000
CONNECTIONS = 4096
CHECKS_AT_ONCE = 2  # an envelope may have 32 MiB, and takes several times that while it is opened
_LISTING_SECONDS = 5.0  # a listing is made at most this often, however many ask
_ENVELOPE = re.compile(r"/v1/objects/envelopes/([0-9a-f]{64})\.json")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS envelopes (member TEXT, round INTEGER, sha256 TEXT, size INTEGER,
 PRIMARY KEY (member, round)) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS by_hash ON envelopes (member, sha256);
CREATE TABLE IF NOT EXISTS asked (member TEXT, sha256 TEXT, size INTEGER, time REAL, refused TEXT NOT NULL DEFAULT '',
 PRIMARY KEY (member, sha256)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS asked_since ON asked (time);
"""
_BY_DEPTH = """
SELECT depth, member, round, sha256, size FROM (SELECT *, row_number() OVER (PARTITION BY member ORDER BY round DESC)
 AS depth FROM envelopes) WHERE depth <= ? ORDER BY depth, lower(member)
"""
Place = tuple[int, str]  # of a listing: how many newer envelopes the member has, and one; its lower-case address


class EnvelopeIndex:
    """What a gate has checked and promised, on disk. Safe to share between threads, not between processes. Raises
    ConfigError for a damaged file."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        try:
            self._db = sqlite3.connect(path, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.executescript(_SCHEMA)
        except sqlite3.DatabaseError as error:
            raise ConfigError(f"{path} cannot be used: {error}", "see its disk, or delete it") from None

    def has(self, member: str, sha256: str) -> bool:
        query = "SELECT 1 FROM envelopes WHERE member = ? AND sha256 = ?"
        with self._transaction() as db:
            return db.execute(query, (member, sha256)).fetchone() is not None

    def refused(self, member: str, sha256: str) -> str:
        """Return why this object was refused before; empty if it was not."""
        query = "SELECT refused FROM asked WHERE member = ? AND sha256 = ?"
        with self._transaction() as db:
            return str((db.execute(query, (member, sha256)).fetchone() or ("",))[0])

    def ask(self, member: str, sha256: str, size: int, now: float, most: int, most_bytes: int) -> bool:
        """Record that a member asks to upload an object; return False if that exceeds its quota of an hour. An object
        counts once, with the most bytes asked for. Times far ahead come from a clock that was wrong, and are
        dropped."""
        with self._transaction() as db:
            db.execute("DELETE FROM asked WHERE time <= ? OR time > ?", (now - HOUR, now + HOUR))
            query = "SELECT count(*), coalesce(sum(size), 0) FROM asked WHERE member = ? AND sha256 <> ?"
            count, held = db.execute(query, (member, sha256)).fetchone()
            if count + 1 > most or held + size > most_bytes:
                return False
            query = "INSERT INTO asked (member, sha256, size, time) VALUES (?, ?, ?, ?) ON CONFLICT"
            db.execute(query + " DO UPDATE SET size = max(size, excluded.size)", (member, sha256, size, now))
            return True

    def refuse(self, member: str, sha256: str, why: str) -> None:
        """Record that an object was checked and is not to be checked again."""
        with self._transaction() as db:
            db.execute("UPDATE asked SET refused = ? WHERE member = ? AND sha256 = ?", (why, member, sha256))

    def add(self, member: str, number: int, sha256: str, size: int) -> str:
        """List a member's envelope of round `number`; return why it is not listed, or an empty string."""
        assert 0 <= number < MAX_ROUND
        with self._transaction() as db:
            query = "INSERT INTO envelopes VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
            db.execute(query, (member, number, sha256, size))
            query = "SELECT sha256 FROM envelopes WHERE member = ? AND round = ?"
            first = db.execute(query, (member, number)).fetchone()[0]
            query = "SELECT round FROM envelopes WHERE member = ? ORDER BY round DESC LIMIT 1 OFFSET ?"
            oldest = db.execute(query, (member, KEPT)).fetchone()
            if oldest is not None:
                db.execute("DELETE FROM envelopes WHERE member = ? AND round <= ?", (member, oldest[0]))
        if first != sha256:
            return f"another envelope of round {number} is there already"
        old = oldest is not None and number <= oldest[0]
        return f"{KEPT} later rounds than {number} are there" if old else ""

    def listed(self) -> list[tuple[Place, ListedEnvelope]]:
        """Return the newest envelope of every member, then the second newest, and so on."""
        with self._transaction() as db:
            rows = db.execute(_BY_DEPTH, (KEPT,)).fetchall()
        return [
            ((depth, member.lower()), ListedEnvelope(member=member, round=number, sha256=sha256, size=size))
            for depth, member, number, sha256, size in rows
        ]

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._db:
            yield self._db


class RecentNonces:
    """The request guard's nonces of the last minutes, in memory: repeating a request to a gate does no harm, so a
    restart may forget them. Safe to share between threads."""

    def __init__(self) -> None:
        self._used: OrderedDict[tuple[str, bytes], float] = OrderedDict()
        self._lock = threading.Lock()

    def use(self, address: str, nonce: bytes, now: float) -> bool:
        """Record a nonce; return False if the address used it before."""
        with self._lock:
            fresh = (address, nonce) not in self._used
            self._used[address, nonce] = now
            while self._used and (len(self._used) > MOST_NONCES or next(iter(self._used.values())) < now - 2 * WINDOW):
                self._used.popitem(last=False)
            return fresh


class SwarmGate:
    """Lets `members` share who hold no key of the bucket. It signs URLs, and downloads an envelope once, to check it
    before it is listed. Each member may share `per_hour` envelopes and `bytes_per_hour`."""

    def __init__(
        self,
        swarm: SwarmDocument,
        members: Collection[str],
        store: ObjectStore,
        index: EnvelopeIndex,
        per_hour: int,
        bytes_per_hour: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._swarm, self._members, self._store, self._index = swarm, frozenset(members), store, index
        self._per_hour, self._bytes_per_hour, self._clock = per_hour, bytes_per_hour, clock
        self._lock, self._checking = threading.Lock(), threading.Semaphore(CHECKS_AT_ONCE)
        self._listing: list[tuple[Place, ListedEnvelope]] = []
        self._listing_until = 0.0

    def upload(self, member: str, body: EnvelopeUpload) -> UploadResponse:
        """Return a ticket for an envelope; once it is there and is this member's, return that it is listed. Raise
        HttpError 403, 409, 413, 429 or 503."""
        if member not in self._members:
            raise auth.HttpError(403, f"{member} is no member of this swarm", "ask the gate's owner to name it")
        key, now = object_key("envelopes", bytes.fromhex(body.sha256)), self._clock()
        if body.size > self._swarm.envelope_bytes:
            raise auth.HttpError(
                413, f"an envelope of this swarm has at most {self._swarm.envelope_bytes} bytes", "share less"
            )
        if self._index.has(member, body.sha256):
            return UploadExists(key=key)
        if why := self._index.refused(member, body.sha256):
            raise auth.HttpError(409, why, "share another round")
        # Counted before the bucket is asked, too.
        if not self._index.ask(member, body.sha256, body.size, now, self._per_hour, self._bytes_per_hour):
            what = f"more than {self._per_hour} envelopes or {self._bytes_per_hour} bytes of {member} in an hour"
            raise auth.HttpError(429, what, "share less often", 600)
        size = self._store.size(key)
        if size is None:
            ticket = self._store.presign_put(key, body.size, bytes.fromhex(body.sha256), TICKET_SECONDS)
            return UploadNeeded(key=key, **ticket.model_dump())
        if size != body.size:  # the quota counted the size that was asked with
            raise auth.HttpError(409, f"{size} bytes lie there, not {body.size}", "ask with its size")
        if not self._checking.acquire(blocking=False):
            raise auth.HttpError(503, "other envelopes are being checked", "try again", 1)
        try:
            self._check(member, key, body.sha256, size)
        finally:
            self._checking.release()
        return UploadExists(key=key)

    def listing(self, after: str | None) -> EnvelopeListing:
        """Return a page of the public listing; `after` is the `next` of the page before. Raise HttpError 422."""
        begin = 0
        with self._lock:
            now = time.monotonic()
            if now >= self._listing_until:
                self._listing, self._listing_until = self._index.listed(), now + _LISTING_SECONDS
            listing = self._listing
        if after is not None:
            cursor = re.fullmatch(CURSOR, after)
            if cursor is None:
                raise auth.HttpError(422, "`after` is no place of a listing", "send the `next` of the page before")
            begin = bisect.bisect_right(listing, (int(cursor[1]), cursor[2]), key=lambda row: row[0])
        page = listing[begin : begin + MOST_LISTED]
        more = begin + len(page) < len(listing)
        return EnvelopeListing(
            envelopes=[envelope for _, envelope in page], next="{}-{}".format(*page[-1][0]) if more else None
        )

    def location(self, sha256: str) -> str:
        """Return a URL at which an envelope can be read for some minutes."""
        return self._store.presign_get(object_key("envelopes", bytes.fromhex(sha256)), TICKET_SECONDS)

    def _check(self, member: str, key: str, sha256: str, size: int) -> None:
        """List the object if it is the member's envelope. Raise HttpError 409, and do not check it again, if not."""
        try:
            envelope = open_envelope(self._store.get(key, self._swarm.envelope_bytes), self._swarm)
            why = "" if envelope.member == member else f"it is an envelope of {envelope.member}"
        except (MalformedEnvelope, IntegrityError) as error:
            why = f"it is no envelope of this swarm: {error.what}"[:300]
        if not why:
            why = self._index.add(member, envelope.round, sha256, size)
        if why:
            self._index.refuse(member, sha256, why)
            raise auth.HttpError(409, why, "share another round")


# HTTP

signed = APIRouter(route_class=auth.SignedRoute, responses=auth.documented(400, 401, 403, 408, 409, 413, 422, 503))
router = APIRouter(responses=auth.documented())


def _gate(request: Request) -> SwarmGate:
    return request.app.state.service  # type: ignore[no-any-return]


Gate = Annotated[SwarmGate, Depends(_gate)]


@signed.post(SHARE.path, summary="Ask to upload an envelope, and again once it is there")
def post_envelope(body: EnvelopeUpload, sender: auth.Sender, service: Gate) -> work.UploadResponse:
    return service.upload(sender, body)


@router.get(ENVELOPES.path, summary="Which envelopes lie there", response_model=EnvelopeListing)
def get_envelopes(service: Gate, after: str | None = None) -> Response:
    return Response(service.listing(after).model_dump_json(), media_type="application/json")


@router.get(endpoints.OBJECTS + "/{key:path}", summary="Find an envelope", status_code=307, response_class=Response)
def get_object(key: str, request: Request, service: Gate) -> RedirectResponse:
    # Not the path parameter: its route lets a trailing line feed pass unseen.
    named = _ENVELOPE.fullmatch(str(request.scope["path"]))
    if named is None:
        raise auth.HttpError(404, "there is no such envelope", "see docs/design/swarm.md")
    return RedirectResponse(service.location(named[1]), 307)


@router.get(endpoints.HEALTH.path, summary="Does it answer?", response_model=Health)
def get_health() -> Health:
    return Health(ok=True, version=VERSION)


def create_app(gate: SwarmGate, guard: auth.RequestGuard, rate: float = 50.0, burst: float = 400.0) -> FastAPI:
    """Return the app. `rate`, `burst`: see `protect`."""
    app = FastAPI(title="muster swarm gate", version=VERSION, docs_url=None, redoc_url=None)
    app.state.service = gate
    auth.protect(app, guard, rate, burst)
    app.include_router(signed)
    app.include_router(router)
    return app


# Process


def _build(config: GateConfig) -> HttpDaemon:
    swarm = load_document(config.document, SwarmDocument)
    with ExitStack() as stack:
        listener = stack.enter_context(bound(config.host, config.port))
        index = EnvelopeIndex(config.home / "gate.sqlite")
        stack.callback(index.close)
        gate = SwarmGate(swarm, config.members, Bucket(config.s3), index, config.per_hour, config.bytes_per_hour)
        guard = auth.RequestGuard(AuthScope.of(config.url, DOMAIN.chain_id, DOMAIN.contract), RecentNonces().use)
        log.info("serving %s", config.url)
        return HttpDaemon(server_options(create_app(gate, guard), CONNECTIONS), listener, stack.pop_all())


def run(config_path: Path) -> None:
    """Serve until SIGINT or SIGTERM. Raise MusterError, before anything is served, for what a user can mend."""
    start(config_path, GateConfig, _build)
