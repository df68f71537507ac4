"""What workers and coordinator leave for one another in a bucket, and when they look for it.

Contributions, payloads and outer states lie under their hashes; messages and log entries lie at numbered places that a
bucket lets nobody overwrite. Whatever comes from there is a stranger's.
"""

import logging
import shutil
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Protocol, TypeVar

from diloco.codec import MalformedContribution
from diloco.config import DilocoRun
from diloco.messages import (
    MAX_ENTRY_BYTES,
    MAX_MESSAGE_BYTES,
    Contribution,
    Expected,
    LogEntry,
    MalformedEntry,
    MessageKind,
    ShardEntry,
    WorkerMessage,
    open_contribution,
    open_entry,
    open_message,
    seal_message,
)
from diloco.outer import MAX_LIST_BYTES, OuterState, list_state, open_list, read_state, state_shard_bytes, state_shards
from diloco.state_machine import Schedule
from diloco.tensors import TensorLayout
from protocol.accounts import LocalAccount
from protocol.encoding import sha256_hex
from protocol.errors import IntegrityError, MusterError, UnreachableError
from storage.keys import MissingObjectError, object_key

log = logging.getLogger("muster.diloco")
T = TypeVar("T")
MAX_TAKEN = 4096
"""Places of the log, or of a worker's messages, that strangers may take before its author gives up."""


class SharedBucket(Protocol):
    """`storage.bucket.Bucket`. Every method ends within a bounded time, with an UnreachableError at the latest."""

    def put(self, key: str, data: bytes) -> bool: ...

    def get(self, key: str, limit: int) -> bytes: ...

    def size(self, key: str) -> int | None: ...

    def put_first(self, place: str, data: bytes) -> bool: ...

    def look(self, place: str, limit: int) -> bytes | None: ...


class Transport:
    """The bucket of one run. Methods may be called from any thread if the bucket's may."""

    def __init__(self, bucket: SharedBucket, run: DilocoRun) -> None:
        self._bucket, self.run = bucket, run

    def publish(self, data: bytes) -> None:
        """Put a signed contribution or a shard under its hash."""
        self._bucket.put(_key("contributions", sha256_hex(data)), data)

    def contribution(self, document: str, worker: str, expected: Expected) -> Contribution:
        """Fetch the contribution of `worker` whose bytes have the SHA-256 `document`.

        Raises MalformedContribution, IntegrityError, MissingObjectError, UnreachableError."""
        data = self._bucket.get(_key("contributions", document), expected.document_bytes)
        found = open_contribution(data, expected)
        if found.worker != worker:
            raise MalformedContribution(f"{document[:16]}… is a contribution of {found.worker}, not of {worker}")
        return found

    def shard(self, entry: ShardEntry) -> bytes:
        """Fetch a file of a payload. Raises IntegrityError, MissingObjectError, UnreachableError."""
        return self._bucket.get(_key("contributions", entry.sha256), entry.size)

    def publish_state(self, state: OuterState) -> str:
        """Put a state's files and then their list; return the list's SHA-256."""
        for shard in state_shards(state, self.run.settings.shards):
            self._bucket.put(_key("outer", sha256_hex(shard)), shard)
        data = list_state(state, self.run.settings.shards).encode()
        self._bucket.put(_key("outer", sha256_hex(data)), data)
        return sha256_hex(data)

    def state_name(self, state: OuterState) -> str:
        """Return what `publish_state` returns."""
        return sha256_hex(list_state(state, self.run.settings.shards).encode())

    def has_state(self, name: str) -> bool:
        """Return whether a state was published whole, by the SHA-256 of its list."""
        return self._bucket.size(_key("outer", name)) is not None

    def state(self, name: str, step: int, digest: str, layout: TensorLayout) -> OuterState:
        """Fetch outer state `step` of `digest`, whose list has the SHA-256 `name`. Raises MalformedState, and as
        `shard`."""
        count = self.run.settings.shards
        files = open_list(self._bucket.get(_key("outer", name), MAX_LIST_BYTES), count)
        sizes = [state_shard_bytes(pieces) for pieces in layout.shards(count)]
        shards = (self._bucket.get(_key("outer", one), size) for one, size in zip(files.shards, sizes, strict=True))
        return read_state(step, digest, shards, layout, count)

    def post(self, worker: str, number: int, message: bytes) -> bool:
        """Leave a worker's message; False if its number is taken."""
        return self._bucket.put_first(self._message_place(worker, number), message)

    def has_message(self, worker: str, number: int) -> bool:
        """Return whether the place is taken, by whatever."""
        try:
            return self._bucket.look(self._message_place(worker, number), MAX_MESSAGE_BYTES) is not None
        except IntegrityError:  # by something longer than messages are
            return True

    def message(self, worker: str, number: int) -> WorkerMessage | None:
        """Return a worker's message, None if it is not there yet. Raises MalformedMessage, IntegrityError,
        UnreachableError."""
        data = self._bucket.look(self._message_place(worker, number), MAX_MESSAGE_BYTES)
        return None if data is None else open_message(data, self.run, worker, number)

    def append(self, number: int, entry: bytes) -> bool:
        """Write an entry of the log; False if its number is taken."""
        return self._bucket.put_first(self._entry_place(number), entry)

    def entry(self, number: int, previous: str | None = None) -> tuple[LogEntry, str] | None:
        """Return an entry of the log and the SHA-256 of its bytes, None if it is not there yet.

        Raises MalformedEntry where the place is taken by something else, IntegrityError where it follows another entry
        than `previous`; UnreachableError."""
        try:
            data = self._bucket.look(self._entry_place(number), MAX_ENTRY_BYTES)
        except IntegrityError as error:
            raise MalformedEntry(error.what) from None
        return None if data is None else (open_entry(data, self.run, number, previous), sha256_hex(data))

    def has_entry(self, number: int) -> bool:
        """Return whether an entry of the coordinator's is there."""
        try:
            return self.entry(number) is not None
        except MalformedEntry:
            return False

    def next_entry(self, number: int, previous: str) -> tuple[LogEntry, str] | None:
        """Return the first entry from place `number` on, past places that strangers took. Raises IntegrityError where
        it follows another entry than the one of SHA-256 `previous`; UnreachableError."""
        for place in range(number, number + MAX_TAKEN):
            try:
                return self.entry(place, previous)
            except MalformedEntry as error:
                log.debug("place %d of the log is skipped: %s", place, error)
        raise IntegrityError(f"{MAX_TAKEN} places of the log are taken by strangers", "see who writes to the bucket")

    def _message_place(self, worker: str, number: int) -> str:
        return f"diloco/{self.run.digest}/messages/{worker.lower()}/{number:010d}"

    def _entry_place(self, number: int) -> str:
        return f"diloco/{self.run.digest}/log/{number:010d}"


def _key(kind: str, sha256: str) -> str:
    return object_key("outer" if kind == "outer" else "contributions", bytes.fromhex(sha256))


class PollBackoff:
    """Limits how often something is looked for that may not be there yet.

    As a context around a look: the next look is `due` after `factor` times as long as this one took, two seconds at
    most. So looking takes a small part of bucket and processor, however far the one and however busy the other."""

    def __init__(self, factor: float = 8.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._factor, self._clock = factor, clock
        self._began = self._next = 0.0

    def due(self) -> bool:
        return self._clock() >= self._next

    def __enter__(self) -> None:
        self._began = self._clock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        now = self._clock()
        self._next = now + min(2.0, self._factor * (now - self._began))


def pause(poll_seconds: float, took: float) -> float:
    """Return the seconds until the next turn after one in which nothing could be done, which took `took` seconds:
    longer where bucket or processor are busy, so that polling does not keep them busy."""
    return max(poll_seconds, min(1.5 * took, 1.0))


class ShardCache:
    """Files of one attempt's payloads, fetched to disk in the background as soon as each is published.

    `folder` is emptied by `clear`; nothing in it outlives the attempt. One thread uses it, others fetch."""

    _AT_ONCE = 4

    def __init__(self, transport: Transport, folder: Path) -> None:
        self._transport, self._folder = transport, folder
        self._pool = ThreadPoolExecutor(self._AT_ONCE, "shard-fetcher")
        self._jobs: dict[str, tuple[Future[None], PollBackoff]] = {}
        self.clear()

    def clear(self) -> None:
        """Forget everything; what is under way ends in a folder that nobody reads."""
        for job, _ in self._jobs.values():
            job.cancel()
        self._jobs = {}
        shutil.rmtree(self._folder, ignore_errors=True)
        self._current = self._folder / f"{time.monotonic_ns():020d}"
        self._current.mkdir(parents=True)

    def fetch(self, document: str, entries: Sequence[ShardEntry]) -> bool:
        """Return whether all files of a contribution (SHA-256 `document`) are here; fetch what is missing, in the order
        in which it is sent. Raises IntegrityError where other bytes lie under a hash."""
        missing = [one for one in in_send_order(document, entries) if not self._path(one).exists()]
        if not missing:
            return True
        job, backoff = self._jobs.get(document, (None, PollBackoff()))
        if job is not None:
            if not job.done():
                return False
            job.result()
        if backoff.due():
            self._jobs[document] = self._pool.submit(self._fetch, missing, self._current, backoff), backoff
        elif job is not None:
            self._jobs[document] = job, backoff
        return False

    def read(self, entry: ShardEntry) -> bytes:
        """Return a file's bytes, from the bucket if they are not here. Raises as `Transport.shard`."""
        try:
            return self._path(entry).read_bytes()
        except OSError:
            return self._transport.shard(entry)

    def _path(self, entry: ShardEntry) -> Path:
        return self._current / entry.sha256

    def _fetch(self, entries: Sequence[ShardEntry], folder: Path, backoff: PollBackoff) -> None:
        for entry in entries:
            try:
                with backoff:
                    data = self._transport.shard(entry)
                part = folder / f"{entry.sha256}.part"
                part.write_bytes(data)
                part.rename(folder / entry.sha256)
            except (MissingObjectError, UnreachableError, OSError) as error:
                log.debug("not there yet: %s", error)
                return


def in_send_order(document: str, files: Sequence[T]) -> list[T]:
    """Return the files of a contribution (SHA-256 `document`) in the order in which its worker sends them: each begins
    with another one, so that readers spread over the files."""
    first = int(document, 16) % len(files)
    return [*files[first:], *files[:first]]


class Sender:
    """Posts a worker's messages, each once and under a number of its own, and uploads payloads in the background."""

    _AT_ONCE = 2

    def __init__(self, transport: Transport, account: LocalAccount) -> None:
        self._transport, self._account, self._next = transport, account, 0
        self._posted: set[tuple[MessageKind, int, int, str | None]] = set()
        self._uploader = ThreadPoolExecutor(1, "payload-sender")
        self._upload: tuple[tuple[str, int], Future[None]] | None = None

    def find_place(self, number: int) -> None:
        """Continue behind the messages that are there, the first of which may have `number`. Raises MusterError if
        nobody reads them."""
        worker = str(self._account.address)
        for free in range(number, number + MAX_TAKEN):
            if not self._transport.has_message(worker, free):
                self._next = free
                return
        raise MusterError(f"more than {MAX_TAKEN} messages of {worker} were not read", "look at the run's coordinator")

    def post(self, kind: MessageKind, now: Schedule, digest: str | None = None, items: Iterable[str] = ()) -> None:
        """Post a message about the attempt under way, unless this process has, at the first place that nobody has
        taken. Raises MusterError where there is none; UnreachableError."""
        what = kind, now.step, now.attempt, digest
        if what in self._posted:
            return
        worker, run = str(self._account.address), self._transport.run
        for _ in range(MAX_TAKEN):
            message = WorkerMessage(
                run=run.digest, worker=worker, number=self._next, kind=kind, step=now.step, attempt=now.attempt,
                digest=digest, items=list(items),
            )  # fmt: skip
            posted = self._transport.post(worker, message.number, seal_message(message, run, self._account))
            self._next += 1
            if posted:
                self._posted = {one for one in self._posted if one[1] == now.step} | {what}
                return
        raise MusterError(f"{MAX_TAKEN} places for messages of {worker} are taken", "see who else writes to the bucket")

    def upload(self, document: str, attempt: int, payload: Sequence[bytes]) -> None:
        """Publish a payload in the background, again if that failed, and again in another attempt, which may be due to
        its loss."""
        what = document, attempt
        if self._upload is not None and self._upload[0] == what:
            done = self._upload[1]
            if not done.done() or done.exception() is None:
                return
            log.warning("the payload is sent again: %s", done.exception())
        self._upload = what, self._uploader.submit(self._publish, document, payload)

    def _publish(self, document: str, payload: Sequence[bytes]) -> None:
        with ThreadPoolExecutor(self._AT_ONCE, "payload-sender") as senders:
            list(senders.map(self._transport.publish, in_send_order(document, payload)))


class MessageReader:
    """Reads workers' messages for the coordinator. Of the workers that the step waits for it reads one whenever it is
    asked, and the next once that one has sent something. All others, who may join or leave, are read rarely."""

    _AT_ONCE = 16

    def __init__(self, transport: Transport) -> None:
        self._transport, self._others = transport, PollBackoff(factor=50.0)

    def new(self, numbers: dict[str, int], awaited: frozenset[str], every: bool = False) -> Iterator[WorkerMessage]:
        """Yield the messages since `numbers` (the next one of each worker), which is advanced. `every`: of all workers,
        whenever they were read last. Raises UnreachableError."""
        others = list(self._transport.run.workers)
        for worker in [one for one in others if one in awaited and not every]:
            others.remove(worker)
            if not (yield from self._of(worker, numbers)):
                break  # the step goes on once all have sent something: the next one is looked for later
        if every or self._others.due():
            with self._others:
                for worker in others:
                    yield from self._of(worker, numbers)

    def _of(self, worker: str, numbers: dict[str, int]) -> Generator[WorkerMessage, None, bool]:
        """Yield a worker's messages; return whether there was any."""
        first = numbers.get(worker, 0)
        for _ in range(self._AT_ONCE):
            number = numbers.get(worker, 0)
            try:
                message = self._transport.message(worker, number)
            except UnreachableError:
                raise
            except MusterError as error:
                log.warning("message %d of %s: %s", number, worker, error)
                numbers[worker] = number + 1
                continue
            if message is None:
                break
            yield message
            numbers[worker] = number + 1
        return numbers.get(worker, 0) > first
