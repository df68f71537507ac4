"""Words of 64 bits: what a processor does with one in an instruction or two, and compiled Python has no word for."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_WORD, _BYTE = ir.IntType(64), ir.IntType(8)
_LANES = ir.VectorType(_BYTE, 64)


@intrinsic  # type: ignore[untyped-decorator]
def ones(_context: Any, _word: Any) -> Any:
    """How many bits of a word are set."""

    def made(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), made


@intrinsic  # type: ignore[untyped-decorator]
def zeros_below(_context: Any, _word: Any) -> Any:
    """The place of a word's lowest bit that is set; 64 of 0."""

    def made(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), made


@intrinsic  # type: ignore[untyped-decorator]
def zeros_above(_context: Any, _word: Any) -> Any:
    """How many zeros stand above a word's highest bit that is set; 64 of 0."""

    def made(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), made


@intrinsic  # type: ignore[untyped-decorator]
def load(_context: Any, data: Any, _at: Any) -> Any:
    """The word that begins at a byte of `data` ([n] uint8), any byte up to n − 8."""

    def made(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_place(target, builder, signature, arguments, _WORD), align=1)

    return types.uint64(data, types.int64), made


@intrinsic  # type: ignore[untyped-decorator]
def store(_context: Any, data: Any, _at: Any, _word: Any) -> Any:
    """Write a word from a byte of `data` ([n] uint8) on, any byte up to n − 8."""

    def made(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _place(target, builder, signature, arguments, _WORD), align=1)
        return target.get_dummy_value()

    return types.void(data, types.int64, types.uint64), made


@intrinsic  # type: ignore[untyped-decorator]
def equals(_context: Any, data: Any, _at: Any, _value: Any) -> Any:
    """Which of the 64 bytes of `data` ([n] uint8) from `at` ≤ n − 64 on are `value`: the first as the lowest bit."""

    def made(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes = builder.load(_place(target, builder, signature, arguments, _LANES), align=1)
        one = builder.insert_element(ir.Constant(_LANES, ir.Undefined), arguments[2], ir.Constant(ir.IntType(32), 0))
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64)
        value = builder.shuffle_vector(one, ir.Constant(_LANES, ir.Undefined), everywhere)
        return builder.bitcast(builder.icmp_unsigned("==", lanes, value), _WORD)

    return types.uint64(data, types.int64, types.uint8), made


def _place(target: Any, builder: Any, signature: Any, arguments: Any, kind: Any) -> Any:
    """A pointer to what begins at a byte of an array: the first two arguments."""
    array = target.make_array(signature.args[0])(target, builder, arguments[0])
    return builder.bitcast(builder.gep(array.data, [arguments[1]]), kind.as_pointer())
