"""What workers and coordinator leave for one another in a bucket, and when they look for it.

Contributions, payloads and outer states lie under their hashes; messages and log entries at numbered places that a
bucket lets nobody overwrite. Whatever comes from there is a stranger's."""

import logging
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from diloco import messages
from diloco.codec import MalformedContribution, TensorLayout
from diloco.config import DilocoRun
from diloco.outer import MAX_LIST_BYTES, OuterState, list_state, open_list, read_state, shard_parts, state_shard_bytes
from diloco.state_machine import Schedule
from protocol.accounts import LocalAccount
from protocol.encoding import sha256_hex
from protocol.errors import IntegrityError, MusterError, UnreachableError
from protocol.waits import WAITS
from storage.keys import MissingObjectError
from storage.s3 import Bucket

log = logging.getLogger("muster.diloco")
MAX_TAKEN = 4096  # places of the log, or of a worker's messages, that strangers may take before its author gives up
_MESSAGES_AT_ONCE = 16  # read of one worker in a turn


class Transport:
    """The bucket of one run. Thread-safe."""

    def __init__(self, bucket: Bucket, run: DilocoRun) -> None:
        self._bucket, self.run = bucket, run

    def publish(self, data: bytes) -> None:
        """Put a signed contribution or a shard under its hash."""
        self._bucket.put(f"contributions/{sha256_hex(data)}", data)

    def contribution(self, document: str, worker: str, expected: messages.Expected) -> messages.Contribution:
        """Fetch the contribution of `worker` whose bytes have the SHA-256 `document`. Raises MalformedContribution,
        IntegrityError, MissingObjectError, UnreachableError."""
        data = self._bucket.get(f"contributions/{document}", expected.document_bytes)
        contribution = messages.open_contribution(data, expected)
        if contribution.worker != worker:
            raise MalformedContribution(f"{document[:16]}… is a contribution of {contribution.worker}, not of {worker}")
        return contribution

    def shard(self, entry: messages.ShardEntry) -> bytes:
        """Fetch a file of a payload. Raises IntegrityError, MissingObjectError, UnreachableError."""
        return self._bucket.get(f"contributions/{entry.sha256}", entry.size)

    def publish_state(self, state: OuterState) -> str:
        """Put a state's files and then their list; return the list's SHA-256."""
        count = self.run.settings.shards
        for data in (*map(b"".join, shard_parts(state, count)), list_state(state, count)):
            self._bucket.put(f"outer/{sha256_hex(data)}", data)
        return sha256_hex(data)

    def state_name(self, state: OuterState) -> str:
        """Return what `publish_state` returns."""
        return sha256_hex(list_state(state, self.run.settings.shards))

    def has_state(self, name: str) -> bool:
        """Return whether a state was published whole, by the SHA-256 of its list."""
        return self._bucket.size(f"outer/{name}") is not None

    def state(self, name: str, step: int, digest: str, layout: TensorLayout) -> OuterState:
        """Fetch outer state `step` of `digest`, whose list has the SHA-256 `name`. Raises MalformedState, and as
        `shard`."""
        count = self.run.settings.shards
        files = open_list(self._bucket.get(f"outer/{name}", MAX_LIST_BYTES), count)
        sizes = [state_shard_bytes(pieces) for pieces in layout.shards(count)]
        shards = (self._bucket.get(f"outer/{file}", size) for file, size in zip(files.shards, sizes, strict=True))
        return read_state(step, digest, shards, layout, count)

    def post(self, worker: str, number: int, message: bytes) -> bool:
        """Leave a worker's message; False if its number is taken."""
        return self._bucket.put_first(self._message_place(worker, number), message)

    def new_messages(self, worker: str, numbers: dict[str, int]) -> Iterator[messages.WorkerMessage]:
        """Yield the messages of a worker since `numbers` (the next one of each worker), which is advanced; at most 16.
        What is none is skipped. Raises UnreachableError."""
        first = numbers.get(worker, 0)
        for number in range(first, first + _MESSAGES_AT_ONCE):
            try:
                data = self._bucket.read_document(self._message_place(worker, number), messages.MAX_MESSAGE_BYTES)
                message = None if data is None else messages.open_message(data, self.run, worker, number)
            except UnreachableError:
                raise
            except MusterError as error:
                log.warning("message %d of %s: %s", number, worker, error)
            else:
                if message is None:
                    return
                yield message
            numbers[worker] = number + 1

    def append(self, number: int, entry: bytes) -> bool:
        """Write an entry of the log; False if its number is taken."""
        return self._bucket.put_first(self._entry_place(number), entry)

    def entry(self, number: int, previous: str | None = None) -> tuple[messages.LogEntry, str] | None:
        """Return an entry of the log and the SHA-256 of its bytes, None if it is not there yet. Raises MalformedEntry
        where the place is taken by something else, IntegrityError where it does not follow `previous`;
        UnreachableError."""
        try:
            data = self._bucket.read_document(self._entry_place(number), messages.MAX_ENTRY_BYTES)
        except IntegrityError as error:
            raise messages.MalformedEntry(error.what) from None
        return None if data is None else (messages.open_entry(data, self.run, number, previous), sha256_hex(data))

    def has_entry(self, number: int) -> bool:
        """Return whether an entry of the coordinator's is there."""
        try:
            return self.entry(number) is not None
        except messages.MalformedEntry:
            return False

    def next_entry(self, number: int, previous: str) -> tuple[messages.LogEntry, str] | None:
        """Return the first entry from place `number` on, past places that strangers took. Raises IntegrityError where
        it follows another entry than the one of SHA-256 `previous`; UnreachableError."""
        for entry_number in range(number, number + MAX_TAKEN):
            try:
                return self.entry(entry_number, previous)
            except messages.MalformedEntry as error:
                log.debug("place %d of the log is skipped: %s", entry_number, error)
        raise IntegrityError(f"strangers took {MAX_TAKEN} places of the log", "see who writes to the bucket")

    def _message_place(self, worker: str, number: int) -> str:
        return f"diloco/{self.run.digest}/messages/{worker.lower()}/{number:010d}"

    def _entry_place(self, number: int) -> str:
        return f"diloco/{self.run.digest}/log/{number:010d}"


class PollBackoff:
    """Limits how often something is looked for that may not be there yet: after a look (`taking`), the next is `due`
    after `factor` times as long as that one took, two seconds at most."""

    def __init__(self, factor: float = 8.0) -> None:
        self._factor, self._next = factor, 0.0

    def due(self) -> bool:
        return time.monotonic() >= self._next

    @contextmanager
    def taking(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            ended = time.monotonic()
            self._next = ended + min(2.0, self._factor * (ended - began))


class BackgroundJob:
    """Does one thing at a time on a thread of its own, and again where it failed. One thread uses it."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, name)
        self._what, self._work = "", lambda: None
        self._running: Future[Any] | None = None

    @property
    def busy(self) -> bool:
        return self._running is not None and not self._running.done()

    def begin(self, what: str, work: Callable[[], Any]) -> None:
        """Begin another job; `what` it does is for people. One under way still ends first."""
        self._what, self._work = what, work
        self._running = self._pool.submit(work)

    def tend(self) -> None:
        """Begin the job again if it failed."""
        if self._running is not None and self._running.done() and (error := self._running.exception()) is not None:
            log.warning("%s is sent again: %s", self._what, error)
            self._running = self._pool.submit(self._work)

    def finish(self) -> None:
        """Return once the job is done, or cannot be."""
        if self._running is None:
            return
        with WAITS.on(f"the bucket, for {self._what}"):
            if (error := self._running.exception()) is not None:
                log.warning("%s was not sent: %s", self._what, error)
        self._running = None


class AttemptCache:
    """The contributions of one attempt, and the files of their payloads, which are fetched to disk in the background as
    soon as each is published (all-gather). `folder` is emptied by `clear`; nothing in it outlives the attempt. One
    thread uses it, others fetch."""

    def __init__(self, transport: Transport, folder: Path) -> None:
        self._transport, self._folder = transport, folder
        self._pool = ThreadPoolExecutor(4, "shard-fetcher")
        self._jobs: dict[str, tuple[Future[None], PollBackoff]] = {}
        self._attempt = (-1, -1)
        self.clear()

    def begin(self, schedule: Schedule) -> bool:
        """Forget what is of another attempt than the schedule's; return whether there is a new one."""
        before, self._attempt = self._attempt, (schedule.step, schedule.attempt)
        if before == self._attempt:
            return False
        self.clear()
        return True

    def clear(self) -> None:
        """Forget everything; what is under way ends in a folder that nobody reads."""
        for job, _ in self._jobs.values():
            job.cancel()
        self._jobs, self._contributions = {}, dict[tuple[str, str], messages.Contribution]()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._current = self._folder / f"{time.monotonic_ns():020d}"
        self._current.mkdir(parents=True)

    def contribution(self, worker: str, document: str, expected: messages.Expected) -> messages.Contribution:
        """Return a worker's contribution (SHA-256 `document`). Raises as `Transport.contribution`."""
        if (worker, document) not in self._contributions:
            contribution = self._transport.contribution(document, worker, expected)
            self._contributions[worker, document] = contribution
        return self._contributions[worker, document]

    def fetch(self, worker: str, document: str, expected: messages.Expected) -> bool:
        """Return whether all files of a contribution are here; fetch what is missing. Raises IntegrityError where other
        bytes lie under a hash, and as `contribution`."""
        entries = self.contribution(worker, document, expected).shards
        missing = [entry for entry in entries if not (self._current / entry.sha256).exists()]
        if not missing:
            return True
        job, backoff = self._jobs.get(document, (None, PollBackoff()))
        if job is not None and not job.done():
            return False
        if job is not None:
            job.result()
        if backoff.due():
            self._jobs[document] = self._pool.submit(self._fetch, missing, self._current, backoff), backoff
        return False

    def read(self, entry: messages.ShardEntry) -> bytes:
        """Return a file's bytes, from the bucket if they are not here. Raises as `Transport.shard`."""
        try:
            return (self._current / entry.sha256).read_bytes()
        except OSError:
            return self._transport.shard(entry)

    def _fetch(self, entries: Sequence[messages.ShardEntry], folder: Path, backoff: PollBackoff) -> None:
        for entry in entries:
            try:
                with backoff.taking():
                    data = self._transport.shard(entry)
                part = folder / f"{entry.sha256}.part"
                part.write_bytes(data)
                part.rename(folder / entry.sha256)
            except (MissingObjectError, UnreachableError, OSError) as error:
                log.debug("not there yet: %s", error)
                return


class Sender:
    """Posts a worker's messages, each once and under a number of its own, and uploads payloads in the background.
    `next`: number of the next one; it may be taken, by messages of this worker that are not in the log yet."""

    def __init__(self, transport: Transport, account: LocalAccount) -> None:
        self._transport, self._account, self.next = transport, account, 0
        self._posted: set[tuple[messages.MessageKind, int, int, str | None]] = set()
        self._upload, self._uploaded = BackgroundJob("payload-sender"), ("", 0)

    def post(
        self, kind: messages.MessageKind, schedule: Schedule, digest: str | None = None, items: Iterable[str] = ()
    ) -> None:
        """Post a message about the attempt under way, unless this process has, at the first place that nobody has
        taken. Raises MusterError where there is none; UnreachableError."""
        key = kind, schedule.step, schedule.attempt, digest
        if key in self._posted:
            return
        worker, run = str(self._account.address), self._transport.run
        for _ in range(MAX_TAKEN):
            message = messages.WorkerMessage(
                run=run.digest, worker=worker, number=self.next, kind=kind, step=schedule.step,
                attempt=schedule.attempt, digest=digest, items=list(items),
            )  # fmt: skip
            posted = self._transport.post(worker, message.number, messages.seal(message, run, self._account))
            self.next += 1
            if posted:
                self._posted = {earlier for earlier in self._posted if earlier[1] == schedule.step} | {key}
                return
        raise MusterError(f"{MAX_TAKEN} places for messages of {worker} are taken", "see who else writes to the bucket")

    def upload(self, document: str, attempt: int, payload: Sequence[bytes]) -> None:
        """Publish a payload in the background, again if that failed, and again in another attempt, which may be due to
        its loss."""
        before, self._uploaded = self._uploaded, (document, attempt)
        if before == self._uploaded:
            self._upload.tend()
        else:
            self._upload.begin("the payload", lambda: self.publish(payload))

    def publish(self, payload: Sequence[bytes]) -> None:
        """Publish a payload; return once it is there."""
        with ThreadPoolExecutor(2, "payload-sender") as senders:
            list(senders.map(self._transport.publish, payload))
