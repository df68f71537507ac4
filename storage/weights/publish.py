"""Publish a policy step: upload the shards that the bucket lacks, then the signed manifest."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from protocol.accounts import LocalAccount
from protocol.curriculum import MASK_FILE
from protocol.encoding import sha256_hex
from protocol.errors import IntegrityError
from protocol.evidence.null_model import StepNullModels
from protocol.files import file_sha256
from storage.keys import object_key
from storage.weights.manifest import (
    DELTA_SHARD_BYTES,
    SHARD_BYTES,
    FileDelta,
    Manifest,
    ManifestScope,
    Shard,
    StepDelta,
    StepWorkers,
    read_shard,
    seal,
    weight_files,
)

if TYPE_CHECKING:
    from storage.weights.delta import MappedFile

UPLOAD_THREADS = 8


class ObjectWriter(Protocol):
    """Where objects are put, by several threads; `storage.s3.Bucket` is one."""

    def put(self, key: str, data: bytes) -> bool: ...


@dataclass(frozen=True)
class EarlierStep:
    """A published step that a delta may lead from: its manifest, and the folder that it was published from."""

    manifest: Manifest
    folder: Path


class OpenFiles:
    """Weight files whose digests are known, for steps that follow one another: a file that the file system calls the
    same is neither compared nor hashed again. For one thread."""

    def __init__(self) -> None:
        self._files: dict[tuple[int, ...], MappedFile] = {}
        self._opened: set[tuple[int, ...]] = set()

    def open(self, path: Path, sha256: str = "") -> "MappedFile":
        """Return a file; one that is not known yet is compared with `sha256`, if that is given. Raises ValueError if it
        is not that safetensors file, OSError."""
        from storage.weights.delta import MappedFile

        info = path.stat()
        key = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)
        if key not in self._files:
            if sha256 and file_sha256(path) != sha256:
                raise ValueError("it is not what was published")
            self._files[key] = MappedFile(path)
        self._opened.add(key)
        return self._files[key]

    def close_others(self) -> None:
        """Close what was not opened since this was called before."""
        self._files = {key: file for key, file in self._files.items() if key in self._opened}
        self._opened = set()


@dataclass(frozen=True)
class PreparedStep:
    """What a step's manifest says, and the deltas' shards by SHA-256."""

    manifest: Manifest
    deltas: dict[str, bytes]


def make_manifest(
    folder: Path,
    scope: ManifestScope,
    step: int,
    parent: bytes | None,
    dtype: str,
    shard_size: int = SHARD_BYTES,
    made_by: StepWorkers | None = None,
    null_models: StepNullModels | None = None,
) -> Manifest:
    """Return the manifest of a folder; `parent`: digest of the step before; `made_by`: its DiLoCo workers, if any."""
    return Manifest(
        made_by=made_by,
        null_models=null_models,
        chain_id=scope.pool.chain_id,
        pools=scope.pool.pools,
        pool=scope.pool.pool,
        step=step,
        parent=parent.hex() if parent else "",
        dtype=dtype,
        files=weight_files(folder, shard_size),
    )


def prepare(
    folder: Path,
    manifest: Manifest,
    bases: Sequence[EarlierStep],
    snapshot: bool = True,
    shard_size: int = DELTA_SHARD_BYTES,
    files: OpenFiles | None = None,
) -> PreparedStep:
    """Return the `manifest` of a folder (`make_manifest`) with a delta from every one of `bases` that has one: all
    files that differ are safetensors files with the same tensors, and all deltas together are smaller than these.

    Without a delta, and if `snapshot` says so, the full shards are to be published as well. Equal folders give equal
    manifests. `files`: those of earlier calls. Raises OSError, MusterError.
    """
    pieces: dict[str, bytes] = {}
    files = files or OpenFiles()
    step_deltas = [_step_delta(folder, manifest, base, shard_size, pieces, files) for base in bases]
    files.close_others()
    deltas = tuple(delta for delta in step_deltas if delta is not None)
    fields = {**dict(manifest), "deltas": deltas, "snapshot": snapshot or not deltas}
    return PreparedStep(Manifest.model_validate(fields), pieces)


def send(
    folder: Path, prepared: PreparedStep, store: ObjectWriter, account: LocalAccount, shard_size: int = SHARD_BYTES
) -> None:
    """Upload a step; what is there already is not sent again.

    Full shards are those of a snapshot, and of a curriculum mask. The manifest goes last: a reader that sees it
    finds every shard. Safe to repeat after a crash. Raises IntegrityError if the folder changed meanwhile, and what the
    store raises.
    """
    manifest = prepared.manifest
    reads: list[tuple[Shard, Callable[[], bytes | None]]] = []
    for delta in manifest.deltas:
        reads += [(shard, partial(prepared.deltas.get, shard.sha256)) for shard in delta.shards]
    # What rests can be looked at without the weights that it goes with.
    for file in (file for file in manifest.files if manifest.snapshot or file.name == MASK_FILE):
        path = folder / file.name
        reads += [(shard, partial(read_shard, path, shard_size, at)) for at, shard in enumerate(file.shards)]

    def put(shard: Shard, read: Callable[[], bytes | None]) -> None:
        try:
            data = read() or b""
        except OSError:
            data = b""
        if len(data) != shard.size:
            raise IntegrityError(f"{folder} changed while it was published", "publish again")
        store.put(shard.key, data)

    with ThreadPoolExecutor(UPLOAD_THREADS) as threads:
        sent = [threads.submit(put, *read) for read in reads]
        try:
            for upload in sent:
                upload.result()
        finally:
            threads.shutdown(cancel_futures=True)
    store.put(object_key("manifests", manifest.digest), seal(manifest, account))


def _step_delta(
    folder: Path, manifest: Manifest, base: EarlierStep, shard_size: int, pieces: dict[str, bytes], files: OpenFiles
) -> StepDelta | None:
    """Return the delta from `base`, None if there is none of use; add its shards to `pieces`."""
    from storage.weights.delta import encode_file

    base_hashes = {file.name: file.sha256 for file in base.manifest.files}
    if set(base_hashes) != {file.name for file in manifest.files}:
        return None
    deltas, own_pieces = list[FileDelta](), dict[str, bytes]()
    for file in manifest.files:
        if file.sha256 == base_hashes[file.name]:
            continue
        try:
            old, new = files.open(base.folder / file.name, base_hashes[file.name]), files.open(folder / file.name)
        except (FileNotFoundError, ValueError):
            return None
        data = encode_file(old, new)
        if data is None:
            return None
        parts = [data[at : at + shard_size] for at in range(0, len(data), shard_size)]
        shards = [Shard(sha256=sha256_hex(part), size=len(part)) for part in parts]
        own_pieces |= {shard.sha256: part for shard, part in zip(shards, parts, strict=True)}
        deltas.append(FileDelta(name=file.name, index=new.index.digest.hex(), shards=tuple(shards)))
    if not deltas:
        return None
    pieces |= own_pieces
    return StepDelta(step=base.manifest.step, parent=base.manifest.digest.hex(), files=tuple(deltas))
