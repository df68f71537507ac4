"""Whose files have how much of a validator's store: nobody's may keep another's out. Pure.

Nothing that is kept can be thrown out for something better, so room has to be left beforehand. An owner's pools
together have half of what the others leave. Owners cost nothing, though: who is one may be many. So what our seats did
not choose, the pools of families, has half of the store together; and there a file is measured by what it pays. Its
size, in parts of what one least fee pays for, must be no greater a part than what stays free: small files and dear ones
still find room when large and cheap ones find none, and to be in their way costs what they pay themselves.
"""

import io
import ipaddress
import logging
import re
import socket
import socketserver
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from chain.indexer.records import Submission
from chain.indexer.state import State
from chain.suite import Suite
from chain.transactions import Receipt
from protocol.encoding import canonical_json
from protocol.errors import ConfigError, IntegrityError
from protocol.files import write_atomic
from storage.keys import object_key, parse_key
from validator import rounds
from validator.config import KEPT, RepublishConfig, ServeConfig, ValidatorConfig
from validator.tasks import TransactionTasks

BYTES_OF_A_FEE = 16 << 20
"""Bytes for which the chain's least fee would pay in an empty store."""
_FEES_OF_A_PENALTY = 100


@dataclass(frozen=True)
class Tenant:
    """Whose a pool's files are. `chosen`: seats judge it because they named its number. `fee`: what one seat gets for a
    file, `least_fee` what it gets at least on this chain, in grains."""

    owner: str
    chosen: bool
    fee: int = 1
    least_fee: int = 1


def tenant_of(state: State, pool: int, now: int) -> Tenant:
    """As of chain time `now`. A pool that a reorganisation has taken away is nobody's choice."""
    found = state.pools.get(pool)
    if found is None:
        return Tenant(f"pool {pool}", chosen=False)
    least = state.params_at(now)["withheldPenalty"] // _FEES_OF_A_PENALTY
    return Tenant(found.owner, found.validator_group == pool, found.terms.fee, max(1, least))


def has_room(limit: int, held: Collection[tuple[Tenant, int]], tenant: Tenant, size: int) -> bool:
    """Whether a file of `size` bytes may join those that are `held` (with their sizes) in a store of `limit` bytes."""
    if tenant.chosen:
        room, beside = limit, held
    else:
        room, beside = limit // 2, [(one, taken) for one, taken in held if not one.chosen]
    own = sum(taken for one, taken in beside if one.owner == tenant.owner)
    others = sum(taken for one, taken in beside if one.owner != tenant.owner)
    if own + size > (room - others) // 2:
        return False
    free = room - own - others - size
    return tenant.chosen or free * BYTES_OF_A_FEE * tenant.fee >= room * size * tenant.least_fee


# ~ The bytes of files that our seats may have to show: on disk before a vote on them is, until nothing can change it.
# ~
# ~ A seat that says it had a file has to be able to prove it: a jury that gets the file from nobody ends its
# ~ acceptance, and has those fined who accepted it.


log = logging.getLogger("muster.validator")
_NAME = re.compile(r"([0-9]{1,10})-([0-9]{1,10})-([0-9a-f]{64})\.parquet")
_REMIND_SECONDS = 60.0

FilePlace = tuple[int, int]
"""Pool and sequence."""

FileName = tuple[FilePlace, bytes]
"""A place and the SHA-256 of a file there: a reorganisation may put another one in its place, and the former back."""


@dataclass(frozen=True)
class KeptFile:
    """A file on disk: its SHA-256, its bytes' count, and since when (Unix seconds)."""

    sha256: bytes
    size: int
    since: float


def _alone(pool: int) -> Tenant:
    """Every pool is somebody else's, and chosen."""
    return Tenant(str(pool), chosen=True)


class KeptFiles:
    """Files in `folder`, at most `limit` bytes of them together, shared out as `validator.retention` says among those
    whose pools they are (`tenant_of`); each one's name says all that has to be known of it, so that a kill at any
    moment leaves whole files and nothing that contradicts them. Thread-safe.

    `problem`: why the newest file that came could not be kept; empty if it was.
    """

    def __init__(self, folder: Path, limit: int, tenant_of: Callable[[int], Tenant] = _alone) -> None:
        self._folder, self._limit, self._tenant_of = folder, limit, tenant_of
        self._lock = threading.Lock()
        self._files: dict[FileName, KeptFile] = {}
        self._said = -_REMIND_SECONDS
        self.problem = ""
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            self._find(path)

    def _find(self, path: Path) -> None:
        match = _NAME.fullmatch(path.name)
        if match is None:
            if path.name.endswith(".tmp"):
                path.unlink(missing_ok=True)  # a kill while it was written
            return
        info = path.stat()
        place, sha256 = (int(match[1]), int(match[2])), bytes.fromhex(match[3])
        self._files[place, sha256] = KeptFile(sha256, info.st_size, info.st_mtime)

    @property
    def files(self) -> Mapping[FileName, KeptFile]:
        """What is kept now."""
        with self._lock:
            return dict(self._files)

    def has(self, place: FilePlace, sha256: bytes) -> bool:
        with self._lock:
            return (place, sha256) in self._files

    def keep(self, place: FilePlace, sha256: bytes, data: bytes) -> bool:
        """Keep bytes of this SHA-256, durably; returns after fsync. False if there is no room for them, which is said
        in the log: whoever accepted the file all the same could not prove that it was there."""
        with self._lock:
            if (place, sha256) in self._files:
                return True
            trouble = self._write(place, sha256, data) if self._has_room(place[0], len(data)) else self._full(place[0])
            self.problem = trouble
            if trouble:
                self._say(place, trouble)
                return False
            self._files[place, sha256] = KeptFile(sha256, len(data), time.time())
            return True

    def open(self, sha256: bytes) -> BinaryIO | None:
        """A kept file, for whoever closes it; None if there is none. Whoever asks checks its hash."""
        with self._lock:
            place = next((place for place, kept in self._files if kept == sha256), None)
        if place is None:
            return None
        try:
            return self._path(place, sha256).open("rb")
        except OSError as error:
            log.error("file %d of pool %d, which our seats may have to show, cannot be read: %s", *place[::-1], error)
            return None

    def read(self, sha256: bytes) -> bytes | None:
        """The bytes of a kept file; None if there are none."""
        file = self.open(sha256)
        if file is None:
            return None
        with file:
            return file.read()

    def drop(self, place: FilePlace, sha256: bytes) -> None:
        """Nobody can ask for it any more."""
        with self._lock:
            if self._files.pop((place, sha256), None) is not None:
                self._path(place, sha256).unlink(missing_ok=True)

    def _has_room(self, pool: int, size: int) -> bool:
        sizes: Counter[int] = Counter()
        for ((other, _), _), file in self._files.items():
            sizes[other] += file.size
        held = [(self._tenant_of(other), taken) for other, taken in sizes.items()]
        return has_room(self._limit, held, self._tenant_of(pool), size)

    def _full(self, pool: int) -> str:
        return f"the part of {self._limit >> 20} MiB (`keep_gib`) for pool {pool}'s owner, or for its fee, is full"

    def _write(self, place: FilePlace, sha256: bytes, data: bytes) -> str:
        try:
            write_atomic(self._path(place, sha256), data)
        except OSError as error:
            return f"{self._folder}: {error.strerror or error}"
        return ""

    def _say(self, place: FilePlace, trouble: str) -> None:
        now = time.monotonic()
        if now >= self._said + _REMIND_SECONDS:
            self._said = now
            pool, sequence = place
            log.error(
                "file %d of pool %d IS NOT KEPT: %s; a committee's seat answers `unavailable` where it would accept",
                sequence, pool, trouble,
            )  # fmt: skip

    def _path(self, place: FilePlace, sha256: bytes) -> Path:
        pool, sequence = place
        return self._folder / f"{pool}-{sequence}-{sha256.hex()}.parquet"


# ~ Which files our seats have to be able to show, until when, and which of them to somebody now. Pure.


def needed(state: State, place: FilePlace, sha256: bytes, now: int) -> bool:
    """Whether bytes kept for the file at `place` may still have to be shown, as of chain time `now`: until its outcome
    can change no more, whoever's vote it rests on. A seat's voting key may be another process's for a while, or lie in
    the next one's configuration already; the bytes have to outlast that."""
    file = state.submissions.get(place)
    return file is not None and file.sha256 == sha256 and not file.is_final(now)


def to_show(state: State, seats: Container[int]) -> Iterator[tuple[Submission, int]]:
    """Files that are before a jury and that one of our `seats` showed by its vote to have had, with that seat.

    Whoever keeps them announces them, whether or not the pool's own storage has them: it may have them for the seats'
    addresses alone. Not before the votes are open, for it would say what a hidden one is not; and nobody is fined
    between accept and unavailable."""
    for place, dispute in state.disputes.items():
        if not dispute.resolved:
            file = state.submissions[place]
            members = ((one, seat) for one in state.lane_of(file).rounds for seat in one.seats if seat in seats)
            had = [seat for one, seat in members if one.had(seat, file.place)]
            yield from ((file, seat) for seat in had[:1])


# ~ Who may have one of a file server's places now: an address and a network have their fair part of them, and whoever
# ~ uses a place slowest has to leave when others want one.
# ~
# ~ Neither places nor time are worth anything to those who only hold them: four addresses that read one byte a second
# ~ had all of 32 places once, each for minutes.


_MOST, _MOST_OF_ONE, _MINUTE, _MOST_A_MINUTE = 32, 8, 60.0, 60
_PATIENCE, _ORDINARY_PACE = 2.0, 1 << 17
"""Seconds that a place's holder has to get going, and bytes a second from which on nobody takes its place for its own
network's newcomers."""


@dataclass(eq=False)
class Place:
    """One connection: of an `address` in a `network`, since when (the clock's seconds), and the bytes `sent` to it;
    `end` breaks it off from any thread."""

    address: str
    network: str
    since: float
    end: Callable[[], None]
    sent: int = 0

    def pace(self, now: float) -> float:
        """Bytes a second; who has just come has a moment to show what it can take."""
        return self.sent / max(now - self.since, _PATIENCE)


def party(address: str) -> tuple[str, str]:
    """Whom an address stands for, and in which network: whoever has one IPv6 address has all 2⁶⁴ of its network, and
    often 2¹⁶ such networks; 256 IPv4 addresses often belong to one. Empty: this machine."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is None:
            return ("", "") if ip.is_loopback else (f"{int(ip) >> 64:x}/64", f"{int(ip) >> 80:x}/48")
        ip = ip.ipv4_mapped
    return ("", "") if ip.is_loopback else (str(ip), f"{int(ip) >> 8:x}/24")


class Admission:
    """An address of this machine is a proxy's, behind which are all others: only the limit in all holds for it, and
    that its slow ones go first. `clock` gives seconds. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._places: list[Place] = []
        self._asked: Counter[str] = Counter()
        self._since = clock()

    def enter(self, address: str, end: Callable[[], None]) -> Place | None:
        """A place for a connection from `address`, which `end` breaks off; None if it gets none. `leave` gives it
        back."""
        address, network = party(address)
        with self._lock:
            now = self._clock()
            if now - self._since >= _MINUTE:
                self._asked.clear()
                self._since = now
            self._asked[address] += 1
            if address and (self._asked[address] > _MOST_A_MINUTE or self._held(address) >= _MOST_OF_ONE):
                return None
            if len(self._places) >= _MOST:
                slowest = self._slowest(network, now)
                if slowest is None:
                    return None
                self._places.remove(slowest)
                slowest.end()
            place = Place(address, network, now, end)
            self._places.append(place)
            return place

    def leave(self, place: Place) -> None:
        with self._lock:
            if place in self._places:
                self._places.remove(place)

    def _held(self, address: str) -> int:
        return sum(place.address == address for place in self._places)

    def _slowest(self, network: str, now: float) -> Place | None:
        """Whose place a newcomer from `network` gets: a network's that has more places than its own, the most of all;
        failing that, a slow one of its own network's, at whose cost nobody else is."""
        held = Counter(place.network for place in self._places)
        most = max(held.values())
        if most > held[network]:
            return _slowest_of((place for place in self._places if held[place.network] == most), now)
        slow = (place for place in self._places if place.network == network and now - place.since >= _PATIENCE)
        return _slowest_of((place for place in slow if place.pace(now) < _ORDINARY_PACE), now)


def _slowest_of(places: Iterable[Place], now: float) -> Place | None:
    return min(places, key=lambda place: (place.pace(now), place.since), default=None)


# ~ A small HTTP server of kept files for strangers: `GET …/rollouts/<sha256>.parquet`, one answer a connection.
# ~
# ~ It knows one kind of request and looks up what that names by its hash, never by a path. What it spends on strangers
# ~ is bounded: connections at once (`validator.retention` says whose); seconds until a request is read, until each
# ~ piece of its answer is taken, and until all of it is.


_REQUEST = re.compile(rb"GET /(?:[!-~]{0,400}/)?(rollouts/[0-9a-f]{64}\.parquet) HTTP/1\.[01]\r\n")
_MOST_REQUEST_BYTES = 8192
_REQUEST_SECONDS, _ANSWER_SECONDS, _LEAST_PACE = 5.0, 10.0, 1 << 16
_PIECE, _PIECE_SECONDS = 1 << 16, 10.0
"""No piece may take longer. Not less: the system's buffer wants a third of it taken before it takes another piece."""
_STATUS = {200: "OK", 400: "Bad Request", 404: "Not Found"}
Open = Callable[[bytes], BinaryIO | None]


class FileServer:
    """Listens at `listen` (HOST:PORT) until `stop`; `find` opens the file of a SHA-256, or gives None. Raises
    ConfigError when it cannot listen there."""

    def __init__(self, listen: str, find: Open) -> None:
        host, _, port = listen.rpartition(":")
        try:
            self._server = _Server((host.strip("[]"), int(port)), find)
        except (OSError, ValueError, OverflowError) as error:
            what = getattr(error, "strerror", None) or str(error)
            raise ConfigError(f"cannot listen at {listen}: {what}", "correct `serve.listen`") from None
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, name="kept files", daemon=True).start()

    @property
    def busy(self) -> int:
        """Connections at the moment."""
        return len(self._server.places)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address, daemon_threads, block_on_close, request_queue_size = True, True, False, 64

    def __init__(self, address: tuple[str, int], find: Open) -> None:
        self.find, self._admission = find, Admission()
        self.places: dict[socket.socket, Place] = {}
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Exchange)

    def process_request(self, request: socket.socket, client_address: tuple[str, int]) -> None:  # type: ignore[override]
        place = self._admission.enter(client_address[0], partial(_break_off, request))
        if place is None:
            return self.shutdown_request(request)
        self.places[request] = place
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread to be had: its room is free again
            self._leave(request)
            raise

    def process_request_thread(self, request: socket.socket, client_address: tuple[str, int]) -> None:  # type: ignore[override]
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def _leave(self, request: socket.socket) -> None:
        self._admission.leave(self.places.pop(request))

    def handle_error(self, request: object, client_address: object) -> None:
        log.debug("a request for a kept file failed", exc_info=True)


def _break_off(connection: socket.socket) -> None:
    """Whoever is sending to it hears of that at once."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Exchange(socketserver.BaseRequestHandler):
    """One request, one answer."""

    def handle(self) -> None:
        connection: socket.socket = self.request
        match = _REQUEST.match(self._head(connection))
        if match is None:
            return self._answer(connection, 400, io.BytesIO())
        assert isinstance(self.server, _Server)
        file = self.server.find(parse_key(match[1].decode()).digest)
        if file is None:
            return self._answer(connection, 404, io.BytesIO())
        with file:
            return self._answer(connection, 200, file)

    @staticmethod
    def _head(connection: socket.socket) -> bytes:
        """The request up to the end of its headers, or what came of it in time."""
        end, got = time.monotonic() + _REQUEST_SECONDS, b""
        while b"\r\n\r\n" not in got and len(got) < _MOST_REQUEST_BYTES:
            connection.settimeout(max(0.001, end - time.monotonic()))
            chunk = connection.recv(4096)
            if not chunk:
                break
            got += chunk
        return got

    def _answer(self, connection: socket.socket, status: int, file: BinaryIO) -> None:
        """Piece by piece: those who read slowly, all at once, must not fill the memory with large files."""
        assert isinstance(self.server, _Server)
        place, size = self.server.places[connection], file.seek(0, io.SEEK_END)
        file.seek(0)
        end = time.monotonic() + _ANSWER_SECONDS + size / _LEAST_PACE
        head = f"HTTP/1.1 {status} {_STATUS[status]}\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
        piece = head.encode()
        while piece:
            connection.settimeout(min(_PIECE_SECONDS, max(0.001, end - time.monotonic())))
            connection.sendall(piece)
            place.sent += len(piece)
            piece = file.read(_PIECE)


# ~ Where kept files are shown to whoever asks: by this process itself, or in a bucket of the validator's own.


class FileShelf(ABC):
    """`public_url`: the base under which strangers find what is on it, by object keys. `shown`: SHA-256 of the files
    that they may have now."""

    def __init__(self, public_url: str) -> None:
        self.public_url, self.shown = public_url.rstrip("/"), frozenset[bytes]()

    def url(self, sha256: bytes) -> str:
        return f"{self.public_url}/{object_key('rollouts', sha256)}"

    @abstractmethod
    def show(self, sha256: bytes, data: bytes) -> None:
        """Make a file reachable at its `url`. Raises MusterError."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what showing took."""


class ServedShelf(FileShelf):
    """What is disputed of all that is kept, served by this process: whether it has a file on which the votes are still
    hidden is nobody's business, and nor is its line. Raises ConfigError when it cannot listen."""

    def __init__(self, config: ServeConfig, files: KeptFiles) -> None:
        super().__init__(config.public_url)
        self._files = files
        self._server = FileServer(config.listen, self._open)
        log.info("showing kept files at %s, which has to lead to %s", self.public_url, config.listen)

    def show(self, sha256: bytes, data: bytes) -> None:
        """It is there already."""

    def _open(self, sha256: bytes) -> BinaryIO | None:
        return self._files.open(sha256) if sha256 in self.shown else None

    def close(self) -> None:
        self._server.stop()


class BucketShelf(FileShelf):
    """What was asked for, in a bucket that anybody can read."""

    def __init__(self, config: RepublishConfig) -> None:
        super().__init__(config.public_url)
        from storage.s3 import Bucket

        self._bucket = Bucket(config)

    def show(self, sha256: bytes, data: bytes) -> None:
        self._bucket.put(object_key("rollouts", sha256), data)

    def close(self) -> None:
        """The bucket goes on without us."""


def open_shelf(config: ValidatorConfig, files: KeptFiles) -> FileShelf | None:
    """The one that the configuration names, if any. Raises ConfigError."""
    if config.serve is not None:
        return ServedShelf(config.serve, files)
    if config.republish is not None:
        return BucketShelf(config.republish)
    log.warning(
        "nothing names where this process can show the files that it judged (`serve` or `republish`): when a pool's "
        "owner stops serving one, the seats that accepted it are FINED unless they can show it"
    )
    return None


# ~ Says where a disputed file is that our seats had, and lets go of files whose outcome stands.


_SWEEP_SECONDS = 30.0
_AT_ONCE = 8
"""Announcements under way."""


@dataclass(frozen=True)
class Holdings:
    """`files` that our seats may have to show, and the `shelf` on which they do; None: they cannot."""

    files: KeptFiles
    shelf: FileShelf | None

    def close(self) -> None:
        if self.shelf is not None:
            self.shelf.close()


class Custodian:
    """For the seats of `voters` (each with its contracts), in all pools. `home`: where it writes what
    `muster validator status` says of it."""

    def __init__(self, holdings: Holdings, voters: Mapping[str, Suite], home: Path) -> None:
        self._files, self._shelf = holdings.files, holdings.shelf
        self._voters, self._home = voters, home
        # Votes must not wait for a bucket that hangs, however many files are disputed.
        self._tasks = TransactionTasks(_AT_ONCE)
        self._announced: set[FilePlace] = set()
        self._mourned: set[FilePlace] = set()
        self._unwanted: set[FileName] = set()
        self._sweep_at = 0.0
        self._written = b""

    def forget(self) -> None:
        """After a reorganisation: what was announced may not be any more."""
        self._announced.clear()
        self._tasks.forget()

    def close(self) -> None:
        """Announce nothing more."""
        self._tasks.stop()

    def advance(self, state: State, now: int) -> None:
        """Start what is due."""
        seats = rounds.seats_of(state, self._voters)
        showing = tuple(to_show(state, seats))
        if self._shelf is not None:
            self._shelf.shown = frozenset(file.sha256 for file, _ in showing)
        for file, seat in showing:
            self._show(state, file, seat)
        if time.monotonic() >= self._sweep_at:
            self._sweep_at = time.monotonic() + _SWEEP_SECONDS
            self.sweep(state, now)

    def sweep(self, state: State, now: int) -> None:
        """Drop what is needed no more; what a reorganisation may have hidden for a moment, at the second look."""
        files = self._files.files
        unwanted = {(place, sha256) for place, sha256 in files if not needed(state, place, sha256, now)}
        for place, sha256 in unwanted & self._unwanted:
            self._files.drop(place, sha256)
        self._unwanted = unwanted
        self._report()

    def _show(self, state: State, file: Submission, seat: int) -> None:
        place = file.pool, file.sequence
        if not self._files.has(place, file.sha256) or self._shelf is None:
            return self._mourn(place)
        url, known = self._shelf.url(file.sha256), state.mirrors.get(place)
        if place in self._announced or (known is not None and known.seats.get(seat) == url):
            return None
        what = f"file {file.sequence} of pool {file.pool}, which is disputed, is announced at {url}"
        task = partial(self._announce, self._shelf, file, seat, self._voters[state.seats[seat].voter])
        self._tasks.run(("announce", *place), state.head, what, task)
        return None

    def _announce(self, shelf: FileShelf, file: Submission, seat: int, suite: Suite) -> Receipt:
        data = self._files.read(file.sha256)
        if data is None:
            raise IntegrityError(f"the bytes of file {file.sequence} of pool {file.pool} are gone", "see the disk")
        shelf.show(file.sha256, data)
        receipt = suite.pools.announce_mirror(file.pool, file.sequence, shelf.url(file.sha256)).send()
        self._announced.add((file.pool, file.sequence))
        return receipt

    def _mourn(self, place: FilePlace) -> None:
        if place not in self._mourned:
            self._mourned.add(place)
            why = "its bytes are not kept" if self._shelf else "neither `serve` nor `republish` says where"
            log.error(
                "file %d of pool %d, on which our seats voted, is disputed and WE CANNOT SHOW IT: %s; if its owner "
                "does not serve it either, who accepted it is fined", place[1], place[0], why,
            )  # fmt: skip

    def _report(self) -> None:
        files, shelf = self._files.files.values(), self._shelf
        report = {
            "files": len(files),
            "bytes": sum(file.size for file in files),
            "oldest": int(min((file.since for file in files), default=0)),
            "where": shelf.public_url if shelf else "",
            "problem": self._files.problem,
        }
        document = canonical_json(report)
        if document != self._written:
            try:
                write_atomic(self._home / KEPT, document)
                self._written = document
            except OSError as error:  # a full disk must not keep our seats from voting
                log.error("cannot say in %s what is kept: %s", self._home / KEPT, error)
