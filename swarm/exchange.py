"""Where envelopes are left and found: a bucket, or a folder that several members share."""

import errno
import hashlib
import logging
import os
import random
import re
import secrets
import stat
from collections.abc import Iterator
from itertools import islice, takewhile
from pathlib import Path
from typing import Protocol

from protocol.errors import IntegrityError, MusterError, UnreachableError
from protocol.files import write_atomic
from protocol.swarm.envelope import sealed_by
from storage.keys import MissingObjectError, check_content, object_key
from storage.s3 import Bucket
from swarm.listing import PREFIX, ListingEntry

log = logging.getLogger("muster.swarm")
MOST_LISTED = 1 << 20
"""Names of a folder that are read; a flood of more is cut off."""
_ADDRESS = re.compile("0x[0-9a-f]{40}")


class RefusedForGood(MusterError):
    """An envelope that the other side does not take, whenever it is sent again."""


class EnvelopeSource(Protocol):
    """Keys are content addresses, so whoever serves the bytes can withhold them and do nothing else. Every method
    raises UnreachableError, within a bounded time, where the other side is gone."""

    def listed(self) -> Iterator[ListingEntry]:
        """All that are there, possibly more than anybody waits for, and whose they are said to be."""
        ...

    def get(self, entry: ListingEntry, limit: int) -> bytes:
        """An envelope of at most `limit` bytes. Raises IntegrityError for other bytes, MissingObjectError."""
        ...


class Exchange(EnvelopeSource, Protocol):
    """Where envelopes can be left as well."""

    def publish(self, data: bytes) -> str:
        """Leave an envelope there, if it is not there yet; its key. Raises RefusedForGood."""
        ...


def envelope_key(data: bytes) -> str:
    return object_key("envelopes", hashlib.sha256(data).digest())


def place_of(data: bytes) -> ListingEntry:
    """Where an envelope of one's own lies: below its member's address, so that a listing says whose it is."""
    return ListingEntry(envelope_key(data), sealed_by(data).lower())


class BucketExchange:
    """For members who hold the bucket's access key. A key whose rights end with the member's address can fill up no
    other's part of a listing."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def publish(self, data: bytes) -> str:
        where = place_of(data)
        self._bucket.put_first(where.place, data)
        return where.key

    def listed(self) -> Iterator[ListingEntry]:
        """Beginning anywhere: whoever fills the bucket does not know what a listing that is cut off leaves out. What a
        gate put there lies at its content address."""
        start = PREFIX + secrets.choice(("", "0x")) + secrets.token_hex(8)
        yield from _envelopes(self._bucket.list(PREFIX, start))
        yield from _envelopes(takewhile(lambda place: place <= start, self._bucket.list(PREFIX)))

    def get(self, entry: ListingEntry, limit: int) -> bytes:
        if not entry.sharer:
            return self._bucket.get(entry.key, limit)
        data = self._bucket.look(entry.place, limit)
        if data is None:
            raise MissingObjectError(f"no object {entry.place} in bucket {self._bucket.settings.bucket}")
        check_content(entry.key, data)
        return data


class FolderExchange:
    """The same in a folder. A folder that is not there is a bucket that is gone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def publish(self, data: bytes) -> str:
        where = place_of(data)
        path = self._open() / where.place
        if not path.exists():
            write_atomic(path, data)
        return where.key

    def listed(self) -> Iterator[ListingEntry]:
        """Sharer by sharer in a random order: nobody is left out of all listings that are cut off by what others
        leave."""
        inside = self._open() / PREFIX
        try:
            with os.scandir(inside) as entries:
                names = [entry.name for entry in islice(entries, MOST_LISTED)]
        except FileNotFoundError:
            return  # nobody has left one
        except OSError as error:
            raise UnreachableError(f"{self._folder} cannot be listed: {error.strerror}", "mend its rights") from None
        random.SystemRandom().shuffle(names)
        for name in names:
            yield from _envelopes(iter([PREFIX + name]))
            if _ADDRESS.fullmatch(name):
                yield from _envelopes(f"{PREFIX}{name}/{inner}" for inner in _names(inside / name))

    def get(self, entry: ListingEntry, limit: int) -> bytes:
        path = self._open() / entry.place
        try:
            data = _read_file(path, limit + 1)
        except FileNotFoundError:
            raise MissingObjectError(f"no object {entry.place} in {self._folder}") from None
        except OSError as error:
            what = f"{entry.place} cannot be read: {error.strerror}"
            raise IntegrityError(what, "remove it from the folder") from None
        check_content(entry.key, data)
        return data

    def _open(self) -> Path:
        if not self._folder.is_dir():
            raise UnreachableError(f"there is no folder {self._folder}", "make it, or mount it again")
        return self._folder


def _envelopes(places: Iterator[str]) -> Iterator[ListingEntry]:
    return (one for place in places if (one := ListingEntry.at(place)) is not None)


def _names(folder: Path) -> Iterator[str]:
    """What lies in a folder that another member made; nothing in one that cannot be read or is a link."""
    try:
        if not folder.is_symlink():
            with os.scandir(folder) as entries:
                yield from (entry.name for entry in entries)
    except OSError as error:
        log.info("%s cannot be listed: %s", folder, error.strerror)


def _read_file(path: Path, most: int) -> bytes:
    """The first `most` bytes of what another member left there: a pipe would be waited for without end. Raises
    OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)
