"""Made-up tensors and damaged deltas for the delta codec, the same for the same number."""

import hashlib
import random
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from protocol.delta.delta import BITS, FORMATS, Bytes, TensorEntry, WeightIndex, apply_delta, encode_delta
from protocol.errors import IntegrityError


class Pair(NamedTuple):
    """Two versions of a tensor."""

    dtype: str
    shape: tuple[int, ...]
    base: Bytes
    new: Bytes


class Case(NamedTuple):
    """A delta, what it is against, and where it leads."""

    base: dict[str, Bytes]
    base_index: WeightIndex
    new: dict[str, Bytes]
    new_index: WeightIndex
    delta: bytes


def tensor_pair(number: int) -> Pair:
    """Every type, shapes from scalar and empty to two segments, changes from none to all, floats of every kind."""
    dice = np.random.default_rng(number)
    dtype = list(BITS)[number % len(BITS)]
    shape = _shape(dice, number)
    base = _values(dice, dtype, max(1, BITS[dtype] // 8) * int(np.prod(shape, dtype=np.int64)))
    return Pair(dtype, shape, base, _changed(dice, base, dtype))


def _shape(dice: np.random.Generator, number: int) -> tuple[int, ...]:
    if number % 500 == 499:
        return ((1 << 22) + int(dice.integers(0, 9)),)
    kinds = ((), (0,), (3, 0, 2), (1,), (int(dice.integers(2, 9)),))
    if number // len(BITS) % 4 == 0:
        return kinds[int(dice.integers(len(kinds)))]
    return (int(dice.integers(1, 80)), int(dice.integers(1, 80)))


def _values(dice: np.random.Generator, dtype: str, size: int) -> Bytes:
    """Weights as models have them, any bits at all, or the odd ones: zeros, −0, subnormals, infinities, NaN."""
    kind = int(dice.integers(3))
    form = FORMATS.get(dtype)
    if form is None or kind == 0:
        return dice.integers(0, 256, size, np.uint8)
    elements = np.empty(size // form.itemsize, f"<u{form.itemsize}")
    spread = 10.0 ** dice.uniform(-6, 2)
    normal = (dice.standard_normal(elements.size) * spread).astype(np.float32)
    if dtype == "F16":
        elements[:] = normal.astype(np.float16).view(np.uint16)
    else:
        elements[:] = normal.view(np.uint32) >> (32 - form.width)
    if kind == 2:
        sign, top = 1 << (form.width - 1), form.exponent_mask << form.fraction
        odd = (0, sign, 1, sign | 1, (1 << form.fraction) - 1, top, sign | top, top | 1, top | sign - 1, 2 * sign - 1)
        places = dice.random(elements.size) < dice.random()
        elements[places] = dice.choice(np.array(odd, np.uint64), int(places.sum())).astype(elements.dtype)
    return elements.view(np.uint8)


def _changed(dice: np.random.Generator, base: Bytes, dtype: str) -> Bytes:
    new = base.copy()
    kind = int(dice.integers(6))
    form = FORMATS.get(dtype)
    if kind == 0 or not new.size:
        return new
    if kind == 1:
        return dice.integers(0, 256, new.size, np.uint8)
    if kind == 2:
        start, end = sorted(dice.integers(0, new.size + 1, 2).tolist())
        new[start:end] = dice.integers(0, 256, end - start, np.uint8)
        return new
    share = 10.0 ** dice.uniform(-4, 0)
    elements = new.view(f"<u{form.itemsize}") if form else new
    places = dice.random(elements.size) < share
    furthest = 2 if kind < 5 else 1 << int(dice.integers(1, 8 * elements.itemsize))
    steps = dice.integers(1, furthest, int(places.sum()), endpoint=True).astype(elements.dtype)
    elements[places] += np.where(dice.random(steps.size) < 0.5, steps, -steps)
    return new


def made_case(pairs: list[Pair]) -> Case:
    base = {f"tensor.{number}": one.base for number, one in enumerate(pairs)}
    new = {f"tensor.{number}": one.new for number, one in enumerate(pairs)}
    indices = [
        WeightIndex.of(
            TensorEntry.of(name, one.dtype, one.shape, data)
            for one, (name, data) in zip(pairs, weights.items(), strict=True)
        )
        for weights in (base, new)
    ]
    return Case(base, indices[0], new, indices[1], encode_delta(base, indices[0], new, indices[1]))


def is_restored(pair: Pair) -> bool:
    """Whether a tensor comes out of its delta bit for bit, and the delta is not longer than it, but for its head."""
    case = made_case([pair])
    made, index = apply_delta(case.delta, case.base, case.base_index, case.new_index.digest)
    short = len(case.delta) <= pair.new.size + 120 + 8 * (pair.new.size // (1 << 22))
    return short and index == case.new_index and made["tensor.0"].tobytes() == pair.new.tobytes()


def is_accepted(case: Case, number: int) -> bool:
    """Whether one of the ways to damage a delta goes unnoticed: what is applied is other than what its maker had.

    Half of the readers have no version that they expect, so that the hashes of single tensors must find it.
    """
    dice, way = random.Random(number), number % WAYS
    of_base = way == WAYS - 1
    delta = case.delta if of_base else damaged(case.delta, dice, way)
    base = _with_flipped_bit(case, dice) if of_base else case.base
    expected = case.new_index.digest if dice.random() < 0.5 else None
    try:
        made, _ = apply_delta(delta, base, case.base_index, expected)
    except IntegrityError:
        return False
    return any(data.tobytes() != case.new[name].tobytes() for name, data in made.items())


def _with_flipped_bit(case: Case, dice: random.Random) -> dict[str, Bytes]:
    """The base with another bit in a tensor that changes."""
    name = dice.choice([name for name, data in case.base.items() if data.tobytes() != case.new[name].tobytes()])
    data = case.base[name].copy()
    data[dice.randrange(data.size)] ^= 1 << dice.randrange(8)
    return {**case.base, name: data}


WAYS = 9


def damaged(delta: bytes, dice: random.Random, way: int) -> bytes:
    """Bits flipped, a byte of the head changed, cut off, lengthened, cut out, overwritten, moved, or noise."""
    a, b, c = sorted(dice.choices(range(len(delta)), k=3))
    flipped, head = bytearray(delta), bytearray(delta)
    for _ in range(dice.choice((1, 1, 1, 2, 8))):
        flipped[dice.randrange(len(delta))] ^= 1 << dice.randrange(8)
    head[dice.randrange(min(len(delta), 320))] = dice.randrange(256)
    fill = dice.choice((b"\x00", b"\xff", dice.randbytes(1), dice.randbytes(64))) * 4096
    end = min(len(delta), a + dice.choice((1, 4, 64, 4096)))
    return (
        bytes(flipped),
        bytes(head),
        delta[:a],
        delta[:a] + dice.randbytes(dice.randrange(1, 20)) + delta[a:],
        delta[:a] + delta[b + 1 :],
        delta[:a] + fill[: end - a] + delta[end:],
        delta[:a] + delta[b:c] + delta[a:b] + delta[c:],
        delta[: dice.choice((0, 8, 40, 72))] + dice.randbytes(dice.randrange(3000)),
    )[way]


# Tensors whose deltas have every part of the format, from a hash: the same wherever and whenever they are made

_SIZE = 1 << 16
_FURTHEST = 12
"""Below the highest exponent, where every element changes."""


def format_cases() -> Iterator[tuple[str, Bytes, Bytes]]:
    """Type, base and new: ever more changes, ever longer steps; the smaller an element the likelier, as in training."""
    for dtype in FORMATS:
        for number, further in enumerate((0, 3, 7, 11)):
            drawn = hashlib.shake_256(f"{dtype} {number}".encode()).digest(8 * (2 * _SIZE - number))
            words = np.frombuffer(drawn, "<u8")
            yield dtype, *_pair(dtype, words[:_SIZE], words[_SIZE:], further, long=number % 2)


def _pair(
    dtype: str, dice: NDArray[np.uint64], moves: NDArray[np.uint64], further: int, long: int
) -> tuple[Bytes, Bytes]:
    form, dice = FORMATS[dtype], dice[: moves.size]
    kind = f"<u{form.itemsize}"
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
