"""The cache of a node's weights: folders by manifest digest, and loose shards of a fetch under way.

`<cache>/<digest>/` holds a complete version, `<cache>/<digest>.json` its manifest, `<cache>/shards/<sha256>` loose
shards. Shards of complete versions are found inside their files, so nothing is stored twice.
"""

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path

from pydantic import ValidationError

from protocol.files import explained, file_sha256, write_atomic
from protocol.folders import write_folder
from protocol.locks import locked
from storage.weights.manifest import Manifest, Shard

KEPT_VERSIONS = 5
_VERSION = re.compile(r"[0-9a-f]{64}")
_LOCK_SECONDS = 3600.0
_ABANDONED_SECONDS = 86_400.0


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
        """Whether the version's folder holds exactly the manifest's files with the right hashes; reads everything."""
        folder = self.version(manifest.digest)
        if not folder.is_dir() or {path.name for path in folder.iterdir()} != {file.name for file in manifest.files}:
            return False
        return all(_file_hash(folder / file.name, file.size) == file.sha256 for file in manifest.files)

    def manifest(self, digest: bytes) -> Manifest | None:
        """The stored manifest of a complete version; its digest is checked, so a damaged one counts as none."""
        try:
            manifest = Manifest.model_validate_json((self.folder / f"{digest.hex()}.json").read_bytes())
        except (OSError, ValidationError):
            return None
        return manifest if manifest.digest == digest else None

    def store_shard(self, shard: Shard, data: bytes) -> None:
        draft = self.shards / f".{shard.sha256}.{os.getpid()}"
        draft.write_bytes(data)
        draft.replace(self.shards / shard.sha256)

    def read_shard(self, shard: Shard, elsewhere: dict[str, tuple[Path, int]]) -> bytes | None:
        """The shard's bytes from a loose file or a complete version (`find_shards`), or None; never wrong bytes."""
        loose = self.shards / shard.sha256
        path, offset = elsewhere.get(shard.sha256, (loose, 0))
        for place, start in ((loose, 0), (path, offset)):
            try:
                with place.open("rb") as file:
                    file.seek(start)
                    data = file.read(shard.size)
            except OSError:
                continue
            if hashlib.sha256(data).hexdigest() == shard.sha256:
                return data
        loose.unlink(missing_ok=True)
        return None

    def find_shards(self) -> dict[str, tuple[Path, int]]:
        """Where complete versions hold each shard: SHA-256 → (file, offset). Unchecked."""
        places: dict[str, tuple[Path, int]] = {}
        for digest in self.versions():
            manifest = self.manifest(digest)
            for file in manifest.files if manifest else ():
                offset = 0
                for shard in file.shards:
                    places[shard.sha256] = (self.version(digest) / file.name, offset)
                    offset += shard.size
        return places

    def install(self, manifest: Manifest, fill: Callable[[Path], None]) -> None:
        """Make the folder into which `fill` writes the version's, at once and for good; loose shards of it go."""
        write_folder(self.version(manifest.digest), fill)
        write_atomic(self.folder / f"{manifest.digest.hex()}.json", manifest.canonical())
        self.forget(manifest.shards())

    def forget(self, shards: Iterable[Shard]) -> None:
        """Remove loose shards."""
        for shard in shards:
            (self.shards / shard.sha256).unlink(missing_ok=True)

    def sweep(self, digest: bytes) -> None:
        """Remove what a process that died left of this version; only for whoever has it `locked`."""
        for path in self.folder.glob(f".{digest.hex()}.*"):
            shutil.rmtree(path, ignore_errors=True)

    def versions(self) -> list[bytes]:
        """Digests of the complete versions, longest unused first."""
        found = [path for path in self.folder.iterdir() if path.is_dir() and _VERSION.fullmatch(path.name)]
        return [bytes.fromhex(path.name) for path in sorted(found, key=_modified)]

    def prune(self, keep: int = KEPT_VERSIONS) -> None:
        """Remove all but the `keep` versions used last, and what a fetch abandoned a day ago left."""
        versions = self.versions()
        for digest in versions[: max(0, len(versions) - keep)]:
            (self.folder / f"{digest.hex()}.json").unlink(missing_ok=True)
            shutil.rmtree(self.version(digest), ignore_errors=True)
        old = time.time() - _ABANDONED_SECONDS
        for path in (*self.shards.iterdir(), *self.folder.glob(".*.*")):
            if _modified(path) < old:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _file_hash(path: Path, size: int) -> str:
    """SHA-256 of a plain file of `size` bytes, empty if it is not one."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size != size:
        return ""
    return file_sha256(path)
