"""Retained files: the bytes that our seats may have to show a jury, on disk before a vote on them is cast.

A jury that gets a file from nobody ends its acceptance and fines the seats that accepted it. So a file is retained
until its outcome can change no more. While it is disputed, it is served to anybody (by this process, or from a bucket
of the validator's own) and its URL is announced on chain.
"""

import asyncio
import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from stat import S_ISREG

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import Route

from chain.indexer.records import Submission
from chain.indexer.state import State
from chain.suite import Suite
from chain.transactions import Receipt
from protocol.encoding import canonical_json
from protocol.errors import ConfigError, IntegrityError, MusterError
from protocol.files import write_atomic
from runtime.entry import essential
from runtime.server import HttpServer, bound, server_options
from storage.keys import object_key, parse_key
from validator.config import RETAINED, RepublishConfig, ServeConfig, ValidatorConfig
from validator.decide import seats_of
from validator.tasks import TransactionTasks

log = logging.getLogger("muster.validator")
_NAME = re.compile(r"([0-9]{1,10})-([0-9]{1,10})-([0-9a-f]{64})\.parquet")
_REMIND_SECONDS = 60.0

FileId = tuple[int, int]  # pool and sequence
# An id and the SHA-256 of a file: a reorganisation may put another file under the id, and the former one back.
FileName = tuple[FileId, bytes]


# --- Quota: whose files may take how much of the store


BYTES_OF_A_FEE = 16 << 20  # bytes for which the chain's least fee would pay in an empty store
_FEES_OF_A_PENALTY = 100


@dataclass(frozen=True)
class Tenant:
    """Whose a pool's files are. `chosen`: seats judge the pool because they named its number. `fee`, `least_fee`: what
    one seat gets for a file, and the least on this chain, in base units."""

    owner: str
    chosen: bool
    fee: int = 1
    least_fee: int = 1


def tenant_of(state: State, pool: int) -> Tenant:
    """Return the tenant of a pool. A pool that a reorganisation removed was not chosen."""
    known_pool = state.pools.get(pool)
    if known_pool is None:
        return Tenant(f"pool {pool}", chosen=False)
    least = state.params["withheldPenalty"] // _FEES_OF_A_PENALTY
    return Tenant(known_pool.owner, known_pool.validator_group == pool, known_pool.terms.fee, max(1, least))


def has_room(limit: int, held: Collection[tuple[Tenant, int]], tenant: Tenant, size: int) -> bool:
    """Whether a file of `size` bytes may join those that are `held` (with their sizes) in a store of `limit` bytes.

    Nothing retained can be dropped for something better, so room has to be left beforehand. An owner's pools together
    get half of what the others leave. One owner may pose as many, so all pools that our seats did not choose share half
    of the store, and there a file's size, as a share of what its fee pays for, must not exceed the share that stays
    free: blocking small and well-paid files costs what they pay.
    """
    room = limit if tenant.chosen else limit // 2
    beside = [(entry, taken) for entry, taken in held if tenant.chosen or not entry.chosen]
    own = sum(taken for entry, taken in beside if entry.owner == tenant.owner)
    others = sum(taken for entry, taken in beside if entry.owner != tenant.owner)
    if own + size > (room - others) // 2:
        return False
    free = room - own - others - size
    return tenant.chosen or free * BYTES_OF_A_FEE * tenant.fee >= room * size * tenant.least_fee


@dataclass(frozen=True)
class RetainedFile:
    """A file on disk: its size in bytes, and since when it is there (Unix seconds)."""

    size: int
    since: float


class RetentionStore:
    """Files in `folder`, at most `limit` bytes together, shared out by `has_room` among tenants (`tenant_of` pool).

    A file's name holds all that must be known of it, so a kill leaves whole files and no contradiction. `problem`: why
    the newest file could not be retained; empty if it was. Thread-safe.
    """

    def __init__(self, folder: Path, limit: int, tenant_of: Callable[[int], Tenant] | None = None) -> None:
        self._folder, self._limit = folder, limit
        self._tenant_of = tenant_of or (lambda pool: Tenant(str(pool), chosen=True))
        self._lock = threading.Lock()
        self._files: dict[FileName, RetainedFile] = {}
        self._reminded = -_REMIND_SECONDS
        self.problem = ""
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            info = path.lstat()
            if (match := _NAME.fullmatch(path.name)) and S_ISREG(info.st_mode):
                name = (int(match[1]), int(match[2])), bytes.fromhex(match[3])
                self._files[name] = RetainedFile(info.st_size, info.st_mtime)
            elif path.name.endswith(".tmp"):
                path.unlink(missing_ok=True)  # a kill while it was written

    @property
    def files(self) -> Mapping[FileName, RetainedFile]:
        with self._lock:
            return dict(self._files)

    def has(self, file: FileId, sha256: bytes) -> bool:
        return (file, sha256) in self._files

    def keep(self, file: FileId, sha256: bytes, data: bytes) -> bool:
        """Retain bytes of this SHA-256 durably; returns after fsync. Returns False, and logs, if there is no room."""
        (pool, sequence), now = file, time.monotonic()
        with self._lock:
            if (file, sha256) in self._files:
                return True
            self.problem = self._write(file, sha256, data)
            if not self.problem:
                self._files[file, sha256] = RetainedFile(len(data), time.time())
            elif now >= self._reminded + _REMIND_SECONDS:
                self._reminded = now
                log.error(
                    "file %d of pool %d IS NOT RETAINED: %s; a committee's seat votes `unavailable` where it would "
                    "accept", sequence, pool, self.problem,
                )  # fmt: skip
            return not self.problem

    def path(self, sha256: bytes) -> Path | None:
        """Return where a retained file lies; None if there is none. Whoever reads it checks its hash."""
        with self._lock:
            file = next((file for file, kept in self._files if kept == sha256), None)
        return self._path(file, sha256) if file is not None else None

    def read(self, sha256: bytes) -> bytes | None:
        path = self.path(sha256)
        try:
            return path.read_bytes() if path is not None else None
        except OSError as error:
            log.error("%s, which our seats may have to show, cannot be read: %s", path, error)
            return None

    def drop(self, file: FileId, sha256: bytes) -> None:
        with self._lock:
            if self._files.pop((file, sha256), None) is not None:
                self._path(file, sha256).unlink(missing_ok=True)

    def _write(self, file: FileId, sha256: bytes, data: bytes) -> str:
        """Write a file if it has room. Returns why it was not written."""
        sizes = Counter[int]()
        for ((pool, _), _), kept in self._files.items():
            sizes[pool] += kept.size
        held = [(self._tenant_of(pool), taken) for pool, taken in sizes.items()]
        if not has_room(self._limit, held, self._tenant_of(file[0]), len(data)):
            room = f"{self._limit >> 20} MiB (`keep_gib`)"
            return f"the part of {room} for pool {file[0]}'s owner, or for its fee, is full"
        try:
            write_atomic(self._path(file, sha256), data)
        except OSError as error:
            return f"{self._folder}: {error.strerror or error}"
        return ""

    def _path(self, file: FileId, sha256: bytes) -> Path:
        pool, sequence = file
        return self._folder / f"{pool}-{sequence}-{sha256.hex()}.parquet"


# --- Policy: which files must be retained, and which of them shown


def must_retain(state: State, file: FileId, sha256: bytes, now: int) -> bool:
    """Whether the bytes retained under an id may still have to be shown, as of chain time `now`: until the file's
    outcome can change no more, no matter whose vote it rests on."""
    submission = state.submissions.get(file)
    return submission is not None and submission.sha256 == sha256 and not submission.is_final(now)


def to_show(state: State, seats: Container[int]) -> Iterator[tuple[Submission, int]]:
    """Yield files that are before a jury and that one of our `seats` had by its opened vote, with that seat. They are
    announced even if the pool's storage serves them to us, since it may not to others."""
    for file_id, dispute in state.disputes.items():
        if not dispute.resolved:
            file = state.submissions[file_id]
            members = ((drawn, seat) for drawn in state.lane_of(file).rounds for seat in drawn.seats if seat in seats)
            had = [seat for drawn, seat in members if drawn.had(seat, file.place)]
            yield from ((file, seat) for seat in had[:1])


# --- Serving: how strangers get them


# A few dozen hostile addresses must not keep a juror from a file: our seats would be fined.
_CONNECTIONS, _CONNECTIONS_PER_CLIENT = 512, 8


class Serving:
    """`public_url`: the base under which strangers find retained files by object key. `shown`: SHA-256 of the files
    that they may have."""

    def __init__(self, public_url: str) -> None:
        self.public_url, self.shown = public_url.rstrip("/"), frozenset[bytes]()

    def url(self, sha256: bytes) -> str:
        return f"{self.public_url}/{object_key('rollouts', sha256)}"

    def show(self, sha256: bytes, data: bytes) -> None:
        """Make a file reachable at its `url`, if it is not. Raises MusterError."""

    def close(self) -> None:
        """Release what serving took."""


class FileServer(Serving):
    """Serves what is disputed of `store` from this process: whether it has a file whose votes are still hidden must
    stay unknown. Raises ConfigError if it cannot listen."""

    def __init__(self, config: ServeConfig, store: RetentionStore) -> None:
        super().__init__(config.public_url)
        self._store = store
        host, _, port = config.listen.rpartition(":")
        try:
            self._listener = bound(host.strip("[]"), int(port))
        except (ConfigError, OSError, ValueError, OverflowError) as error:
            what = error.what if isinstance(error, ConfigError) else f"cannot listen at {config.listen}: {error}"
            raise ConfigError(what, "correct `serve.listen`") from None
        self.port = int(self._listener.getsockname()[1])
        app = Starlette(routes=[Route("/{path:path}", self._answer)])
        self._server = HttpServer(server_options(app, _CONNECTIONS, _CONNECTIONS_PER_CLIENT))
        self._thread = essential("retained files", self._serve)
        self._thread.start()
        log.info("serving retained files at %s, which has to lead to %s", self.public_url, config.listen)

    def _serve(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._listener]))
        if not self._server.should_exit:
            raise RuntimeError("it stopped listening")

    async def _answer(self, request: Request) -> FileResponse:
        """Answer `GET …/rollouts/<sha256>.parquet`, whatever path a reverse proxy puts before it."""
        try:
            parsed = parse_key("/".join(request.path_params["path"].split("/")[-2:]))
        except MusterError:
            raise HTTPException(404) from None
        path = self._store.path(parsed.digest) if parsed.kind == "rollouts" and parsed.digest in self.shown else None
        # The store holds regular files only. A link in its place would lead a stranger elsewhere.
        if path is None or path.is_symlink() or not path.is_file():
            raise HTTPException(404)
        return FileResponse(path)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=5)


class BucketServing(Serving):
    """Puts disputed files into a bucket that anybody can read."""

    def __init__(self, config: RepublishConfig) -> None:
        super().__init__(config.public_url)
        from storage.s3 import Bucket

        self._bucket = Bucket(config)

    def show(self, sha256: bytes, data: bytes) -> None:
        self._bucket.put(object_key("rollouts", sha256), data)


def open_serving(config: ValidatorConfig, store: RetentionStore) -> Serving | None:
    """Return what the configuration names for showing retained files, if anything. Raises ConfigError."""
    if config.serve is not None:
        return FileServer(config.serve, store)
    if config.republish is not None:
        return BucketServing(config.republish)
    log.warning(
        "neither `serve` nor `republish` names where this process can show the files that it judged: when a pool's "
        "owner stops serving one, the seats that accepted it are FINED unless they can show it"
    )
    return None


_SWEEP_SECONDS = 30.0
_ANNOUNCEMENTS_AT_ONCE = 8


class RetentionService:
    """Announces disputed files of `store` by `serving` (None: they cannot be shown) and drops final ones, for the seats
    of `voters` (each with its contracts) in all pools. Writes what `muster validator status` shows of it into `home`.
    """

    def __init__(self, store: RetentionStore, serving: Serving | None, voters: Mapping[str, Suite], home: Path) -> None:
        self._store, self._serving, self._voters, self._home = store, serving, voters, home
        # Votes must not wait for a bucket that hangs, however many files are disputed.
        self._tasks = TransactionTasks(_ANNOUNCEMENTS_AT_ONCE)
        self._announced: set[FileId] = set()
        self._reported_missing: set[FileId] = set()
        self._unneeded: set[FileName] = set()
        self._sweep_at = 0.0
        self._written = b""

    def forget(self) -> None:
        """After a reorganisation, assume that announcements were undone."""
        self._announced.clear()
        self._tasks.forget()

    def close(self) -> None:
        self._tasks.stop()

    def advance(self, state: State, now: int) -> None:
        showing = tuple(to_show(state, seats_of(state, self._voters)))
        if self._serving is not None:
            self._serving.shown = frozenset(file.sha256 for file, _ in showing)
        for file, seat in showing:
            self._show(state, file, seat)
        if time.monotonic() >= self._sweep_at:
            self._sweep_at = time.monotonic() + _SWEEP_SECONDS
            self.sweep(state, now)

    def sweep(self, state: State, now: int) -> None:
        """Drop files that were not needed at two sweeps in a row: a reorganisation may hide one for a moment. Forget
        the announcements of files that are disputed no more."""
        unneeded = {name for name in self._store.files if not must_retain(state, *name, now)}
        for name in unneeded & self._unneeded:
            self._store.drop(*name)
        self._unneeded = unneeded
        disputed = {file for file, dispute in state.disputes.items() if not dispute.resolved}
        self._announced &= disputed
        self._reported_missing &= disputed
        self._report()

    def _show(self, state: State, file: Submission, seat: int) -> None:
        file_id = file.pool, file.sequence
        if not self._store.has(file_id, file.sha256) or self._serving is None:
            if file_id not in self._reported_missing:
                self._reported_missing.add(file_id)
                why = "its bytes are not retained" if self._serving else "neither `serve` nor `republish` says where"
                log.error(
                    "file %d of pool %d, on which our seats voted, is disputed and WE CANNOT SHOW IT: %s; if its owner "
                    "does not serve it either, no jury can confirm our vote", file.sequence, file.pool, why,
                )  # fmt: skip
            return
        url, known = self._serving.url(file.sha256), state.mirrors.get(file_id)
        if file_id in self._announced or (known is not None and known.seats.get(seat) == url):
            return
        what = f"file {file.sequence} of pool {file.pool}, which is disputed, is announced at {url}"
        task = partial(self._announce, self._serving, file, self._voters[state.seats[seat].voter])
        self._tasks.run(("announce", *file_id), state.head, what, task)

    def _announce(self, serving: Serving, file: Submission, suite: Suite) -> Receipt:
        data = self._store.read(file.sha256)
        if data is None:
            raise IntegrityError(f"the bytes of file {file.sequence} of pool {file.pool} are gone", "see the disk")
        serving.show(file.sha256, data)
        receipt = suite.court.announce_mirror(file.pool, file.sequence, serving.url(file.sha256)).send()
        self._announced.add((file.pool, file.sequence))
        return receipt

    def _report(self) -> None:
        files = self._store.files.values()
        report = {
            "files": len(files),
            "bytes": sum(file.size for file in files),
            "oldest": int(min((file.since for file in files), default=0)),
            "where": self._serving.public_url if self._serving else "",
            "problem": self._store.problem,
        }
        document = canonical_json(report)
        if document == self._written:
            return
        try:
            write_atomic(self._home / RETAINED, document)
            self._written = document
        except OSError as error:  # a full disk must not keep our seats from voting
            log.error("cannot write %s: %s", self._home / RETAINED, error)
