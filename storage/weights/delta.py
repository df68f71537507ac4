"""Deltas of safetensors files: made from two versions of a file, applied to a copy of the first, tensor by tensor.

The codec (`protocol/delta/`) is imported only when there is work for it, because it brings a compiler.
"""

import mmap
import os
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from protocol.encoding import parse_json
from protocol.errors import IntegrityError
from storage.weights.manifest import HASHING_THREADS

if TYPE_CHECKING:
    from protocol.delta.delta import DeltaReader, TensorEntry, WeightIndex


MAX_HEADER_BYTES = 16 << 20
MAX_TENSORS = 1 << 18
_MAX_DIMENSIONS = 32


@dataclass(frozen=True)
class TensorSpan:
    """A tensor's name, safetensors' name of its type, its shape, and its bytes' place in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def tensor_spans(path: Path) -> list[TensorSpan]:
    """Return every tensor of the file, in the order of their bytes, which fill the file behind the header without gaps.
    Raises ValueError if the file is not like that, OSError."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = file.read(8)
        header = struct.unpack("<Q", length)[0] if len(length) == 8 else 0
        if not 2 <= header <= min(MAX_HEADER_BYTES, size - 8):
            raise ValueError("its header does not fit")
        fields = parse_json(file.read(header))
    if not isinstance(fields, dict) or len(fields) > MAX_TENSORS:
        raise ValueError("its header is not one of safetensors")
    spans = [_span(name, entry, 8 + header) for name, entry in fields.items() if name != "__metadata__"]
    spans.sort(key=lambda span: (span.start, span.end))
    ends = [8 + header, *(span.end for span in spans)]
    if [span.start for span in spans] != ends[:-1] or ends[-1] != size:
        raise ValueError("its tensors do not fill the file")
    return spans


def _span(name: str, entry: Any, data: int) -> TensorSpan:
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(start), int(end)]} if (
            0 <= start <= end < 1 << 53
            and len(shape) <= _MAX_DIMENSIONS
            and all(type(length) is int and 0 <= length < 1 << 53 for length in shape)
        ):
            return TensorSpan(name, dtype, tuple(shape), data + start, data + end)
    raise ValueError("its header is not one of safetensors")


# Deltas


Bytes = NDArray[np.uint8]


class MappedFile:
    """A safetensors file's tensors, read from the disk as they are needed; their hashes are computed once. Raises
    ValueError for any other file, OSError."""

    def __init__(self, path: Path) -> None:
        self.path, self.spans = path, tensor_spans(path)
        self.tensors, self.size = _tensors(path, self.spans), path.stat().st_size
        start = min((span.start for span in self.spans), default=0)
        with path.open("rb") as file:
            self.header = file.read(start)

    @cached_property
    def index(self) -> "WeightIndex":
        return _index(self.spans, self.tensors)


def encode_file(base: MappedFile, new: MappedFile) -> bytes | None:
    """Return the delta that leads from one version of a file to `new`; None if they do not have the same tensors at the
    same places, or no delta is shorter than the file. It was applied once, and gives what it should. Raises MusterError
    if a file changes meanwhile."""
    from protocol.delta.delta import DeltaReader, encode_delta

    if base.header != new.header or base.spans != new.spans:
        return None
    with ThreadPoolExecutor(HASHING_THREADS) as threads:
        delta = encode_delta(base.tensors, base.index, new.tensors, new.index, threads.map)
        if len(delta) >= new.size:
            return None
        reader = DeltaReader(delta, base.index, new.index.digest)
        for _ in threads.map(lambda entry: reader.tensor(entry, base.tensors[entry.name]), _changed(reader).values()):
            pass
    return delta


def apply_file(path: Path, deltas: Sequence[tuple[bytes, Path]]) -> None:
    """Turn the file at `path`, which holds the base, into what the deltas lead to one after another: each is the
    digest of the index that it leads to, and the file that holds it.

    A tensor goes through all deltas before the next does, and each result has the hash that its delta names, or
    IntegrityError is raised; then the file is of no use. Raises OSError.
    """
    from protocol.delta.delta import DeltaReader

    try:
        spans = tensor_spans(path)
    except ValueError as error:
        raise IntegrityError(f"{path.name} is no base for a delta: {error}", "fetch the full weights") from None
    tensors = _tensors(path, spans)
    with path.open("r+b") as out:
        index = _index(spans, tensors)
        readers = []
        for expected, delta in deltas:
            readers.append(DeltaReader(_mapped(delta).data, index, expected))
            index = readers[-1].index
        changed = [_changed(reader) for reader in readers]
        for span in spans:
            data = tensors[span.name]
            for reader, entries in zip(readers, changed, strict=True):
                if span.name in entries:
                    data = reader.tensor(entries[span.name], data)
            if data is not tensors[span.name]:
                out.seek(span.start)
                out.write(data.data)
        out.flush()
        os.fsync(out.fileno())


def _changed(reader: "DeltaReader") -> dict[str, "TensorEntry"]:
    names = set(reader.changed)
    return {entry.name: entry for entry in reader.index.tensors if entry.name in names}


def _index(spans: Sequence[TensorSpan], tensors: dict[str, Bytes]) -> "WeightIndex":
    """Reads everything. Raises IntegrityError for sizes that do not fit shapes."""
    from protocol.delta.delta import TensorEntry, WeightIndex

    def entry(span: TensorSpan) -> "TensorEntry":
        return TensorEntry.of(span.name, span.dtype, span.shape, tensors[span.name])

    try:
        with ThreadPoolExecutor(HASHING_THREADS) as threads:
            return WeightIndex.of(threads.map(entry, spans))
    except ValueError as error:
        raise IntegrityError(f"a tensor is malformed: {error}", "fetch the full weights") from None


def _tensors(path: Path, spans: Sequence[TensorSpan]) -> dict[str, Bytes]:
    """Every tensor's bytes, read from the disk as they are needed."""
    whole = _mapped(path)
    return {span.name: whole[span.start : span.end] for span in spans}


def _mapped(path: Path) -> Bytes:
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return np.empty(0, np.uint8)
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
