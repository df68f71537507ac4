"""The cache of a node's weights: folders by manifest digest, and what an unfinished fetch has brought.

`<cache>/<digest>/` holds a complete version, `<cache>/<digest>.json` its manifest, `<cache>/shards/<sha256>` loose
shards. Shards of complete versions are found inside their files, so nothing is stored twice. A full fetch assembles the
files in place: every shard is written at its offset, and nothing is copied once it is here.
"""

import ctypes
import hashlib
import os
import re
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from pydantic import ValidationError

from protocol.files import explained, locked, put_folder, write_atomic, write_folder
from storage.partial import Bytes, PartFile, PartialDownload, write
from storage.weights.manifest import Manifest, Shard, WeightFile

_READ = 256 << 10
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True)
class Spot:
    """Where a shard belongs: the file's number, and the offset of its first byte."""

    shard: Shard
    file: int
    offset: int


def spots(files: Iterable[WeightFile]) -> dict[str, list[Spot]]:
    """Return all spots by the shard's SHA-256, in order."""
    found: dict[str, list[Spot]] = {}
    for number, file in enumerate(files):
        offset = 0
        for shard in file.shards:
            found.setdefault(shard.sha256, []).append(Spot(shard, number, offset))
            offset += shard.size
    return found


class Assembly:
    """The `files` of one version in `folder`, where a killed process may have left some of their bytes. For one process
    at a time. Raises OSError; FileExistsError if something else is in the way."""

    def __init__(self, folder: Path, files: tuple[WeightFile, ...]) -> None:
        self.folder, self._open, self._left = folder, ExitStack(), set[int]()
        folder.mkdir(exist_ok=True)
        names = {file.name for file in files}
        if not stat.S_ISDIR(folder.lstat().st_mode) or any(path.name not in names for path in folder.iterdir()):
            raise FileExistsError(f"{folder} holds something else")
        os.utime(folder)
        with ExitStack() as opened:
            self._files = [opened.enter_context(self._file(number, file)) for number, file in enumerate(files)]
            # The kernel lets one thread at a time write to a file, and the others spin; here they sleep.
            self._write_locks = [threading.Lock() for _ in files]
            self._open = opened.pop_all()

    def _file(self, number: int, file: WeightFile) -> BinaryIO:
        path = self.folder / file.name
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(path.lstat().st_mode):
                raise FileExistsError(f"{path} is not a plain file")
            self._left.add(number)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        os.ftruncate(handle, file.size)
        _reserve(handle, file.size)
        return os.fdopen(handle, "rb+", buffering=0)

    def has(self, spot: Spot) -> bool:
        """Return whether the shard is there; reads it if an earlier process left anything."""
        if spot.file not in self._left:
            return False
        state, at, end = hashlib.sha256(), spot.offset, spot.offset + spot.shard.size
        while at < end and (data := os.pread(self._files[spot.file].fileno(), min(_READ, end - at), at)):
            state.update(data)
            at += len(data)
        return state.hexdigest() == spot.shard.sha256

    def part_files(self, spot: Spot) -> Callable[[], PartFile]:
        """Makes part_files of the shard, in any thread: one at a time at its very spot, more of them elsewhere."""
        inside, lock = list[PartFile](), threading.Lock()

        def part_file() -> PartFile:
            with lock:
                if inside and not inside[-1].sealed:
                    return PartFile(self.folder.parent / "shards")
                inside.append(
                    PartFile(location=(self._files[spot.file], spot.offset), write_lock=self._write_locks[spot.file])
                )
                return inside[-1]

        return part_file

    def keep(self, spot: Spot, whole: PartialDownload) -> None:
        """The checked shard that one of its part_files has become."""
        whole.write_to(self._files[spot.file], spot.offset)
        os.utime(self.folder)

    def write(self, spot: Spot, data: Bytes) -> None:
        """Write a checked shard."""
        write(self._files[spot.file], spot.offset, data)
        os.utime(self.folder)

    def repeat(self, spot: Spot, others: Iterable[Spot]) -> None:
        """Copy a shard at `spot` to the other spots where it belongs."""
        for other in others:
            for at in range(0, spot.shard.size, _READ):
                data = os.pread(self._files[spot.file].fileno(), min(_READ, spot.shard.size - at), spot.offset + at)
                write(self._files[other.file], other.offset + at, data)

    def __enter__(self) -> "Assembly":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()


def _reserve(handle: int, size: int) -> None:
    """Reserve the space at once: writing then takes two fifths less CPU, and no other process fills the disk meanwhile.
    A disk that cannot, or is full, reserves nothing. `os.posix_fallocate` would write every block of such a disk."""
    if size and hasattr(_LIBC, "fallocate"):
        _LIBC.fallocate(handle, 0, ctypes.c_int64(0), ctypes.c_int64(size))


KEPT_VERSIONS = 5
_PARTS = ".parts"
_VERSION = re.compile(r"[0-9a-f]{64}")
_LOCK_SECONDS = 3600.0
_ABANDONED_SECONDS = 86_400.0
_CLOCK_SECONDS = _IDLE_SECONDS = 3600.0


class WeightCache:
    """Weights under `folder`; several processes may share it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shards = folder / "shards"
        with explained(f"make the weights cache {folder}", "choose another"):
            self.shards.mkdir(parents=True, exist_ok=True)

    def version(self, digest: bytes) -> Path:
        return self.folder / digest.hex()

    def locked(self, digest: bytes) -> AbstractContextManager[None]:
        """Let one process fetch a version at a time; the others wait and find it there."""
        name = f".lock-{digest[0]:02x}"
        return locked(self.folder / name, "another process that fetches the same weights", _LOCK_SECONDS)

    def is_intact(self, manifest: Manifest) -> bool:
        """Return whether the version's folder holds exactly the manifest's files with the right hashes; reads
        everything."""
        folder, names = self.version(manifest.digest), {file.name for file in manifest.files}
        try:
            if not folder.is_dir() or {path.name for path in folder.iterdir()} != names:
                return False
            return all(has_its_shards(folder / file.name, file) for file in manifest.files)
        except OSError:  # another process removes it
            return False

    def touch(self, digest: bytes) -> None:
        """Mark a version that is here as used now, so that no process removes it."""
        with suppress(FileNotFoundError):
            os.utime(self.version(digest))

    def manifest(self, digest: bytes) -> Manifest | None:
        """Return the stored manifest of a complete version; its digest is checked, so a damaged one counts as none."""
        try:
            manifest = Manifest.model_validate_json((self.folder / f"{digest.hex()}.json").read_bytes())
        except (OSError, ValidationError):
            return None
        return manifest if manifest.digest == digest else None

    def assembly(self, manifest: Manifest) -> Assembly:
        """Open the version's files where the next process finds what was fetched; only while it is `locked`."""
        folder = self._parts(manifest.digest)
        try:
            return Assembly(folder, manifest.files)
        except FileExistsError:
            _remove(folder)
            return Assembly(folder, manifest.files)

    def _parts(self, digest: bytes) -> Path:
        return self.folder / f".{digest.hex()}{_PARTS}"

    def assembled_bytes(self, digest: bytes) -> int:
        """Return how many bytes of the version's assembly are on the disk."""
        parts, total = self._parts(digest), 0
        with suppress(OSError):
            total = sum(path.lstat().st_blocks * 512 for path in parts.iterdir())
        return total

    def keep_shard(self, shard: Shard, whole: PartialDownload) -> None:
        """Keep a checked shard that was fetched into a `part_file`."""
        whole.keep(self.shards / shard.sha256)

    def part_file(self) -> PartFile:
        return PartFile(self.shards)

    def store_shard(self, shard: Shard, data: bytes) -> None:
        part = self.part_file()
        part.append(data)
        part.keep(self.shards / shard.sha256)

    def read_shard(self, shard: Shard, elsewhere: Mapping[str, tuple[Path, int]]) -> bytes | None:
        """Return the shard's bytes from a loose file or a complete version (`find_shards`), or None; never wrong
        bytes."""
        loose = self.shards / shard.sha256
        path, offset = elsewhere.get(shard.sha256, (loose, 0))
        for place, start in ((loose, 0), (path, offset)):
            try:
                if not place.is_file():  # a pipe would be waited for without end
                    continue
                with place.open("rb") as file:
                    file.seek(start)
                    data = file.read(shard.size)
            except OSError:
                continue
            if len(data) == shard.size and hashlib.sha256(data).hexdigest() == shard.sha256:
                return data
        _remove(loose)
        return None

    def copy_shard(self, shard: Shard, elsewhere: Mapping[str, tuple[Path, int]], out: BinaryIO) -> bool:
        """Append the shard to `out`, like `read_shard`; return whether it was found. Raises OSError if `out` refuses
        it."""
        loose, begin = self.shards / shard.sha256, out.tell()
        for place, start in ((loose, 0), elsewhere.get(shard.sha256, (loose, 0))):
            if _pieces(place, start, shard, out):
                return True
            out.seek(begin)
            out.truncate()
        return False

    def find_shards(self) -> dict[str, tuple[Path, int]]:
        """Return where complete versions hold each shard: SHA-256 → (file, offset). Unchecked."""
        locations: dict[str, tuple[Path, int]] = {}
        for digest in self.versions():
            manifest = self.manifest(digest)
            for file in manifest.files if manifest else ():
                offset = 0
                for shard in file.shards:
                    locations[shard.sha256] = (self.version(digest) / file.name, offset)
                    offset += shard.size
        return locations

    def install(self, manifest: Manifest, fill: Callable[[Path], None]) -> None:
        """Make the folder that `fill` writes the version's, atomically; its loose shards are deleted."""
        write_folder(self.version(manifest.digest), fill)
        self._installed(manifest)

    def complete(self, manifest: Manifest) -> None:
        """Make a complete assembly the version's folder."""
        put_folder(self._parts(manifest.digest), self.version(manifest.digest))
        self._installed(manifest)

    def remember(self, manifest: Manifest) -> None:
        """Write the manifest of a complete version, if a process died before it could."""
        if self.manifest(manifest.digest) is None:
            write_atomic(self.folder / f"{manifest.digest.hex()}.json", manifest.canonical())

    def _installed(self, manifest: Manifest) -> None:
        write_atomic(self.folder / f"{manifest.digest.hex()}.json", manifest.canonical())
        _remove(self._parts(manifest.digest))
        self.forget(manifest.shards())

    def forget(self, shards: Iterable[Shard]) -> None:
        """Remove loose shards."""
        for shard in shards:
            _remove(self.shards / shard.sha256)

    def make_room(self, needed: Iterable[Shard], assembled: bytes = b"") -> None:
        """Remove loose shards that are not `needed`, and all assemblies but that of the version `assembled`, if they
        are older than an hour: fetches that never succeed would fill the disk."""
        names, old = {shard.sha256 for shard in needed}, time.time() - _IDLE_SECONDS
        names.add(self._parts(assembled).name)
        for path in (*self.shards.iterdir(), *self.folder.glob(f".*{_PARTS}")):
            if path.name not in names and _modified(path) < old:
                _remove(path)

    def sweep(self, digest: bytes) -> None:
        """Remove what a dead process left of this version, and what is in its way; only while it is `locked`."""
        for path in self.folder.glob(f".{digest.hex()}.*"):
            if path != self._parts(digest):
                _remove(path)
        version, manifest = self.version(digest), self.folder / f"{digest.hex()}.json"
        for path, right in ((version, version.is_dir()), (manifest, manifest.is_file())):
            if path.is_symlink() or not right:
                _remove(path)

    def versions(self) -> list[bytes]:
        """Return the digests of the complete versions, longest unused first."""
        found = [path for path in self.folder.iterdir() if path.is_dir() and _VERSION.fullmatch(path.name)]
        return [bytes.fromhex(path.name) for path in sorted(found, key=_modified)]

    def prune(self, keep: int = KEPT_VERSIONS, used: bytes = b"") -> None:
        """Remove all but the `keep` versions used last, and what fetches left that were abandoned a day ago. `used`
        counts as used last, whatever the clock says."""
        versions = sorted(self.versions(), key=lambda digest: digest == used)
        for digest in versions[: max(0, len(versions) - keep)]:
            _remove(self.folder / f"{digest.hex()}.json")
            _remove(self.version(digest))
        old = time.time() - _ABANDONED_SECONDS
        for path in (*self.shards.iterdir(), *self.folder.glob(".*.*")):
            if _modified(path) < old:
                _remove(path)


def _remove(path: Path) -> None:
    """Remove a file, link or folder as far as possible; another process may be removing it too."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _modified(path: Path) -> float:
    """When it was last changed, 0 if unknown. A time in the future was written before the clock was set back; it would
    keep a version for as long."""
    try:
        stamp = path.stat().st_mtime
    except OSError:
        return 0.0
    return stamp if stamp < time.time() + _CLOCK_SECONDS else 0.0


def has_its_shards(path: Path, file: WeightFile) -> bool:
    """Return whether `path` is a plain file of that size, and every part of it has its shard's hash. Raises OSError."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size != file.size:
        return False
    with path.open("rb", buffering=0) as found:
        return all(_hash(found, shard.size) == shard.sha256 for shard in file.shards)


def _pieces(path: Path, start: int, shard: Shard, out: BinaryIO) -> bool:
    """Write a shard's bytes in pieces, and return whether they were right. Allocating memory for a whole shard takes
    longer than reading, hashing and writing it."""
    state, left = hashlib.sha256(), shard.size
    try:
        if not path.is_file():
            return False
        file = path.open("rb", buffering=0)
    except OSError:
        return False
    with file:
        file.seek(start)
        while left and (data := _read(file, min(_READ, left))):
            state.update(data)
            out.write(data)
            left -= len(data)
    return not left and state.hexdigest() == shard.sha256


def _read(file: BinaryIO, most: int) -> bytes:
    """Empty where the disk has lost it."""
    try:
        return file.read(most)
    except OSError:
        return b""


def _hash(file: BinaryIO, size: int) -> str:
    """SHA-256 of the next bytes of a file."""
    state = hashlib.sha256()
    while size and (data := file.read(min(_READ, size))):
        state.update(data)
        size -= len(data)
    return state.hexdigest()
