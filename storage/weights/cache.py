"""The cache of a node's weights: folders by manifest digest, and what an unfinished fetch has brought.

`<cache>/<digest>/` holds a complete version, `<cache>/<digest>.json` its manifest, `<cache>/shards/<sha256>` loose
shards. Shards of complete versions are found inside their files, so nothing is stored twice. A full fetch assembles the
files in place: every shard is written at its offset, and nothing is copied once it is here.
"""

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
from typing import BinaryIO

from pydantic import ValidationError

from protocol.files import explained, locked, put_folder, write_atomic, write_folder
from storage.partial import PartFile, PartialDownload, write
from storage.weights.manifest import Manifest, Shard, WeightFile

_READ = 256 << 10
# SHA-256 of a shard → a file that holds it, and its offset there.
Locations = Mapping[str, tuple[Path, int]]


@dataclass(frozen=True)
class Spot:
    """Where a shard belongs: the file's number, and the offset of its first byte."""

    shard: Shard
    file: int
    offset: int


def spots(files: Iterable[WeightFile]) -> dict[str, list[Spot]]:
    """Return all spots by the shard's SHA-256, in order."""
    spots: dict[str, list[Spot]] = {}
    for number, file in enumerate(files):
        offset = 0
        for shard in file.shards:
            spots.setdefault(shard.sha256, []).append(Spot(shard, number, offset))
            offset += shard.size
    return spots


class Assembly(ExitStack):
    """The `files` of one version in `folder`, where a killed process may have left some of their bytes. For one process
    at a time; leaving its context closes the files. Raises OSError; FileExistsError if something else is in the way."""

    def __init__(self, folder: Path, files: tuple[WeightFile, ...]) -> None:
        super().__init__()
        self.folder, self._left = folder, set[int]()
        folder.mkdir(exist_ok=True)
        names = {file.name for file in files}
        if not stat.S_ISDIR(folder.lstat().st_mode) or any(path.name not in names for path in folder.iterdir()):
            raise FileExistsError(f"{folder} holds something else")
        os.utime(folder)
        with ExitStack() as opened:
            self._files = [opened.enter_context(self._file(number, file)) for number, file in enumerate(files)]
            self.enter_context(opened.pop_all())

    def _file(self, number: int, file: WeightFile) -> BinaryIO:
        path = self.folder / file.name
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(path.lstat().st_mode):
                raise FileExistsError(f"{path} is not a plain file")
            self._left.add(number)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        os.ftruncate(handle, file.size)
        return os.fdopen(handle, "rb+", buffering=0)

    def has(self, spot: Spot) -> bool:
        """Return whether the shard is there; reads it if an earlier process left anything."""
        return spot.file in self._left and _copy(self._files[spot.file], spot.offset, spot.shard)

    def part_files(self, spot: Spot) -> Callable[[], PartFile]:
        """Return what makes part files of the shard, in any thread: one at a time at its very spot, more elsewhere."""
        at_spot, lock = list[PartFile](), threading.Lock()

        def part_file() -> PartFile:
            with lock:
                if at_spot and not at_spot[-1].sealed:
                    return PartFile(self.folder.parent / "shards")
                at_spot.append(PartFile(location=(self._files[spot.file], spot.offset)))
                return at_spot[-1]

        return part_file

    def copy(self, spot: Spot, cache: "WeightCache", locations: Locations) -> bool:
        """Copy the shard from the cache; return whether it was there."""
        os.utime(self.folder)
        return cache.copy_shard(spot.shard, locations, self._files[spot.file], spot.offset)

    def keep(self, spot: Spot, whole: PartialDownload) -> None:
        """Keep the checked shard that was fetched into one of its part files."""
        whole.part.write_to(self._files[spot.file], spot.offset)
        os.utime(self.folder)

    def repeat(self, spot: Spot, others: Iterable[Spot]) -> None:
        """Copy a shard at `spot` to the other spots where it belongs."""
        for other in others:
            _copy(self._files[spot.file], spot.offset, spot.shard, self._files[other.file], other.offset)


KEPT_VERSIONS = 5
_PARTS = ".parts"
_VERSION = re.compile(r"[0-9a-f]{64}")
_LOCK_SECONDS = 3600.0
_ABANDONED_SECONDS = 86_400.0
_CLOCK_SECONDS = _IDLE_SECONDS = 3600.0


def manifest_of(version: Path) -> Manifest | None:
    """Return the manifest of the complete version in a folder; None for a folder that no fetch made, or if the manifest
    is damaged."""
    if not _VERSION.fullmatch(version.name):
        return None
    try:
        manifest = Manifest.model_validate_json(version.with_suffix(".json").read_bytes())
    except (OSError, ValidationError):
        return None
    return manifest if manifest.digest.hex() == version.name else None


class WeightCache:
    """Weights under `folder`; several processes may share it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shards = folder / "shards"
        with explained(f"make the weights cache {folder}", "choose another"):
            self.shards.mkdir(parents=True, exist_ok=True)

    def version(self, digest: bytes) -> Path:
        return self.folder / digest.hex()

    def _manifest(self, digest: bytes) -> Path:
        return self.folder / f"{digest.hex()}.json"

    def _parts(self, digest: bytes) -> Path:
        return self.folder / f".{digest.hex()}{_PARTS}"

    def locked(self, digest: bytes) -> AbstractContextManager[None]:
        """Let one process fetch a version at a time; the others wait and find it there."""
        name = f".lock-{digest[0]:02x}"
        return locked(self.folder / name, "another process that fetches the same weights", _LOCK_SECONDS)

    # Versions

    def is_intact(self, manifest: Manifest) -> bool:
        """Return whether the version's folder holds exactly the manifest's files with the right hashes; reads all."""
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
        return manifest_of(self.version(digest))

    def remember(self, manifest: Manifest) -> None:
        """Write the manifest of a complete version, unless it is there."""
        if self.manifest(manifest.digest) is None:
            write_atomic(self._manifest(manifest.digest), manifest.canonical())

    def assembly(self, manifest: Manifest) -> Assembly:
        """Open the version's files where the next process finds what was fetched; only while it is `locked`."""
        folder = self._parts(manifest.digest)
        try:
            return Assembly(folder, manifest.files)
        except FileExistsError:
            _remove(folder)
            return Assembly(folder, manifest.files)

    def assembled_bytes(self, digest: bytes) -> int:
        """Return how many bytes of the version's assembly are on the disk."""
        with suppress(OSError):
            return sum(path.lstat().st_blocks * 512 for path in self._parts(digest).iterdir())
        return 0

    def install(self, manifest: Manifest, fill: Callable[[Path], None] | None = None) -> None:
        """Make the folder that `fill` writes, or the assembly, the version's, atomically; drop its loose shards."""
        version, parts = self.version(manifest.digest), self._parts(manifest.digest)
        if fill is None:
            put_folder(parts, version)
        else:
            write_folder(version, fill)
        self.remember(manifest)
        _remove(parts)
        self.forget(manifest.shards())

    def sweep(self, digest: bytes) -> None:
        """Remove what a dead process left of this version, and what is in its way; only while it is `locked`."""
        for path in self.folder.glob(f".{digest.hex()}.*"):
            if path != self._parts(digest):
                _remove(path)
        version, manifest = self.version(digest), self._manifest(digest)
        for path, right in ((version, version.is_dir()), (manifest, manifest.is_file())):
            if path.is_symlink() or not right:
                _remove(path)

    def versions(self) -> list[bytes]:
        """Return the digests of the complete versions, longest unused first."""
        versions = [path for path in self.folder.iterdir() if path.is_dir() and _VERSION.fullmatch(path.name)]
        return [bytes.fromhex(path.name) for path in sorted(versions, key=_modified)]

    def prune(self, keep: int = KEPT_VERSIONS, used: bytes = b"") -> None:
        """Remove all but the `keep` versions used last, and what fetches left that were abandoned a day ago. `used`
        counts as used last, whatever the clock says."""
        versions = sorted(self.versions(), key=lambda digest: digest == used)
        for digest in versions[: max(0, len(versions) - keep)]:
            _remove(self._manifest(digest))
            _remove(self.version(digest))
        old = time.time() - _ABANDONED_SECONDS
        for path in (*self.shards.iterdir(), *self.folder.glob(".*.*")):
            if _modified(path) < old:
                _remove(path)

    # Shards

    def part_file(self) -> PartFile:
        return PartFile(self.shards)

    def keep_shard(self, shard: Shard, whole: PartialDownload) -> None:
        """Keep a checked shard that was fetched into a `part_file`."""
        whole.part.keep(self.shards / shard.sha256)

    def find_shards(self) -> dict[str, tuple[Path, int]]:
        """Return where complete versions hold each shard. Unchecked."""
        locations: dict[str, tuple[Path, int]] = {}
        for digest in self.versions():
            manifest = self.manifest(digest)
            for file in manifest.files if manifest else ():
                offset = 0
                for shard in file.shards:
                    locations[shard.sha256] = (self.version(digest) / file.name, offset)
                    offset += shard.size
        return locations

    def copy_shard(self, shard: Shard, elsewhere: Locations, out: BinaryIO | None = None, start: int = 0) -> bool:
        """Write the shard to `out`, if that is given, from `start` on; return whether it was found, as a loose file or
        `elsewhere`. Raises OSError if `out` refuses it."""
        loose = self.shards / shard.sha256
        for path, offset in ((loose, 0), elsewhere.get(shard.sha256, (loose, 0))):
            try:
                if not path.is_file():  # a pipe would be waited for without end
                    continue
                file = path.open("rb", buffering=0)
            except OSError:
                continue
            with file:
                if _copy(file, offset, shard, out, start):
                    return True
        _remove(loose)
        return False

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


def has_its_shards(path: Path, file: WeightFile) -> bool:
    """Return whether `path` is a plain file of that size, and every part of it has its shard's hash. Raises OSError."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size != file.size:
        return False
    offset = 0
    with path.open("rb", buffering=0) as holder:
        for shard in file.shards:
            if not _copy(holder, offset, shard):
                return False
            offset += shard.size
    return True


def _copy(source: BinaryIO, offset: int, shard: Shard, out: BinaryIO | None = None, start: int = 0) -> bool:
    """Return whether the shard is in `source` at `offset`; copy it to `out`, if that is given, from `start` on. It goes
    in pieces: allocating memory for a whole shard takes longer than reading, hashing and writing it."""
    state, done = hashlib.sha256(), 0
    while done < shard.size:
        try:
            data = os.pread(source.fileno(), min(_READ, shard.size - done), offset + done)
        except OSError:
            return False
        if not data:
            return False
        state.update(data)
        if out is not None:
            write(out, start + done, data)
        done += len(data)
    return state.hexdigest() == shard.sha256


def _remove(path: Path) -> None:
    """Remove a file, link or folder as far as possible; another process may be removing it too."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _modified(path: Path) -> float:
    """Return when it was last changed, 0 if unknown. A time in the future was written before the clock was set back; it
    would keep a version for as long."""
    try:
        stamp = path.stat().st_mtime
    except OSError:
        return 0.0
    return stamp if stamp < time.time() + _CLOCK_SECONDS else 0.0
