"""Rewrite the interpreter's WebAssembly module: split code from memory, and count nested calls.

The code is compiled once, which takes half a minute; a memory is data alone and compiles in a second. The code module
imports its memory as `image.memory` and exports its function table and its stack pointer to the host.

Most of the interpreter's recursions use a stack in its own memory, which ends at the same call everywhere. Some do not,
such as freeing a long chain of objects: they would overflow the host's stack at a depth that depends on processor and
compiler. Those go through the function table, so its functions are replaced by ones that count, call the original, and
count back.

The compiled code is cached under a hash of this file.
"""

from collections.abc import Callable, Iterable, Iterator

HEADER = b"\0asm\1\0\0\0"
_CUSTOM, _TYPE, _IMPORT, _FUNCTION, _MEMORY, _GLOBAL, _EXPORT, _ELEMENT, _CODE, _DATA = 0, 1, 2, 3, 5, 6, 7, 9, 10, 11
_OF_FUNCTION, _OF_TABLE, _OF_MEMORY, _OF_GLOBAL = 0, b"\x01", b"\x02", b"\x03"
PAGE, _PART = 65536, 4096


def code_module(module: bytes) -> bytes:
    """Return the module without memory and data; its table and first global are exported as `table` and `stack`."""
    parts = sections(module)
    pages = dict(parts)[_MEMORY][1:]
    new = {
        _IMPORT: [_name("image") + _name("memory") + _OF_MEMORY + pages],
        _EXPORT: [_name("table") + _OF_TABLE + b"\0", _name("stack") + _OF_GLOBAL + b"\0"],
    }
    kept = [(number, body) for number, body in parts if number not in (_CUSTOM, _MEMORY, _DATA)]
    return HEADER + b"".join(section(number, extended(body, new[number]) if number in new else body)
                             for number, body in kept)  # fmt: skip


def first_memory_module(module: bytes) -> bytes:
    """Return the memory that the module starts with, exported as `memory`."""
    parts = dict(sections(module))
    return _memory_module(parts[_MEMORY], parts[_DATA])


def memory_module(content: bytes) -> bytes:
    """Return a memory with this content (whole pages of 65,536 bytes), exported as `memory`; empty parts take no
    room."""
    data, start = list[bytes](), None
    for at in range(0, len(content) + _PART, _PART):
        is_empty = content[at : at + _PART] in (bytes(_PART), b"")
        if is_empty and start is not None:
            data.append(b"\0\x41" + signed(start) + b"\x0b" + unsigned(at - start) + content[start:at])
            start = None
        elif not is_empty and start is None:
            start = at
    memory = unsigned(1) + b"\0" + unsigned(len(content) // PAGE)
    return _memory_module(memory, unsigned(len(data)) + b"".join(data))


def _memory_module(memory: bytes, data: bytes) -> bytes:
    export = unsigned(1) + _name("memory") + _OF_MEMORY + b"\0"
    return HEADER + section(_MEMORY, memory) + section(_EXPORT, export) + section(_DATA, data)


def sections(module: bytes) -> list[tuple[int, bytes]]:
    """Return (number, content) of each."""
    parts, at = [], len(HEADER)
    while at < len(module):
        size, start = read_unsigned(module, at + 1)
        parts.append((module[at], module[start : start + size]))
        at = start + size
    return parts


def section(number: int, body: bytes) -> bytes:
    """Return a section with its number and length."""
    return bytes([number]) + unsigned(len(body)) + body


def extended(vector: bytes, items: Iterable[bytes]) -> bytes:
    """Return a counted list with more at its end."""
    count, start = read_unsigned(vector, 0)
    more = list(items)
    return unsigned(count + len(more)) + vector[start:] + b"".join(more)


def _name(text: str) -> bytes:
    return unsigned(len(text)) + text.encode()


def read_unsigned(data: bytes, at: int) -> tuple[int, int]:
    """Return (value, where it ends) of a LEB128 number."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def unsigned(value: int) -> bytes:
    """Return LEB128."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def signed(value: int) -> bytes:
    """Return LEB128 of a value ≥ 0, whose last byte must not look negative."""
    out = bytearray()
    while value > 63:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


# Nested calls


MAX_DEPTH = 3_000  # of calls through the table that have not returned
_FUNCTION_TYPE = 0x60
_COUNTER = b"\x7f\x01\x41\x00\x0b"  # a variable of 32 bits that begins with 0
_GET_LOCAL, _GET, _SET, _CONSTANT, _CALL = b"\x20", b"\x23", b"\x24", b"\x41", b"\x10"
_ADD, _MORE, _TRAP_IF, _END = b"\x6a", b"\x4b", b"\x04\x40\x00\x0b", b"\x0b"
_ONE, _MINUS_ONE = b"\x01", b"\x7f"


def counted_calls(module: bytes) -> bytes:
    """Return the module with its table's functions counted. Raise ValueError where the table is filled in a way,
    or something but functions is imported, that this does not know."""
    parts = dict(sections(module))
    imported = _imports(parts[_IMPORT])
    kinds, functions = list(_parameters(parts[_TYPE])), list(_numbers(parts[_FUNCTION], 0))
    counter, wrapped = read_unsigned(parts[_GLOBAL], 0)[0], dict[int, int]()

    def counted(function: int) -> int:
        if function < imported:
            return function
        return wrapped.setdefault(function, imported + len(functions) + len(wrapped))

    new = {_ELEMENT: _renumbered(parts[_ELEMENT], counted), _GLOBAL: extended(parts[_GLOBAL], [_COUNTER])}
    own = [functions[function - imported] for function in wrapped]
    bodies = [_body(function, kinds[kind], counter) for function, kind in zip(wrapped, own, strict=True)]
    new[_FUNCTION] = extended(parts[_FUNCTION], map(unsigned, own))
    new[_CODE] = extended(parts[_CODE], bodies)
    return HEADER + b"".join(section(number, new.get(number, body)) for number, body in sections(module))


def _body(function: int, parameters: int, counter: int) -> bytes:
    """Return code that counts, stops if it has counted too far, calls, and counts back."""
    variable = unsigned(counter)
    enter = _GET + variable + _CONSTANT + _ONE + _ADD + _SET + variable
    check = _GET + variable + _CONSTANT + signed(MAX_DEPTH) + _MORE + _TRAP_IF
    call = b"".join(_GET_LOCAL + unsigned(number) for number in range(parameters)) + _CALL + unsigned(function)
    leave = _GET + variable + _CONSTANT + _MINUS_ONE + _ADD + _SET + variable
    code = unsigned(0) + enter + check + call + leave + _END
    return unsigned(len(code)) + code


def _imports(body: bytes) -> int:
    """Return how many functions are imported."""
    count, at = read_unsigned(body, 0)
    for _ in range(count):
        for _ in range(2):
            size, at = read_unsigned(body, at)
            at += size
        if body[at] != _OF_FUNCTION:
            raise ValueError("the interpreter imports something else than functions")
        _, at = read_unsigned(body, at + 1)
    return count


def _parameters(body: bytes) -> Iterator[int]:
    """Yield the number of parameters of each type of function."""
    count, at = read_unsigned(body, 0)
    for _ in range(count):
        if body[at] != _FUNCTION_TYPE:
            raise ValueError("the interpreter has types that are no functions")
        parameters, at = read_unsigned(body, at + 1)
        results, at = read_unsigned(body, at + parameters)
        at += results
        yield parameters


def _renumbered(body: bytes, counted: Callable[[int], int]) -> bytes:
    """Return the one list of functions that fills the table, renumbered."""
    start = body.index(_END) + 1
    if body[:2] != b"\x01\x00" or body[2:3] != _CONSTANT:
        raise ValueError("the interpreter's table is filled in a way that is not known")
    functions = [counted(function) for function in _numbers(body, start)]
    return body[:start] + unsigned(len(functions)) + b"".join(map(unsigned, functions))


def _numbers(body: bytes, at: int) -> Iterator[int]:
    count, at = read_unsigned(body, at)
    for _ in range(count):
        number, at = read_unsigned(body, at)
        yield number
