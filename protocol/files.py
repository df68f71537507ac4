"""Files and folders that are either complete or absent, locks between processes, child processes."""

import ctypes
import fcntl
import hashlib
import logging
import os
import resource
import secrets
import shutil
import signal
import stat
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import platformdirs
from filelock import FileLock, Timeout

from protocol.errors import ConfigError
from protocol.waits import wait_for

log = logging.getLogger("muster.files")
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def allow_files(count: int) -> None:
    """Raise this process's limit of open files to `count`, or to the system's maximum with a warning."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < count:
        log.warning("the system allows only %d open files, %d are needed", most, count)


@contextmanager
def explained(what: str, hint: str) -> Iterator[None]:
    """Turn an OSError inside into the ConfigError `cannot <what>: <reason>`."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot {what}: {error.strerror or error}", hint) from None


def read_bounded(path: Path, limit: int, kind: str = "") -> bytes:
    """Return the bytes of a file that a user named, at most `limit`; `kind` says what it should be. Raises
    ConfigError."""
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
    """Return the hex SHA-256 of a file of any size."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def user_cache(part: str) -> Path:
    """Return the user's folder for what can be recomputed, `~/.cache/muster/<part>` on Linux; it may not exist yet."""
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
    sync(path.parent)


def write_file(path: Path, data: bytes, hint: str = "check the folder", *, mode: int = 0o644) -> None:
    """`write_atomic`, for a file of the user's. Raises ConfigError."""
    with explained(f"write {path}", hint):
        write_atomic(path, data, mode)


def sync(path: Path) -> None:
    """Make a file's content, or a rename inside a folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_folder(target: Path, fill: Callable[[Path], object]) -> Path:
    """Let `fill` write files into a fresh folder, sync them, and put the folder at `target`, replacing any other.

    A crash leaves the old folder, the new one, or none. Leftovers (`.<name>.<random>`, with `.old`) hinder nobody.
    """
    aside = folder_aside(target)
    try:
        fill(aside)
        put_folder(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return target


def folder_aside(target: Path) -> Path:
    """Make a fresh folder beside `target`, for `put_folder` to move there once it is filled. Raises OSError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.parent / f".{target.name}.{uuid.uuid4().hex[:12]}"
    aside.mkdir()
    return aside


def put_folder(aside: Path, target: Path) -> None:
    """Sync a folder of the same parent, and put it at `target`, replacing any other. A crash leaves one of them."""
    for path in aside.rglob("*"):
        if path.is_file():
            sync(path)
    sync(aside)
    if target.exists():
        # Named by this call alone: what a kill left of an earlier one's must not stand in the way.
        old = aside.with_name(f"{aside.name}.old")
        target.rename(old)
        aside.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    else:
        aside.rename(target)
    sync(target.parent)


def remove_leftovers(parent: Path) -> None:
    """Delete what an interrupted `write_folder` left in `parent`; only for a folder that one process owns."""
    for path in parent.glob(".*.*"):
        shutil.rmtree(path, ignore_errors=True)


def drop_old(folders: Sequence[Path], keep: int) -> None:
    """Delete all but the last `keep` of `folders`, which are in order of age, oldest first."""
    for folder in folders[: max(0, len(folders) - keep)]:
        shutil.rmtree(folder, ignore_errors=True)


def file_digests(folder: Path, skip: tuple[str, ...] = ()) -> dict[str, str]:
    """Return SHA-256 (hex) of each plain file directly in `folder`, by name."""
    paths = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name not in skip]
    return {path.name: file_sha256(path) for path in paths}


@contextmanager
def locked(path: Path, what: str, timeout: float) -> Iterator[None]:
    """Hold the lock file `path`, whose folder exists, while the block runs; others wait for `what`. Raises MusterError
    after `timeout` seconds, OSError for an unusable path."""
    lock = FileLock(path)

    def taken() -> bool:
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return False
        return True

    wait_for(what, taken, timeout, poll=0.05)
    try:
        yield
    finally:
        lock.release()


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock file. It need not be writable for us, and nothing of it changes."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # Shared, so that two who look do not take each other for the holder.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def die_with_parent(parent: int | None = None) -> None:
    """Ask the kernel (Linux) to kill this process when its parent ends; end at once if `parent` has ended already."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(1)
