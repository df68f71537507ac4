"""Where the tensors of a safetensors file lie, read from a header that a stranger may have written."""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.encoding import parse_json

MAX_HEADER_BYTES = 16 << 20
MAX_TENSORS = 1 << 18
_MAX_DIMENSIONS = 32


@dataclass(frozen=True)
class TensorPlace:
    """A tensor's name, safetensors' name of its type, its shape, and its bytes' place in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def tensor_places(path: Path) -> list[TensorPlace]:
    """Every tensor of the file, in the order of their bytes, which fill the file behind the header without gaps.

    Raises ValueError if the file is not like that, OSError if it cannot be read.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = file.read(8)
        header = struct.unpack("<Q", length)[0] if len(length) == 8 else 0
        if not 2 <= header <= min(MAX_HEADER_BYTES, size - 8):
            raise ValueError("its header does not fit")
        fields = parse_json(file.read(header))
    if not isinstance(fields, dict) or len(fields) > MAX_TENSORS:
        raise ValueError("its header is not one of safetensors")
    places = [_place(name, entry, 8 + header) for name, entry in fields.items() if name != "__metadata__"]
    places.sort(key=lambda one: (one.start, one.end))
    ends = [8 + header, *(one.end for one in places)]
    if [one.start for one in places] != ends[:-1] or ends[-1] != size:
        raise ValueError("its tensors do not fill the file")
    return places


def _place(name: str, entry: Any, data: int) -> TensorPlace:
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(start), int(end)]} if (
            0 <= start <= end < 1 << 53
            and len(shape) <= _MAX_DIMENSIONS
            and all(type(one) is int and 0 <= one < 1 << 53 for one in shape)
        ):
            return TensorPlace(name, dtype, tuple(shape), data + start, data + end)
    raise ValueError("its header is not one of safetensors")
