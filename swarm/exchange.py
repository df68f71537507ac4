"""Where members leave and find envelopes: a bucket, or a bucket behind a gate.

Keys are content addresses, so a server of the bytes can withhold envelopes and do nothing else."""

import hashlib
import heapq
import re
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import NamedTuple, Protocol

from protocol.accounts import LocalAccount
from protocol.api.endpoints import OBJECTS, Get
from protocol.api.swarm import CURSOR, ENVELOPES, SHARE, EnvelopeUpload
from protocol.api.work import UploadExists
from protocol.errors import IntegrityError, MusterError, UnreachableError
from protocol.http.reach import Reach
from protocol.http.signing import AuthScope
from runtime.signed_client import ClientLimits, RequestSigner, ServiceError, SignedClient
from storage.keys import MissingObjectError, check_content, object_key, parse_key
from storage.s3 import Bucket
from storage.transfers import TicketRefusedError, download, http_client, upload
from swarm.config import GateAccess
from swarm.envelope import DOMAIN, sealed_by

PREFIX = "envelopes/"
MOST_LISTED = 1 << 20  # names that are read of a listing
_PATH = re.compile(rf"({PREFIX})(?:(0x[0-9a-f]{{40}})/)?([0-9a-f]{{64}}\.json)")
_LIMITS = ClientLimits(timeout=5.0, attempts=3, patience=8.0, exchange=20.0)
_TRANSFER_SECONDS = 30.0
_FINAL = (409, 413)


class ListingEntry(NamedTuple):
    """An envelope in a listing. `key` is its content address; `peer` the lower-case address whose it is said to be, or
    empty."""

    key: str
    peer: str = ""

    @property
    def path(self) -> str:
        """Where it lies: below its peer's address, or at its content address."""
        return f"{PREFIX}{self.peer}/{self.key[len(PREFIX) :]}" if self.peer else self.key

    @classmethod
    def from_path(cls, path: str) -> "ListingEntry | None":
        """Parse a path; return None if it is no envelope's."""
        match = _PATH.fullmatch(path)
        return None if match is None else cls(match[1] + match[3], match[2] or "")


# Whether an entry comes last, and a hash that nobody else can predict: the order within one peer's entries.
Rank = Callable[[ListingEntry], tuple[bool, bytes]]


def take_turns(
    listed: Iterable[ListingEntry], most: int, rank: Rank, order: Callable[[str], bytes]
) -> list[ListingEntry]:
    """Return at most `most` entries: one of each peer before a second of any, so that sharing eight times as much does
    not help. Entries without a peer count as one peer's, and entries that come last follow all others. `order` ranks
    the peers within a turn by a hash that differs from round to round: the smallest rank of eight entries comes before
    most others' only one."""
    by_peer: defaultdict[str, list[tuple[tuple[bool, bytes], ListingEntry]]] = defaultdict(list)
    for entry in listed:
        entries = by_peer[entry.peer]
        entries.append((rank(entry), entry))
        if len(entries) >= 4 * most:  # a flood below one address must not fill the memory
            entries.sort()
            del entries[most:]
    turns = []
    for peer, entries in by_peer.items():
        peer_rank = order(peer)
        turns += [(last, turn, peer_rank, entry) for turn, ((last, _), entry) in enumerate(sorted(entries)[:most])]
    return [entry for *_, entry in heapq.nsmallest(most, turns)]


class RefusedForGood(MusterError):
    """The other side refuses an envelope, and will whenever it is sent again."""


class Exchange(Protocol):
    """Every method raises UnreachableError, within a bounded time, if the other side is gone."""

    def publish(self, data: bytes) -> str:
        """Leave an envelope there unless it is there already; return its key. Raise RefusedForGood."""

    def listed(self) -> Iterator[ListingEntry]:
        """Yield what is there, possibly without an end."""

    def get(self, entry: ListingEntry, limit: int) -> bytes:
        """Return an envelope of at most `limit` bytes. Raise IntegrityError for other bytes, MissingObjectError."""


def envelope_key(data: bytes) -> str:
    return object_key("envelopes", hashlib.sha256(data).digest())


def own_entry(data: bytes) -> ListingEntry:
    """Return where one's own envelope lies: below its member's address, so that a listing says whose it is."""
    return ListingEntry(envelope_key(data), sealed_by(data).lower())


class BucketExchange:
    """For members with an access key of the bucket. A key limited to the member's own prefix cannot fill up another
    member's part of a listing."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def publish(self, data: bytes) -> str:
        entry = own_entry(data)
        self._bucket.put_first(entry.path, data)
        return entry.key

    def listed(self) -> Iterator[ListingEntry]:
        """List from a random start, so that flooding the bucket does not decide what a cut-off listing omits."""
        start = PREFIX + secrets.choice(("", "0x")) + secrets.token_hex(8)
        yield from _envelopes(self._bucket.list(PREFIX, start))
        yield from _envelopes(takewhile(lambda path: path <= start, self._bucket.list(PREFIX)))

    def get(self, entry: ListingEntry, limit: int) -> bytes:
        if not entry.peer:
            return self._bucket.get(entry.key, limit)
        data = self._bucket.read_document(entry.path, limit)
        if data is None:
            raise MissingObjectError(f"no object {entry.path} in bucket {self._bucket.settings.bucket}")
        check_content(entry.key, data)
        return data


class GateExchange:
    """For members without a key of the bucket. Without an `account` it only reads. Raises ConfigError for a bad URL."""

    def __init__(self, access: GateAccess, account: LocalAccount | None = None) -> None:
        scope = AuthScope.of(access.url, DOMAIN.chain_id, DOMAIN.contract)
        signer = RequestSigner(account, scope) if account is not None else None
        self._client = SignedClient(access.url, signer, _LIMITS)
        self._objects = http_client(Reach((access.url,), access.allow_private_sources))

    def publish(self, data: bytes) -> str:
        """Ask for a ticket, upload, and ask again, so that the gate checks the envelope and lists it."""
        request = EnvelopeUpload(sha256=hashlib.sha256(data).hexdigest(), size=len(data))
        try:
            answer = self._client.post(SHARE, request)
            if not isinstance(answer, UploadExists):
                upload(answer, data, self._objects, _TRANSFER_SECONDS)
                answer = self._client.post(SHARE, request)
        except ServiceError as error:
            if error.status in _FINAL:
                raise RefusedForGood(f"the gate refuses it: {error.detail}") from None
            raise
        except (TicketRefusedError, IntegrityError) as error:
            raise UnreachableError(f"the gate's ticket is of no use: {error.what}", "tell its owner") from None
        if not isinstance(answer, UploadExists):
            raise UnreachableError("the gate does not see what was uploaded", "tell its owner")
        return envelope_key(data)

    def listed(self) -> Iterator[ListingEntry]:
        """Yield the newest envelope of every member, then the second newest, and so on."""
        last, after = (0, ""), ""
        while True:
            page = self._client.get(Get(ENVELOPES.path + after, ENVELOPES.answer, ENVELOPES.limit))
            yield from (ListingEntry(f"{PREFIX}{row.sha256}.json", row.member.lower()) for row in page.envelopes)
            if page.next is None:
                return
            cursor = re.fullmatch(CURSOR, page.next)
            position = (int(cursor[1]), cursor[2]) if cursor and page.envelopes else last
            if position <= last:
                raise UnreachableError(f"{self._client.base_url} lists without an end", "tell its owner")
            last, after = position, f"?after={page.next}"

    def get(self, entry: ListingEntry, limit: int) -> bytes:
        url = f"{self._client.base_url}{OBJECTS}/{parse_key(entry.key)}"
        try:
            return download(url, entry.key, limit, self._objects, _TRANSFER_SECONDS)
        except (UnreachableError, IntegrityError, MissingObjectError):
            raise
        except MusterError as error:
            what = f"{entry.key} cannot be read through the gate: {error.what}"
            raise IntegrityError(what, "tell its owner") from None


def _envelopes(paths: Iterator[str]) -> Iterator[ListingEntry]:
    return (entry for path in paths if (entry := ListingEntry.from_path(path)) is not None)
