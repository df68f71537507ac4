"""One tensor's delta: bit for bit, short, and read from hostile bytes without harm."""

import random

import numpy as np
import pytest

from protocol.delta.delta import FULL, SAME, STEPS, XOR, DeltaError, decode_tensor, encode_tensor
from tests.protocol.delta.cases import Bytes, is_restored, tensor_pair


def weights(size: int, share: float, seed: int = 0) -> tuple[Bytes, Bytes]:
    """bf16 weights of a deviation of 0.02, before and after `share` of them moved by one place."""
    dice = np.random.default_rng(seed)
    base = ((dice.standard_normal(size) * 0.02).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    moves = (dice.random(size) < share) * dice.choice((-1, 1), size)
    return base.view(np.uint8), (base + moves).astype(np.uint16).view(np.uint8)


def test_tensors_of_every_type_come_back_bit_for_bit() -> None:
    assert [number for number in range(480) if not is_restored(tensor_pair(number))] == []


def test_two_segments_come_back() -> None:
    assert is_restored(tensor_pair(499))


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
