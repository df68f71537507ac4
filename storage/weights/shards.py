"""Cut a folder of weights into shards of one size, each named by its SHA-256."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from protocol.errors import ConfigError
from storage.weights.manifest import MAX_SHARD_BYTES, Shard, WeightFile

SHARD_BYTES = 32 << 20
_READ = 256 << 10
DELTA_SHARD_BYTES = 1 << 20
"""Of deltas, which many pass on to each other at once: a wrong one is found out sooner."""


def weight_files(folder: Path, shard_size: int = SHARD_BYTES) -> tuple[WeightFile, ...]:
    """The folder's files, sorted by name in lower case, and their shards of `shard_size` bytes (the last may be short).

    Raises ConfigError if the folder is missing, empty, or holds anything but plain files with plain names.
    """
    if not 1 <= shard_size <= MAX_SHARD_BYTES:
        raise ConfigError(f"a shard of {shard_size} bytes", f"choose 1 to {MAX_SHARD_BYTES}")
    if not folder.is_dir():
        raise ConfigError(f"no weights folder {folder}", "check the path")
    paths = sorted(folder.iterdir(), key=lambda path: path.name.lower())
    if not paths:
        raise ConfigError(f"the weights folder {folder} is empty", "save a model into it first")
    files = []
    for path in paths:
        if path.is_symlink() or not path.is_file():
            raise ConfigError(f"{path} is not a plain file", "weights folders hold plain files only")
        try:
            files.append(_weight_file(path, shard_size))
        except ValueError as error:
            raise ConfigError(f"{path} cannot be published: {error}", "rename it") from None
    return tuple(files)


def _weight_file(path: Path, shard_size: int) -> WeightFile:
    whole, size, shards = hashlib.sha256(), 0, []
    with path.open("rb", buffering=0) as file:
        while shard := _next_shard(file, shard_size, whole):
            shards.append(shard)
            size += shard.size
    return WeightFile(name=path.name, size=size, sha256=whole.hexdigest(), shards=tuple(shards))


def _next_shard(file: BinaryIO, most: int, whole: "hashlib._Hash") -> Shard | None:
    """What the next bytes are, which `whole` is told of too; None at the end. A little at a time stays in the
    processor's cache."""
    state, size = hashlib.sha256(), 0
    while size < most and (data := file.read(min(_READ, most - size))):
        whole.update(data)
        state.update(data)
        size += len(data)
    return Shard(sha256=state.hexdigest(), size=size) if size else None


def read_shards(path: Path, shard_size: int) -> Iterator[bytes]:
    """The shards' bytes of one file, in order."""
    with path.open("rb") as file:
        while data := file.read(shard_size):
            yield data
