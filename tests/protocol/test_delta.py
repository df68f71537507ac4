"""Deltas: the compiled codec, single tensors, whole models; bit for bit, and read from hostile bytes without harm."""

import hashlib
import random
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from protocol.delta.codes import GROUPS, LANES, LOW, SCALE, TOKENS, list_symbols, moved, step_between, write_tokens
from protocol.delta.delta import (
    BITS,
    FORMATS,
    FULL,
    SAME,
    STEPS,
    XOR,
    Bytes,
    DeltaError,
    DeltaReader,
    TensorEntry,
    WeightIndex,
    decode_tensor,
    encode_delta,
    encode_tensor,
)
from protocol.errors import IntegrityError

# Made-up tensors and damaged deltas, the same for the same number


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


def applied(case: Case, delta: bytes, base: dict[str, Bytes], expected: bytes | None = None) -> dict[str, Bytes]:
    """All tensors that a delta makes of `base`, whose index is the case's."""
    reader = DeltaReader(delta, case.base_index, expected)
    return {entry.name: reader.tensor(entry, base[entry.name]) for entry in reader.index.tensors}


def is_restored(pair: Pair) -> bool:
    """Whether a tensor comes out of its delta bit for bit, and the delta is not longer than it, but for its head."""
    case = made_case([pair])
    made = applied(case, case.delta, case.base, case.new_index.digest)
    short = len(case.delta) <= pair.new.size + 120 + 8 * (pair.new.size // (1 << 22))
    return short and made["tensor.0"].tobytes() == pair.new.tobytes()


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
        made = applied(case, delta, base, expected)
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


# The format and the compiled codec

FORMAT = "9555cac703e1df7b0ba98cd0bec06f1c5fc42d3815f3d3fa4a56fceac1fe3d95"  # SHA-256 of the deltas of `format_cases`


def test_the_format_is_what_it_was() -> None:
    digest = hashlib.sha256()
    for dtype, base, new in format_cases():
        delta = encode_tensor(base, new, dtype)
        digest.update(delta)
        assert decode_tensor(memoryview(delta), base, dtype).tobytes() == new.tobytes()
    assert digest.hexdigest() == FORMAT


@pytest.mark.parametrize("half", [1 << 15, 1 << 31])
def test_steps_between_floats(half: int) -> None:
    """−0 is next to 0, and the numbers of a format are a ring."""
    for base, new, step in [
        (0, 1, 1), (0, half, -1), (half, half + 1, -1), (2 * half - 1, half - 1, -1), (half - 1, 2 * half - 1, 1),
        (1, half + 1, -3), (half >> 1, half >> 1, 0),
    ]:  # fmt: skip
        assert step_between(base, new, half) == step
        assert moved(base, step, half) == new
        assert moved(new, -step, half) == base


@pytest.mark.parametrize("room", [1, 2, 7, 5000])
def test_further_bits_are_not_written_outside_their_room(room: int) -> None:
    dice = np.random.default_rng(room)
    base, new = (dice.integers(0, 1 << 32, 3000, np.uint32) for _ in range(2))
    memory = np.full(room + 2, 0xAAAAAAAA, np.uint32)
    symbols = np.empty(3000, np.uint16)
    words = list_symbols(base, new, FORMATS["F32"].numbers, np.zeros(256, np.uint8), symbols, memory[1:-1])
    assert 2500 < words < 3000
    assert memory[0] == memory[-1] == 0xAAAAAAAA
    assert symbols.max() < TOKENS


def plain_tokens(states: list[int], codes: list[int], shares: list[int], count: int) -> list[int]:
    """What a reader takes, with Python's integers; it must end as every state began."""
    starts, found = [sum(shares[:token]) for token in range(len(shares))], []
    for number in range(count):
        state, lane = states[number % LANES], number % LANES
        token = max(one for one, start in enumerate(starts) if start <= state % SCALE and shares[one])
        state = shares[token] * (state // SCALE) + state % SCALE - starts[token]
        states[lane] = state << 16 | codes.pop(0) if state < LOW else state
        found.append(token)
    assert (states, codes) == ([LOW] * LANES, [])
    return found


@pytest.mark.parametrize("shares", [(4096,), (4095, 1), (1, 4095), (1366, 1365, 1365), (1,) * 72, (3, 4093)])
def test_tokens_come_back_with_every_frequency(shares: tuple[int, ...]) -> None:
    """A division by any frequency must be exact, whatever the state."""
    table, group = np.zeros((GROUPS, TOKENS), np.int64), 4
    table[group, : len(shares)] = (*shares[:-1], SCALE - sum(shares[:-1]))
    dice = random.Random(5)
    # Rare tokens as often as common ones, so that states become large.
    tokens = [dice.randrange(len(shares)) for _ in range(5003)]
    symbols, codes = (np.array(tokens) + group * TOKENS).astype(np.uint16), np.zeros(5100, np.uint16)
    first, states = write_tokens(symbols, table, codes)
    given = [int(state) for state in states], codes[first:].tolist(), table[group].tolist()
    assert plain_tokens(*given, len(tokens)) == tokens


# Tensors


def weights(size: int, share: float, seed: int = 0) -> tuple[Bytes, Bytes]:
    """bf16 weights of a deviation of 0.02, before and after `share` of them moved by one place."""
    dice = np.random.default_rng(seed)
    base = ((dice.standard_normal(size) * 0.02).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    moves = (dice.random(size) < share) * dice.choice((-1, 1), size)
    return base.view(np.uint8), (base + moves).astype(np.uint16).view(np.uint8)


def test_tensors_of_every_type_come_back_bit_for_bit() -> None:
    """The last one of two segments."""
    assert [number for number in (*range(480), 499) if not is_restored(tensor_pair(number))] == []


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
def test_every_odd_float_to_every_other(dtype: str) -> None:
    """−0, infinities, NaN with payloads, subnormals, and the ends of the format."""
    width = 4 if dtype == "F32" else 2
    top = (1 << 8 * width) - 1
    odd = [0, 1, 2, top // 2, top // 2 + 1, top // 2 + 2, top, top - 1, top >> 2, top - (top >> 2), 0x7F80, 0x7FC1]
    base, new = (one.ravel().astype(f"<u{width}").view(np.uint8) for one in np.meshgrid(odd, odd))
    assert decode_tensor(memoryview(encode_tensor(base, new, dtype)), base, dtype).tobytes() == new.tobytes()


def test_few_changes_cost_few_bytes() -> None:
    base, new = weights(1 << 18, 0.01)
    delta = encode_tensor(base, new, "BF16")
    assert delta[0] == STEPS
    # A hundredth of them cost log2(100 e) + 1 = 9.1 bits each.
    assert len(delta) < 1.03 * (9.1 / 8) * 0.01 * (1 << 18) + 100


def test_the_shortest_form_is_taken() -> None:
    dice = np.random.default_rng(1)
    base, noise = (dice.integers(0, 256, 4096, np.uint8) for _ in range(2))
    one = base.copy()
    one[77] ^= 1
    assert encode_tensor(base, base, "BF16") == b""
    assert encode_tensor(base, noise, "BF16")[0] == FULL
    assert encode_tensor(base, noise, "I64")[0] == FULL
    assert encode_tensor(base, one, "I64")[0] == XOR
    assert len(encode_tensor(base, noise, "BF16")) == 4096 + 3


def test_an_equal_segment_beside_a_changed_one_takes_two_bytes() -> None:
    base = np.zeros(8 + 2 * (1 << 22), np.uint8)
    new = base.copy()
    new[-1] = 1
    assert encode_tensor(base, new, "BF16")[:2] == bytes([SAME, 0])
    assert decode_tensor(memoryview(encode_tensor(base, new, "BF16")), base, "BF16").tobytes() == new.tobytes()


@pytest.mark.parametrize("share", [0.002, 0.05, 0.5])
def test_damaged_code_is_refused_or_makes_other_bytes_of_the_same_size(share: float) -> None:
    base, new = weights(5000, share)
    delta = bytearray(encode_tensor(base, new, "BF16"))
    dice = random.Random(3)
    for _ in range(1500):
        damaged = delta.copy()
        for _ in range(dice.choice((1, 2, 30))):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        try:
            assert decode_tensor(memoryview(damaged), base, "BF16").size == base.size
        except DeltaError:
            continue


def test_noise_behind_a_sound_head_is_refused() -> None:
    base, _ = weights(5000, 0)
    dice = random.Random(4)
    refused = 0
    for _ in range(1500):
        groups, table = bytes([3, 120, 100, 0]), bytes([2, 0x80, 16, 0x80, 16])
        code = groups + table * 3 + dice.randbytes(16) + bytes([4, 1]) + dice.randbytes(8 + 4)
        try:
            decode_tensor(memoryview(bytes([STEPS, len(code)]) + code), base, "BF16")
        except DeltaError:
            refused += 1
    assert refused == 1500


# One group, of which every element has token 0; states that stay as they began; a word of further bits too many.
FURTHER = bytes([STEPS, 27, 1, 0, 1, 0x80, 32, *bytes([0, 0, 1, 0] * 4), 0, 1, 1, 0, 0, 0])


@pytest.mark.parametrize(
    ("delta", "dtype", "problem"),
    [
        (bytes([STEPS, 0]), "BF16", "too early"),
        (bytes([STEPS, 1, 0]), "BF16", "0 groups"),
        (bytes([STEPS, 2, 1, 5]), "BF16", "every exponent"),
        (bytes([STEPS, 2, 1, 5]), "I16", "in form 3"),
        (bytes([STEPS, 3, 2, 9, 9]), "BF16", "do not fall"),
        (bytes([STEPS, 3, 1, 0, 73]), "BF16", "73 tokens"),
        (bytes([STEPS, 4, 1, 0, 1, 7]), "BF16", "do not add up"),
        (bytes([STEPS, 22, 1, 0, 0, *bytes(19)]), "BF16", "bytes too many"),
        (bytes([STEPS, 21, 1, 0, 0, *bytes(18)]), "BF16", "the tokens do not end where they should"),
        (FURTHER, "BF16", "further bits do not end"),
        (bytes([FULL, 3, 1, 2, 3]), "BF16", "64 bytes has 3 in form 1"),
        (bytes([7, 0]), "U8", "in form 7"),
        (bytes([SAME, 1, 0]), "U8", "in form 0"),
        (bytes([XOR, 2, 1, 2]), "U8", "zstd frame is damaged"),
        (bytes([FULL, 0xC0, 0]), "U8", "longer form"),
        (bytes([FULL, 65]), "U8", "above 64"),
        (bytes([SAME, 0, 9]), "U8", "1 bytes too many"),
    ],
)
def test_what_no_coder_writes_is_named(delta: bytes, dtype: str, problem: str) -> None:
    with pytest.raises(DeltaError, match=problem):
        decode_tensor(memoryview(delta), np.zeros(64, np.uint8), dtype)


@pytest.mark.parametrize("size", [63, 65, 1 << 20])
def test_a_frame_of_another_size_is_refused(size: int) -> None:
    code = encode_tensor(np.ones(size, np.uint8), np.zeros(size, np.uint8), "U8")
    assert code[0] == XOR
    assert len(code) < 64
    with pytest.raises(DeltaError, match="zstd frame"):
        decode_tensor(memoryview(code), np.zeros(64, np.uint8), "U8")


# Whole models


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    made = (made_case([tensor_pair(first + one) for one in range(3 + first % 22)]) for first in range(20, 420, 20))
    return [case for case in made if case.base_index != case.new_index]


def test_damaged_deltas_make_no_other_weights(cases: list[Case]) -> None:
    assert [number for number in range(150 * WAYS) if is_accepted(cases[number % len(cases)], number)] == []


def test_a_delta_is_applied_whole(cases: list[Case]) -> None:
    for case in cases:
        made = applied(case, case.delta, case.base, case.new_index.digest)
        assert made.keys() == case.new.keys()
        assert all(made[name].tobytes() == data.tobytes() for name, data in case.new.items())
        assert DeltaReader(case.delta, case.base_index).index == case.new_index
    assert 0 < len(DeltaReader(case.delta, case.base_index).changed) < len(made)


def test_other_bases_targets_and_tensors_are_refused(cases: list[Case]) -> None:
    one, other = cases[:2]
    with pytest.raises(DeltaError, match="for another base"):
        applied(other, one.delta, other.base)
    with pytest.raises(DeltaError, match="does not lead to the version"):
        applied(one, one.delta, one.base, bytes(32))
    with pytest.raises(ValueError, match="publish the full weights"):
        encode_delta(one.base, one.base_index, other.new, other.new_index)
    short = {name: data[:-1] for name, data in cases[-1].base.items()}
    with pytest.raises(DeltaError, match="instead of"):
        applied(cases[-1], cases[-1].delta, short)


@pytest.mark.parametrize("at", [8, 40, 73])
def test_a_head_that_contradicts_itself_is_refused(cases: list[Case], at: int) -> None:
    """Base, target, or a tensor's hash, by a reader that would take any target."""
    damaged = bytearray(cases[-1].delta)
    damaged[at + 4] ^= 1
    with pytest.raises(DeltaError, match=r"another base|does not lead to the version"):
        DeltaReader(bytes(damaged), cases[-1].base_index)


def test_a_digest_that_contradicts_the_tensors_hashes_is_refused(cases: list[Case]) -> None:
    """The head names the very version that is expected, but a hash that is not that version's; and the hash of what
    the code leads to, but another version's digest. Nothing is decoded."""
    case = cases[-1]
    changed = DeltaReader(case.delta, case.base_index).changed
    hashes = {entry.name: entry.sha256 for entry in case.new_index.tensors}
    for name in changed:
        at = case.delta.index(hashes[name])
        other = case.delta[:at] + bytes(32) + case.delta[at + 32 :]
        with pytest.raises(DeltaError, match="does not lead to the version"):
            DeltaReader(other, case.base_index, case.new_index.digest)
    elsewhere = case.delta[:40] + bytes(32) + case.delta[72:]
    for expected in (None, bytes(32), case.new_index.digest):
        with pytest.raises(DeltaError, match="does not lead to the version"):
            DeltaReader(elsewhere, case.base_index, expected)


def test_a_hash_of_another_tensor_is_refused(cases: list[Case]) -> None:
    """The maker's own index lies: the digest fits, the bytes do not."""
    case = cases[-1]
    name = DeltaReader(case.delta, case.base_index).changed[0]
    lying = case.new_index.with_hashes({name: bytes(32)})
    delta = encode_delta(case.base, case.base_index, case.new, lying)
    with pytest.raises(DeltaError, match=f"{name} does not come out with its hash"):
        applied(case, delta, case.base, lying.digest)


@pytest.mark.parametrize(("dtype", "size"), [("BF16", 7), ("F128", 8), ("BOOL", 8)])
def test_an_entry_must_fit_its_bytes(dtype: str, size: int) -> None:
    with pytest.raises(ValueError, match=f"{size} bytes are no {dtype} tensor"):
        TensorEntry.of("w", dtype, (4,), np.zeros(size, np.uint8))


def test_a_name_stands_once() -> None:
    entry = TensorEntry.of("w", "U8", (1,), np.zeros(1, np.uint8))
    with pytest.raises(ValueError, match="two tensors"):
        WeightIndex.of([entry, entry])
