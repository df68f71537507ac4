"""The compiled part of the delta codec: steps, tokens, further bits; and that the format is what it was."""

import hashlib
import random

import numpy as np
import pytest

from protocol.delta.codes import GROUPS, LANES, LOW, SCALE, TOKENS, list_symbols, moved, step_between, write_tokens
from protocol.delta.delta import FORMATS, decode_tensor, encode_tensor
from tests.protocol.delta.format_cases import format_cases

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
