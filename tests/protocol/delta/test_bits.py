"""The small parts of the delta codec: words, masks, streams of bits, tokens; and that the format is what it was."""

import hashlib
import random
from typing import Any

import numpy as np
import pytest

from protocol.compiled import compiled
from protocol.delta.bits import (
    DENSE_GROUPS,
    GAP_BITS,
    LONGEST,
    LONGEST_UNARY,
    SLACK,
    SPARSE_GROUPS,
    TOKENS,
    ahead,
    at_end,
    equals,
    finished,
    gap_code,
    load,
    moved,
    ones,
    place_of,
    put,
    read_gap,
    step_between,
    store,
    take,
    zeros_above,
    zeros_below,
)
from protocol.delta.rans import LANES, LOW, SCALE, slots, take_token, write_tokens
from protocol.delta.tensors import decode_tensor, encode_tensor
from tests.protocol.delta.format_cases import format_cases

FORMAT = "6037640376b0925ba67a3dbbae3a944dd76cf69d4b4276498c05d759b1ec56c5"
"""SHA-256 of what the coder before this one, which went from element to element, made of `format_cases`."""


@compiled
def of_word(word: Any) -> Any:
    return ones(word), zeros_below(word), zeros_above(word)


@compiled
def copied(data: Any, at: int, value: int, out: Any) -> Any:
    store(out, at, load(data, at))
    return equals(data, at, np.uint8(value))


def some_words() -> list[int]:
    dice = random.Random(1)
    return [0, 1, 1 << 63, (1 << 64) - 1, *(dice.getrandbits(64) & dice.getrandbits(64) for _ in range(300))]


def test_the_format_is_what_it_was() -> None:
    digest = hashlib.sha256()
    for dtype, base, new in format_cases():
        delta = encode_tensor(base, new, dtype)
        digest.update(delta)
        assert decode_tensor(memoryview(delta), base, dtype).tobytes() == new.tobytes()
    assert digest.hexdigest() == FORMAT


def test_bits_of_a_word() -> None:
    for word in some_words():
        below = (word & -word).bit_length() - 1 if word else 64
        assert of_word(np.uint64(word)) == (word.bit_count(), below, 64 - word.bit_length())


def test_places_of_a_words_bits() -> None:
    for word in some_words():
        places = [at for at in range(64) if word >> at & 1]
        assert [place_of(np.uint64(word), np.uint64(rank)) for rank in range(len(places))] == places


@pytest.mark.parametrize("at", [0, 1, 7, 136])
def test_bytes_at_any_place(at: int) -> None:
    data, out = np.frombuffer(random.Random(2).randbytes(200), np.uint8) % 5, np.zeros(200, np.uint8)
    found = int(copied(data, at, 3, out))
    assert [found >> lane & 1 for lane in range(64)] == (data[at : at + 64] == 3).tolist()
    assert out.tobytes() == bytes(at) + data[at : at + 8].tobytes() + bytes(200 - 8 - at)


@pytest.mark.parametrize("room", [0, 40, 4000])
def test_a_stream_says_what_it_was_told_and_keeps_within_its_room(room: int) -> None:
    dice = random.Random(3)
    lengths = [dice.choice((0, 1, 7, 8, 33, LONGEST)) for _ in range(900)]
    values = [dice.getrandbits(length) if length else 0 for length in lengths]
    memory = np.full(room + SLACK + 16, 0xAA, np.uint8)
    stream, place, held, count = memory[8 : 8 + room + SLACK], 0, np.uint64(0), np.uint64(0)
    for value, length in zip(values, lengths, strict=True):
        place, held, count = put(stream, place, held, count, np.uint64(value), np.uint64(length))
    written = finished(stream, place, held, count)
    assert written == (sum(lengths) + 31) // 32
    assert memory[:8].tobytes() == memory[-8:].tobytes() == b"\xaa" * 8
    if room < 4000:
        return
    told = np.zeros(4 * written + SLACK, np.uint8)
    told[:-SLACK] = stream[: told.size - SLACK]
    bit = 0
    assert not at_end(told, bit)
    for value, length in zip(values, lengths, strict=True):
        bit, read = take(told, bit, length)
        assert read == value
    assert at_end(told, bit)
    assert not at_end(told, bit + 64)
    assert int(ahead(told, 10 * told.size)) == 0


@pytest.mark.parametrize("width", [0, 1, 5, 22])
def test_gaps_come_back(width: int) -> None:
    for gap in [0, 1, 2, 1000, (LONGEST_UNARY << width) - 1, LONGEST_UNARY << width, (1 << GAP_BITS) - 1]:
        if gap >> GAP_BITS:
            continue
        code, length = gap_code(np.uint64(gap), np.uint64(width))
        behind = np.uint64(int(code) | (1 << 64) - (1 << int(length)))
        assert read_gap(behind, np.uint64(width)) == (gap, length)
        assert int(code).bit_length() <= length <= LONGEST_UNARY + GAP_BITS


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


@pytest.mark.parametrize("shares", [(2048,), (2047, 1), (1, 2047), (683, 682, 683), (1,) * 72, (1025, 1023), (3, 2045)])
def test_tokens_come_back_with_every_frequency(shares: tuple[int, ...]) -> None:
    """A division by any frequency must be exact, whatever the state."""
    table, group = np.zeros((DENSE_GROUPS, TOKENS), np.int64), 4
    table[group, : len(shares)] = (*shares[:-1], SCALE - sum(shares[:-1]))
    dice = random.Random(5)
    # Rare tokens as often as common ones, so that states become large.
    tokens = [dice.randrange(len(shares)) for _ in range(5003)]
    symbols, codes = np.array(tokens, np.uint16) + group * TOKENS, np.zeros(5100, np.uint16)
    first, states = write_tokens(symbols.astype(np.uint16), len(tokens), table, codes)
    written, place, turning = np.append(codes[first:], np.uint16(0)), np.uint64(0), list(states)
    for number, token in enumerate(tokens):
        lane = number % LANES
        turning[lane], place, read = take_token(
            np.uint64(turning[lane]), np.uint64(group + SPARSE_GROUPS), slots(table), written, place
        )
        assert read == token
    assert turning == [LOW] * LANES
    assert place == codes.size - first
