"""Ends a program whose calls nest too deeply at the same call on every machine.

Most of the interpreter's recursions take room on a stack of its own, which lies in its memory and ends at the same call
everywhere. Some take none, such as the freeing of a long chain of objects: they would end this machine's stack, at a
depth that depends on its processor and its compiler. Those pass through the table of functions, so its functions are
replaced by ones that count, call what was there, and count back.
"""

from collections.abc import Callable, Iterator

from environments.sandbox.wasm import HEADER, extended, read_unsigned, section, sections, signed, unsigned

MAX_DEPTH = 3_000
"""Of calls through the table that have not returned."""
_TYPE, _IMPORT, _FUNCTION, _GLOBAL, _ELEMENT, _CODE = 1, 2, 3, 6, 9, 10
_FUNCTION_TYPE, _OF_FUNCTION = 0x60, 0
_COUNTER = b"\x7f\x01\x41\x00\x0b"  # a variable of 32 bits that begins with 0
_GET_LOCAL, _GET, _SET, _CONSTANT, _CALL = b"\x20", b"\x23", b"\x24", b"\x41", b"\x10"
_ADD, _MORE, _TRAP_IF, _END = b"\x6a", b"\x4b", b"\x04\x40\x00\x0b", b"\x0b"
_ONE, _MINUS_ONE = b"\x01", b"\x7f"


def counted_calls(module: bytes) -> bytes:
    """The module with its table's functions counted. Raises ValueError where the table is filled in a way, or something
    but functions is imported, that this does not know."""
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
    """Code that counts, stops if it has counted too far, calls, and counts back."""
    variable = unsigned(counter)
    enter = _GET + variable + _CONSTANT + _ONE + _ADD + _SET + variable
    check = _GET + variable + _CONSTANT + signed(MAX_DEPTH) + _MORE + _TRAP_IF
    call = b"".join(_GET_LOCAL + unsigned(number) for number in range(parameters)) + _CALL + unsigned(function)
    leave = _GET + variable + _CONSTANT + _MINUS_ONE + _ADD + _SET + variable
    code = unsigned(0) + enter + check + call + leave + _END
    return unsigned(len(code)) + code


def _imports(body: bytes) -> int:
    """How many functions are imported."""
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
    """The number of parameters of each type of function."""
    count, at = read_unsigned(body, 0)
    for _ in range(count):
        if body[at] != _FUNCTION_TYPE:
            raise ValueError("the interpreter has types that are no functions")
        parameters, at = read_unsigned(body, at + 1)
        results, at = read_unsigned(body, at + parameters)
        at += results
        yield parameters


def _renumbered(body: bytes, counted: Callable[[int], int]) -> bytes:
    """The one list of functions that fills the table."""
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
