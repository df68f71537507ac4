"""Durable small files, which a reader never sees half-written, errors that name them, and the user's caches.

At the bottom, because chain and storage need them.
"""

import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from protocol.errors import ConfigError


@contextmanager
def explained(what: str, hint: str) -> Iterator[None]:
    """Turns an OSError inside into the ConfigError `cannot <what>: <reason>`."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot {what}: {error.strerror or error}", hint) from None


def read_bounded(path: Path, limit: int, kind: str = "") -> bytes:
    """The bytes of a file that a user named; `kind` says what it should be. Raises ConfigError if it cannot be read or
    has more than `limit` bytes."""
    with explained(f"read {kind}{path}", "check the path"), path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ConfigError(f"{kind}{path} is too long: more than {limit} bytes", "name the right file")
    return data


def check_private(path: Path, kind: str = "") -> None:
    """Raise ConfigError unless `path` is a file that only its owner can read; `kind` says what it should be."""
    with explained(f"read {kind}{path}", "check the path"):
        info = path.stat()
    if not stat.S_ISREG(info.st_mode):
        raise ConfigError(f"{path} is not a regular file", "name the right file")
    if info.st_mode & 0o077:
        raise ConfigError(f"{path} can be read by others", f"chmod 600 {path}")


def file_sha256(path: Path) -> str:
    """Hex SHA-256 of a file of any size."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def user_cache(part: str) -> Path:
    """The user's folder for what can be recomputed, `~/.cache/muster/<part>` on Linux; it may not exist yet."""
    return platformdirs.user_cache_path("muster") / part


def write_atomic(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Replace `path` by `data` durably; the file never exists with wider permissions than `mode`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        os.fchmod(descriptor, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename inside `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
