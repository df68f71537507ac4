"""Where envelopes are left and found: a bucket, or a folder that several members share."""

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Protocol

from protocol.errors import IntegrityError, MusterError, UnreachableError
from protocol.files import write_atomic
from storage.bucket import Bucket
from storage.keys import MissingObjectError, check_content, object_key, parse_key

PREFIX = "envelopes/"


class RefusedForGood(MusterError):
    """An envelope that the other side does not take, whenever it is sent again."""


class Exchange(Protocol):
    """Keys are content addresses, so whoever serves the bytes can withhold them and do nothing else. Every method
    raises UnreachableError, within a bounded time, where the other side is gone."""

    def publish(self, data: bytes) -> str:
        """Leave an envelope there, if it is not there yet; its key. Raises RefusedForGood."""
        ...

    def keys(self) -> Iterator[str]:
        """Of all envelopes that are there; possibly more than anybody waits for, and what is no key."""
        ...

    def get(self, key: str, limit: int) -> bytes:
        """An envelope of at most `limit` bytes. Raises IntegrityError for other bytes, MissingObjectError."""
        ...


def envelope_key(data: bytes) -> str:
    return object_key("envelopes", hashlib.sha256(data).digest())


class BucketExchange:
    """For members who hold the bucket's access key."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def publish(self, data: bytes) -> str:
        key = envelope_key(data)
        self._bucket.put(key, data)
        return key

    def keys(self) -> Iterator[str]:
        """Beginning anywhere: whoever fills the bucket does not know what a listing that is cut off leaves out."""
        start = PREFIX + secrets.token_hex(8)
        yield from self._bucket.list(PREFIX, start)
        yield from takewhile(lambda key: key <= start, self._bucket.list(PREFIX))

    def get(self, key: str, limit: int) -> bytes:
        return self._bucket.get(key, limit)


class FolderExchange:
    """The same in a folder. A folder that is not there is a bucket that is gone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def publish(self, data: bytes) -> str:
        key = envelope_key(data)
        path = self._open() / key
        if not path.exists():
            write_atomic(path, data)
        return key

    def keys(self) -> Iterator[str]:
        try:
            with os.scandir(self._open() / PREFIX) as entries:
                yield from (PREFIX + entry.name for entry in entries)
        except FileNotFoundError:
            return  # nobody has left one
        except OSError as error:
            raise UnreachableError(f"{self._folder} cannot be listed: {error.strerror}", "mend its rights") from None

    def get(self, key: str, limit: int) -> bytes:
        path = self._open() / str(parse_key(key))
        try:
            data = _read_file(path, limit + 1)
        except FileNotFoundError:
            raise MissingObjectError(f"no object {key} in {self._folder}") from None
        except OSError as error:
            raise IntegrityError(f"{key} cannot be read: {error.strerror}", "remove it from the folder") from None
        check_content(key, data)
        return data

    def _open(self) -> Path:
        if not self._folder.is_dir():
            raise UnreachableError(f"there is no folder {self._folder}", "make it, or mount it again")
        return self._folder


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
