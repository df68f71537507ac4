"""Made-up tensors and damaged deltas for the delta codec, the same for the same number."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocol.delta.delta import BITS, FORMATS, TensorEntry, WeightIndex, apply_delta, encode_delta
from protocol.errors import IntegrityError

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Pair:
    """Two versions of a tensor."""

    dtype: str
    shape: tuple[int, ...]
    base: Bytes
    new: Bytes


@dataclass(frozen=True)
class Case:
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
    width = max(1, BITS[dtype] // 8)
    shape = _shape(dice, number)
    size = width * int(np.prod(shape, dtype=np.int64))
    base = _values(dice, dtype, size)
    new = _changed(dice, base, dtype)
    return Pair(dtype, shape, base, new)


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
    elements = np.empty(size // (form.width // 8), f"<u{form.width // 8}")
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
    elements = new.view(f"<u{form.width // 8}") if form else new
    places = dice.random(elements.size) < share
    furthest = 2 if kind < 5 else 1 << int(dice.integers(1, 8 * elements.itemsize))
    steps = dice.integers(1, furthest, int(places.sum()), endpoint=True).astype(elements.dtype)
    elements[places] += np.where(dice.random(steps.size) < 0.5, steps, -steps)
    return new


def made_case(pairs: list[Pair]) -> Case:
    base = {f"tensor.{place}": one.base for place, one in enumerate(pairs)}
    new = {f"tensor.{place}": one.new for place, one in enumerate(pairs)}
    indices = [
        WeightIndex.of(
            TensorEntry.of(f"tensor.{place}", one.dtype, one.shape, weights[f"tensor.{place}"])
            for place, one in enumerate(pairs)
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
    dice = random.Random(number)
    delta, base = DAMAGES[number % len(DAMAGES)](case, dice)
    expected = case.new_index.digest if dice.random() < 0.5 else None
    try:
        made, _ = apply_delta(delta, base, case.base_index, expected)
    except IntegrityError:
        return False
    return any(data.tobytes() != case.new[name].tobytes() for name, data in made.items())


Damage = Callable[[Case, random.Random], tuple[bytes, dict[str, Bytes]]]


def _flipped(case: Case, dice: random.Random) -> tuple[bytes, dict[str, Bytes]]:
    damaged = bytearray(case.delta)
    for _ in range(dice.choice((1, 1, 1, 2, 8))):
        damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
    return bytes(damaged), case.base


def _flipped_head(case: Case, dice: random.Random) -> tuple[bytes, dict[str, Bytes]]:
    damaged = bytearray(case.delta)
    damaged[dice.randrange(min(len(damaged), 320))] = dice.randrange(256)
    return bytes(damaged), case.base


def _truncated(case: Case, dice: random.Random) -> tuple[bytes, dict[str, Bytes]]:
    return case.delta[: dice.randrange(len(case.delta))], case.base


def _lengthened(case: Case, dice: random.Random) -> tuple[bytes, dict[str, Bytes]]:
    at = dice.randrange(len(case.delta) + 1)
    return case.delta[:at] + dice.randbytes(dice.randrange(1, 20)) + case.delta[at:], case.base


def _cut_out(case: Case, dice: random.Random) -> tuple[bytes, dict[str, Bytes]]:
    start, end = sorted((dice.randrange(len(case.delta)), dice.randrange(len(case.delta) + 1)))
    return case.delta[:start] + case.delta[max(end, start + 1) :], case.base


def _overwritten(case: Case, dice: random.Random) -> tuple[bytes, dict[str, Bytes]]:
    start = dice.randrange(len(case.delta))
    fill = dice.choice((b"\x00", b"\xff", dice.randbytes(1), dice.randbytes(64)))
    end = min(len(case.delta), start + dice.choice((1, 4, 64, 4096)))
    return case.delta[:start] + (fill * (end - start))[: end - start] + case.delta[end:], case.base


def _wrong_base(case: Case, dice: random.Random) -> tuple[bytes, dict[str, Bytes]]:
    """One bit of a changed tensor's base."""
    changed = [name for name, data in case.base.items() if data.tobytes() != case.new[name].tobytes()]
    name = dice.choice(changed)
    data = case.base[name].copy()
    data[dice.randrange(data.size)] ^= 1 << dice.randrange(8)
    return case.delta, {**case.base, name: data}


def _swapped(case: Case, dice: random.Random) -> tuple[bytes, dict[str, Bytes]]:
    """Two stretches of the delta change places."""
    a, b, c, d = sorted(dice.sample(range(len(case.delta) + 1), 4))
    return case.delta[:a] + case.delta[c:d] + case.delta[b:c] + case.delta[a:b] + case.delta[d:], case.base


def _noise(case: Case, dice: random.Random) -> tuple[bytes, dict[str, Bytes]]:
    return case.delta[: dice.choice((0, 8, 40, 72))] + dice.randbytes(dice.randrange(3000)), case.base


DAMAGES: tuple[Damage, ...] = (
    _flipped,
    _flipped_head,
    _truncated,
    _lengthened,
    _cut_out,
    _overwritten,
    _wrong_base,
    _swapped,
    _noise,
)
