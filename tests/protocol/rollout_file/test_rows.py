import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.rollout_file.rows import MalformedFile, Rollout, decode_row, encode_row

U32 = st.integers(0, 2**31 - 1)
F32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def any_rollout(draw: st.DrawFn) -> Rollout:
    tokens = draw(st.lists(U32, min_size=1, max_size=70))
    return Rollout(
        slot=draw(U32),
        sample=draw(U32),
        problem_seed=draw(st.integers(0, 2**64 - 1)),
        target_length=draw(U32),
        prompt_tokens=tuple(draw(st.lists(U32, min_size=1, max_size=20))),
        output_tokens=tuple(tokens),
        finish=draw(st.integers(0, 1)),
        logprobs=tuple(draw(st.lists(F32, min_size=len(tokens), max_size=len(tokens)))),
        task_reward=draw(F32),
        length_penalty=draw(F32),
        reward=draw(F32),
        proofs=tuple(bytes([n]) * 258 for n in range(-(-len(tokens) // 32))),
    )


def test_layout_by_hand() -> None:
    row = Rollout(1, 2, 3, 4, (5,), (6, 7), 1, (-1.0, -2.0), 1.0, 0.5, 0.5, (b"p" * 258,))
    expected = struct.pack(">IIQIIfff", 1, 2, 3, 4, 1, 1.0, 0.5, 0.5)
    expected += struct.pack(">II", 1, 5) + struct.pack(">III", 2, 6, 7) + struct.pack(">Iff", 2, -1.0, -2.0)
    expected += struct.pack(">I", 1) + b"p" * 258
    assert encode_row(row) == expected


@settings(max_examples=200)
@given(any_rollout())
def test_round_trip(row: Rollout) -> None:
    assert decode_row(encode_row(row)) == row


@given(any_rollout(), st.data())
def test_decoder_is_total(row: Rollout, data: st.DataObject) -> None:
    raw = bytearray(encode_row(row))
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(MalformedFile):
        decode_row(bytes(raw[:cut]))
    with pytest.raises(MalformedFile):
        decode_row(bytes(raw) + b"\0")
    raw[cut] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(MalformedFile):
        assert encode_row(decode_row(bytes(raw)))


@given(st.binary(max_size=400))
def test_decoder_refuses_noise(raw: bytes) -> None:
    try:
        row = decode_row(raw)
    except MalformedFile:
        return
    assert len(encode_row(row)) == len(raw)
