"""The stream of random numbers behind the noise: Philox4x64-10 with a counter for every row, compiled.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011). NumPy has the same generator, but an object of its
own for every row: at small vocabularies making those objects took longer than all arithmetic of sampling.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from protocol.compiled import compiled

Word = np.uint64
Words = npt.NDArray[np.uint64]
_ROUNDS = 10
_M0, _M1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_W0, _W1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_HALF = np.uint64(32)


@intrinsic  # type: ignore[untyped-decorator]
def _high(_context: Any, left: Any, right: Any) -> Any:
    """The upper 64 bits of a product of two 64-bit words: one instruction, for which neither Python nor numba has a
    word."""

    def product(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        whole = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
        return builder.trunc(builder.lshr(whole, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), product


@compiled
def _block(key: Word, counter: tuple[Word, Word, Word, Word]) -> tuple[Word, Word, Word, Word]:
    """The four words of one block."""
    c0, c1, c2, c3 = counter
    k0, k1 = key, np.uint64(0)
    for _ in range(_ROUNDS):
        high0, high1 = _high(_M0, c0), _high(_M1, c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, _M1 * c2, high0 ^ c3 ^ k1, _M0 * c0
        k0 += _W0
        k1 += _W1
    return c0, c1, c2, c3


@compiled
def fill(keys: Words, positions: Words, out: npt.NDArray[np.uint32]) -> None:
    """Row i of `out` [B, V] gets the first V little-endian 32-bit numbers of the stream of keys[i] [B, 3] at
    positions[i] [B]."""
    rows, size = out.shape
    for row in range(rows):
        key, position, second, third = keys[row, 0], positions[row], keys[row, 1], keys[row, 2]
        for block in range((size + 7) // 8):
            # A block's number counts from one.
            words = _block(key, (np.uint64(block + 1), position, second, third))
            at = 8 * block
            for word in words:
                if at < size:
                    out[row, at] = np.uint32(word)
                if at + 1 < size:
                    out[row, at + 1] = np.uint32(word >> _HALF)
                at += 2
