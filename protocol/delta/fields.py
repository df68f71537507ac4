"""Reading the head of a stranger's code: every length is checked against the bytes that there are."""

from protocol.errors import IntegrityError


class DeltaError(IntegrityError):
    """A weight delta that cannot be what its maker's coder wrote, or is for another base."""

    def __init__(self, what: str) -> None:
        super().__init__(what, "fetch it from another source, or the full weights")


def varint(value: int) -> bytes:
    """LEB128: seven bits a byte, the lowest first."""
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


class FieldReader:
    """Takes fields from the front of `data`. Raises DeltaError where it ends too early."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def byte(self) -> int:
        if self.at >= len(self.data):
            raise DeltaError("the delta ends 1 bytes too early")
        self.at += 1
        return self.data[self.at - 1]

    def varint(self, limit: int) -> int:
        """At most `limit`, in its shortest form."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if value > limit or shift > 70:
                raise DeltaError(f"the delta has a number above {limit}")
            if byte < 128:
                break
        if byte == 0 and shift > 7:
            raise DeltaError("the delta has a number in a longer form than it needs")
        return value

    def take(self, size: int) -> memoryview:
        if size > len(self.data) - self.at:
            raise DeltaError(f"the delta ends {size - len(self.data) + self.at} bytes too early")
        self.at += size
        return self.data[self.at - size : self.at]

    def rest(self) -> memoryview:
        return self.take(len(self.data) - self.at)

    def end(self) -> None:
        if self.at != len(self.data):
            raise DeltaError(f"the delta has {len(self.data) - self.at} bytes too many")
