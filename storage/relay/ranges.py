"""The one kind of HTTP range that is served: a single part of a known object."""

import re
from dataclasses import dataclass

_RANGE = re.compile(r"bytes=([0-9]{1,15})-([0-9]{0,15})")


@dataclass(frozen=True)
class ObjectPart:
    """Bytes `start` to `end` (exclusive) of `size`."""

    start: int
    end: int
    size: int

    @property
    def status(self) -> int:
        return 200 if (self.start, self.end) == (0, self.size) else 206

    @property
    def headers(self) -> dict[str, str]:
        common = {"content-length": str(self.end - self.start), "accept-ranges": "bytes"}
        shown = {"content-range": f"bytes {self.start}-{self.end - 1}/{self.size}"} if self.status == 206 else {}
        return common | shown


def part_of(wanted: str | None, size: int) -> ObjectPart | None:
    """What a Range header asks for; everything where it is missing or of another kind, None where nothing is there."""
    match = _RANGE.fullmatch(wanted or "")
    if match is None:
        return ObjectPart(0, size, size)
    start, end = int(match[1]), int(match[2]) + 1 if match[2] else size
    if start >= size or end <= start:
        return None
    return ObjectPart(start, min(end, size), size)
