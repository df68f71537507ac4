"""The cache of a node's weights: folders by manifest digest, and what an unfinished fetch has brought.

`<cache>/<digest>/` holds a complete version, `<cache>/<digest>.json` its manifest, `<cache>/.<digest>.parts/` the files
and deltas that a fetch assembles in place: every shard is written at its offset. Shards of complete versions are found
inside their files, so nothing is stored twice.
"""

import hashlib
import os
import re
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from protocol.files import allow_files, explained, locked, put_folder, write_atomic, write_folder
from storage.partial import PartFile, PartialDownload, write
from storage.weights.manifest import Manifest, Shard, WeightFile

_READ = 256 << 10
_SPARE_FILES = 1024  # of the rest of the process: a long way of deltas has thousands of files
# SHA-256 of a shard → a file that holds it, and its offset there.
Locations = Mapping[str, tuple[Path, int]]


@dataclass(frozen=True)
class Spot:
    """Where a shard belongs: the file's name, and the offset of its first byte."""

    shard: Shard
    file: str
    offset: int


def spots(files: Mapping[str, Sequence[Shard]]) -> dict[str, list[Spot]]:
    """Return all spots in files of these shards, by the shard's SHA-256, in order."""
    spots: dict[str, list[Spot]] = {}
    for name, shards in files.items():
        offset = 0
        for shard in shards:
            spots.setdefault(shard.sha256, []).append(Spot(shard, name, offset))
            offset += shard.size
    return spots


def shards_of(manifest: Manifest) -> dict[str, Sequence[Shard]]:
    """Return the shards of each file, by its name."""
    return {file.name: file.shards for file in manifest.files}


class Assembly(ExitStack):
    """Files in `folder`, by name, while their shards come; a killed process may have left some of their bytes. For one
    process at a time; leaving its context closes the files. Raises OSError."""

    def __init__(self, folder: Path, files: Mapping[str, Sequence[Shard]]) -> None:
        super().__init__()
        self.folder, self._left = folder, set[str]()
        if folder.is_symlink() or not folder.is_dir():
            _remove(folder)
        folder.mkdir(exist_ok=True)
        for path in folder.iterdir():
            if not stat.S_ISREG(path.lstat().st_mode):
                _remove(path)
        os.utime(folder)
        allow_files(len(files) + _SPARE_FILES)
        with ExitStack() as opened:
            self._files = {name: opened.enter_context(self._file(name, shards)) for name, shards in files.items()}
            self.enter_context(opened.pop_all())

    def _file(self, name: str, shards: Sequence[Shard]) -> BinaryIO:
        path = self.folder / name
        if path.exists():
            self._left.add(name)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        os.ftruncate(handle, sum(shard.size for shard in shards))
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
                    return PartFile(self.folder.parent / PART_FILES)
                at_spot.append(PartFile(location=(self._files[spot.file], spot.offset)))
                return at_spot[-1]

        return part_file

    def copy(self, spot: Spot, locations: Locations) -> bool:
        """Copy the shard from a complete version; return whether it was there. Raises OSError if the disk is full."""
        os.utime(self.folder)
        path, offset = locations.get(spot.shard.sha256, (self.folder, 0))
        try:
            if not path.is_file():  # a pipe would be waited for without end
                return False
            file = path.open("rb", buffering=0)
        except OSError:
            return False
        with file:
            return _copy(file, offset, spot.shard, self._files[spot.file], spot.offset)

    def keep(self, spot: Spot, whole: PartialDownload) -> None:
        """Keep the checked shard that was fetched into one of its part files."""
        whole.part.write_to(self._files[spot.file], spot.offset)
        os.utime(self.folder)

    def repeat(self, spot: Spot, others: Iterable[Spot]) -> None:
        """Copy a shard at `spot` to the other spots where it belongs."""
        for other in others:
            _copy(self._files[spot.file], spot.offset, spot.shard, self._files[other.file], other.offset)


KEPT_VERSIONS = 5
PART_FILES, _PARTS = "shards", ".parts"
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
        with explained(f"make the weights cache {folder}", "choose another"):
            (folder / PART_FILES).mkdir(parents=True, exist_ok=True)

    def version(self, digest: bytes) -> Path:
        return self.folder / digest.hex()

    def _manifest(self, digest: bytes) -> Path:
        return self.folder / f"{digest.hex()}.json"

    def parts(self, digest: bytes) -> Path:
        """Return the folder where the version is assembled."""
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

    def assembled_bytes(self, digest: bytes, files: Iterable[str]) -> int:
        """Return how many bytes of these files of the version's assembly are on the disk."""
        paths = [self.parts(digest) / name for name in files]
        with suppress(OSError):
            return sum(path.lstat().st_blocks * 512 for path in paths if path.exists())
        return 0

    def install(self, manifest: Manifest, fill: Callable[[Path], None] | None = None) -> None:
        """Make the folder that `fill` writes, or the assembly, the version's, atomically."""
        version, parts = self.version(manifest.digest), self.parts(manifest.digest)
        if fill is None:
            names = {file.name for file in manifest.files}
            for path in parts.iterdir():  # of another plan that was tried before
                if path.name not in names:
                    _remove(path)
            put_folder(parts, version)
        else:
            write_folder(version, fill)
        self.remember(manifest)
        _remove(parts)

    def sweep(self, digest: bytes) -> None:
        """Remove what a dead process left of this version, and what is in its way; only while it is `locked`."""
        for path in self.folder.glob(f".{digest.hex()}.*"):
            if path != self.parts(digest):
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
        for path in (*(self.folder / PART_FILES).iterdir(), *self.folder.glob(".*.*")):
            if _modified(path) < old:
                _remove(path)

    def find_shards(self) -> dict[str, tuple[Path, int]]:
        """Return where complete versions hold each shard. Unchecked."""
        locations: dict[str, tuple[Path, int]] = {}
        for digest in self.versions():
            manifest = self.manifest(digest)
            for all_spots in spots(shards_of(manifest)).values() if manifest else ():
                locations[all_spots[0].shard.sha256] = self.version(digest) / all_spots[0].file, all_spots[0].offset
        return locations

    def make_room(self, digest: bytes) -> None:
        """Remove assemblies of other versions than this, and part files, if they are older than an hour: fetches that
        never succeed would fill the disk."""
        old = time.time() - _IDLE_SECONDS
        for path in (*(self.folder / PART_FILES).iterdir(), *self.folder.glob(f".*{_PARTS}")):
            if path != self.parts(digest) and _modified(path) < old:
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
    state, copied = hashlib.sha256(), 0
    while copied < shard.size:
        try:
            data = os.pread(source.fileno(), min(_READ, shard.size - copied), offset + copied)
        except OSError:
            return False
        if not data:
            return False
        state.update(data)
        if out is not None:
            write(out, start + copied, data)
        copied += len(data)
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
