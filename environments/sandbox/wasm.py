"""The little of WebAssembly's binary format that splits an interpreter into its code and its memory.

The code is compiled once, for half a minute; a memory is data alone, of which a second can be made within one. The
code's copy imports its memory as `image.memory` and lets the host see its function table and its stack pointer.
"""

from collections.abc import Iterable, Iterator

HEADER = b"\0asm\1\0\0\0"
_IMPORT, _MEMORY, _EXPORT, _DATA, _CUSTOM = 2, 5, 7, 11, 0
_OF_TABLE, _OF_MEMORY, _OF_GLOBAL = b"\x01", b"\x02", b"\x03"
PAGE = 65536
_PART = 4096


def code_module(module: bytes) -> bytes:
    """The module without memory and data; its table and first global are exported as `table` and `stack`."""
    parts = sections(module)
    pages = dict(parts)[_MEMORY][1:]
    out = [HEADER]
    for number, body in parts:
        if number in (_CUSTOM, _MEMORY, _DATA):
            continue
        if number == _IMPORT:
            body = extended(body, [_name("image") + _name("memory") + _OF_MEMORY + pages])
        elif number == _EXPORT:
            body = extended(body, [_name("table") + _OF_TABLE + b"\0", _name("stack") + _OF_GLOBAL + b"\0"])
        out.append(section(number, body))
    return b"".join(out)


def first_memory_module(module: bytes) -> bytes:
    """The memory that the module starts with, exported as `memory`."""
    found = dict(sections(module))
    return _memory_module(found[_MEMORY], found[_DATA])


def memory_module(content: bytes) -> bytes:
    """A memory with this content (whole pages of 65,536 bytes), exported as `memory`; empty parts take no room."""
    parts = list(_parts(content))
    data = [b"\0\x41" + signed(start) + b"\x0b" + unsigned(len(part)) + part for start, part in parts]
    memory = unsigned(1) + b"\0" + unsigned(len(content) // PAGE)
    return _memory_module(memory, unsigned(len(data)) + b"".join(data))


def _memory_module(memory: bytes, data: bytes) -> bytes:
    export = unsigned(1) + _name("memory") + _OF_MEMORY + b"\0"
    return HEADER + section(_MEMORY, memory) + section(_EXPORT, export) + section(_DATA, data)


def _parts(content: bytes) -> Iterator[tuple[int, bytes]]:
    """(start, bytes) of what is not zero, in runs of whole parts."""
    empty = bytes(_PART)
    start = None
    for at in range(0, len(content), _PART):
        is_empty = content[at : at + _PART] == empty
        if is_empty and start is not None:
            yield start, content[start:at]
            start = None
        elif not is_empty and start is None:
            start = at
    if start is not None:
        yield start, content[start:]


def sections(module: bytes) -> list[tuple[int, bytes]]:
    """(number, content) of each."""
    found, at = [], len(HEADER)
    while at < len(module):
        size, start = read_unsigned(module, at + 1)
        found.append((module[at], module[start : start + size]))
        at = start + size
    return found


def section(number: int, body: bytes) -> bytes:
    """As it stands in a module."""
    return bytes([number]) + unsigned(len(body)) + body


def extended(vector: bytes, items: Iterable[bytes]) -> bytes:
    """A counted list with more at its end."""
    count, start = read_unsigned(vector, 0)
    more = list(items)
    return unsigned(count + len(more)) + vector[start:] + b"".join(more)


def _name(text: str) -> bytes:
    return unsigned(len(text)) + text.encode()


def read_unsigned(data: bytes, at: int) -> tuple[int, int]:
    """(value, where it ends) of a LEB128 number."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def unsigned(value: int) -> bytes:
    """LEB128."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def signed(value: int) -> bytes:
    """For value ≥ 0, whose last byte must not look negative."""
    out = bytearray()
    while value > 63:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
