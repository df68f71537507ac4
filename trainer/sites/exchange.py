"""What sites and keeper leave for one another in a bucket: contributions and outer states by their hashes, notes and
log at the places that are theirs. Whatever comes from there is a stranger's.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from protocol.encoding import sha256_hex
from protocol.errors import IntegrityError
from protocol.sites.contribution import Contribution, ContributionLimits, ShardEntry, open_contribution
from protocol.sites.forms import MalformedContribution
from protocol.sites.layout import TensorLayout, Tensors, cut
from protocol.sites.log import MAX_ENTRY_BYTES, LogEntry, MalformedEntry, open_entry
from protocol.sites.notes import MAX_NOTE_BYTES, SiteNote, open_note
from protocol.sites.outer import OuterState
from protocol.sites.payload import decode_shard
from protocol.sites.run import SitesRun
from protocol.sites.state_files import MAX_LIST_BYTES, list_state, open_list, read_state, shard_bytes, state_shards
from storage.keys import object_key
from trainer.sites.known_documents import KnownDocuments

log = logging.getLogger("muster.sites")
ReadShard = Callable[[ShardEntry], bytes]
MAX_TAKEN = 4096
"""Places of the log that strangers may take before it ends."""


class SiteBucket(Protocol):
    """`storage.s3.Bucket`. Every method ends within a bounded time, with an UnreachableError at the latest."""

    def put(self, key: str, data: bytes) -> bool: ...

    def get(self, key: str, limit: int) -> bytes: ...

    def size(self, key: str) -> int | None: ...

    def put_first(self, place: str, data: bytes) -> bool: ...

    def look(self, place: str, limit: int) -> bytes | None: ...


class SiteExchange:
    """Of one run. Methods may be called from any thread if the bucket's may."""

    def __init__(self, bucket: SiteBucket, run: SitesRun) -> None:
        self._bucket, self.run = bucket, run
        self._known = KnownDocuments()

    def publish(self, data: bytes) -> None:
        """A document, or a shard of a payload or of means."""
        self._bucket.put(_key("contributions", sha256_hex(data)), data)

    def contribution(self, document: str, site: str, limits: ContributionLimits) -> Contribution:
        """The contribution of `site` whose bytes have the SHA-256 `document`. Raises MalformedContribution,
        IntegrityError, MissingObjectError, UnreachableError."""
        made = open_contribution(self.document(document, limits.file_bytes), limits)
        if made.site != site:
            raise MalformedContribution(f"{document[:16]}… is a contribution of {made.site}, not of {site}")
        return made

    def is_open(self, made: Contribution) -> bool:
        """Whether all shards of its payload are there, in the sizes that were signed."""
        return all(map(self.has_shard, made.shards))

    def shard(self, entry: ShardEntry) -> bytes:
        """A file that somebody signed, of a payload or of means. Raises IntegrityError, MissingObjectError,
        UnreachableError."""
        return self._fetch(entry.sha256, entry.size)

    def document(self, digest: str, limit: int) -> bytes:
        """What was published of that SHA-256, `limit` bytes at most; a short one is fetched once. Raises as `shard`."""
        data = self._known.get(digest, limit)
        if data is None:
            data = self._fetch(digest, limit)
            self._known.keep(digest, data)
        return data

    def _fetch(self, digest: str, limit: int) -> bytes:
        return self._bucket.get(_key("contributions", digest), limit)

    def has_shard(self, entry: ShardEntry) -> bool:
        """Whether it is there, in the size that was signed."""
        return self._bucket.size(_key("contributions", entry.sha256)) == entry.size

    def gradient(
        self, made: Contribution, limits: ContributionLimits, state: OuterState, read: ReadShard | None = None
    ) -> Tensors:
        """The pseudo-gradient that a contribution's payload is, from the `state` that it starts from; `read`: how its
        files are had, if not from here. Raises as `contribution`."""
        return decoded([(read or self.shard)(one) for one in made.shards], made.site, limits, state)

    def publish_state(self, state: OuterState) -> str:
        """The SHA-256 of the list of its files, which lies there after them."""
        for shard in state_shards(state, self.run.settings.shards):
            self._bucket.put(_key("outer", sha256_hex(shard)), shard)
        data = list_state(state, self.run.settings.shards).encode()
        self._bucket.put(_key("outer", sha256_hex(data)), data)
        return sha256_hex(data)

    def listed(self, state: OuterState) -> str:
        """What `publish_state` returns."""
        return sha256_hex(list_state(state, self.run.settings.shards).encode())

    def has_state(self, listed: str) -> bool:
        """Whether a state was published whole, by the SHA-256 of its list."""
        return self._bucket.size(_key("outer", listed)) is not None

    def state(self, listed: str, step: int, digest: str, layout: TensorLayout) -> OuterState:
        """The outer state `step` of `digest`, whose list of files has the SHA-256 `listed`. Raises MalformedState, and
        as `contribution`."""
        count = self.run.settings.shards
        files = open_list(self._bucket.get(_key("outer", listed), MAX_LIST_BYTES), count)
        longest = [shard_bytes(pieces) for pieces in layout.shards(count)]
        shards = [self._bucket.get(_key("outer", one), limit) for one, limit in zip(files.shards, longest, strict=True)]
        return read_state(step, digest, shards, layout)

    def post(self, site: str, number: int, note: bytes) -> bool:
        """Leave a site's note; False if its number is taken."""
        return self._bucket.put_first(self._note(site, number), note)

    def has_note(self, site: str, number: int) -> bool:
        """Whether the place is taken, by whatever."""
        try:
            return self._bucket.look(self._note(site, number), MAX_NOTE_BYTES) is not None
        except IntegrityError:  # by something longer than notes are
            return True

    def note(self, site: str, number: int) -> SiteNote | None:
        """None if it is not there yet. Raises MalformedNote, IntegrityError, UnreachableError."""
        data = self.stored_note(site, number)
        return None if data is None else open_note(data, self.run, site, number)

    def stored_note(self, site: str, number: int) -> bytes | None:
        """What is at a note's place, whoever put it there. Raises IntegrityError where that is longer than a note,
        UnreachableError."""
        return self._bucket.look(self._note(site, number), MAX_NOTE_BYTES)

    def append(self, number: int, entry: bytes) -> bool:
        """Write an entry of the log; False if its number is taken."""
        return self._bucket.put_first(self._entry(number), entry)

    def has_entry(self, number: int) -> bool:
        """Whether an entry of the keeper's is there."""
        try:
            return self._read_entry(number, None) is not None
        except MalformedEntry:
            return False

    def entry(self, number: int, previous: str | None) -> tuple[LogEntry, str] | None:
        """An entry of the log and the SHA-256 of its bytes; None if it is not there yet. Raises MalformedEntry where
        the place is taken by something else, IntegrityError, UnreachableError."""
        return self._read_entry(number, previous)

    def stored_entry(self, number: int) -> bytes | None:
        """What is at a place of the log, whoever put it there. Raises MalformedEntry where that is longer than an
        entry, UnreachableError."""
        try:
            return self._bucket.look(self._entry(number), MAX_ENTRY_BYTES)
        except IntegrityError as error:
            raise MalformedEntry(error.what) from None

    def _read_entry(self, number: int, previous: str | None) -> tuple[LogEntry, str] | None:
        data = self.stored_entry(number)
        return None if data is None else (open_entry(data, self.run, number, previous), sha256_hex(data))

    def next_entry(self, number: int, previous: str) -> tuple[LogEntry, str] | None:
        """The first entry from place `number` on, past places that somebody took who is not the keeper. Raises
        IntegrityError where it follows another entry than the one of SHA-256 `previous`; UnreachableError."""
        for place in range(number, number + MAX_TAKEN):
            try:
                return self._read_entry(place, previous)
            except MalformedEntry as error:
                log.debug("place %d of the log is passed over: %s", place, error)
        raise IntegrityError(f"{MAX_TAKEN} places of the log are taken by strangers", "see who writes to the bucket")

    def _note(self, site: str, number: int) -> str:
        return f"sites/{self.run.digest}/notes/{site.lower()}/{number:010d}"

    def _entry(self, number: int) -> str:
        return f"sites/{self.run.digest}/log/{number:010d}"


def decoded(payload: Sequence[bytes], site: str, limits: ContributionLimits, state: OuterState) -> Tensors:
    """The pseudo-gradient that every reader makes of a payload. Raises MalformedContribution."""
    layout, settings = state.layout, limits.config
    cuts, place = layout.shards(len(payload)), limits.place(site)
    values = [
        decode_shard(data, place, number, pieces, settings.mode, cut(state.weights, pieces))
        for number, (data, pieces) in enumerate(zip(payload, cuts, strict=True))
    ]
    return layout.joined(cuts, values)


def _key(kind: str, sha256: str) -> str:
    assert kind in ("contributions", "outer")
    return object_key("outer" if kind == "outer" else "contributions", bytes.fromhex(sha256))
