"""Tensors whose deltas have every part of the format, from a hash: the same wherever and whenever they are made."""

import hashlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from protocol.delta.delta import FORMATS, Bytes

_SIZE = 1 << 16
_FURTHEST = 12
"""Below the highest exponent, where every element changes."""


def format_cases() -> Iterator[tuple[str, Bytes, Bytes]]:
    """Type, base and new: ever more changes, ever longer steps; the smaller an element the likelier, as in training."""
    for dtype in FORMATS:
        for number, further in enumerate((0, 3, 7, 11)):
            words = _words(f"{dtype} {number}", 2 * _SIZE - number)
            yield dtype, *_pair(dtype, words[:_SIZE], words[_SIZE:], further, long=number % 2)


def _words(seed: str, count: int) -> NDArray[np.uint64]:
    return np.frombuffer(hashlib.shake_256(seed.encode()).digest(8 * count), "<u8")


def _pair(
    dtype: str, dice: NDArray[np.uint64], moves: NDArray[np.uint64], further: int, long: int
) -> tuple[Bytes, Bytes]:
    form, dice = FORMATS[dtype], dice[: moves.size]
    kind = f"<u{form.width // 8}"
    # An octave lower for half of the elements, two for a quarter, and so on.
    lower = np.minimum(np.argmax((dice[:, None] >> np.arange(20, dtype=np.uint64)) & 1, axis=1), _FURTHEST)
    exponent = (form.exponent_mask - 2 - lower).astype(np.uint64) << np.uint64(form.fraction)
    rest = (dice >> np.uint64(20)) & np.uint64((1 << form.fraction) - 1)
    base = (exponent | rest | (dice >> np.uint64(63)) << np.uint64(form.width - 1)).astype(kind)
    chance = np.minimum(lower + further, 12)
    changes = (moves & np.uint64(0xFFF)) < (1 << chance)
    step = 1 + ((moves >> np.uint64(12)) & np.uint64(7) == 0) * ((moves >> np.uint64(16)) & np.uint64(31 * long))
    signed = np.where(moves >> np.uint64(63), step, -step.astype(np.int64)).astype(np.int64)
    new = np.where(changes, base.astype(np.int64) + signed, base).astype(kind)
    return base.view(np.uint8), new.view(np.uint8)
