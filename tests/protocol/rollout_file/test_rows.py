"""Row bytes and the Merkle tree over them."""

import contextlib
import struct

import pytest
from eth_utils.crypto import keccak
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.rollout_file import merkle
from protocol.rollout_file.rows import MalformedFile, Rollout, decode_row, encode_row
from tests import openings

U32 = st.integers(0, 2**31 - 1)
F32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
LEAVES = st.lists(st.binary(max_size=40), min_size=1, max_size=40).map(lambda rows: [merkle.leaf(row) for row in rows])


@st.composite
def any_rollout(draw: st.DrawFn) -> Rollout:
    prompt, tokens = draw(st.lists(U32, min_size=1, max_size=20)), draw(st.lists(U32, min_size=1, max_size=70))
    slot, sample, target, seed = draw(U32), draw(U32), draw(U32), draw(st.integers(0, 2**64 - 1))
    logprobs = draw(st.lists(F32, min_size=len(tokens), max_size=len(tokens)))
    rewards, finish = draw(st.tuples(F32, F32, F32)), draw(st.integers(0, 1))
    proofs = tuple(bytes([n]) * 258 for n in range(-(-len(tokens) // 32)))
    return Rollout(slot, sample, seed, target, tuple(prompt), tuple(tokens), finish, tuple(logprobs), *rewards, proofs)


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


def test_three_leaves_by_hand() -> None:
    a, b, c = (merkle.leaf(text) for text in (b"a", b"b", b"c"))
    assert a == keccak(keccak(b"a"))
    pair = keccak(min(a, b) + max(a, b))
    assert merkle.root([a, b, c]) == keccak(min(pair, c) + max(pair, c))
    assert merkle.proof([a, b, c], 2) == [pair]


@given(LEAVES, st.data())
def test_every_leaf_proves_and_no_other(leaves: list[bytes], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(leaves) - 1))
    root, siblings = merkle.root(leaves), merkle.proof(leaves, index)
    assert merkle.proofs(leaves)[index] == siblings
    assert openings.verify(root, leaves[index], siblings)
    changed = [*leaves[:index], keccak(b"other"), *leaves[index + 1 :]]
    assert merkle.root(changed) != root
    stranger = keccak(leaves[index] + b"x")
    assert not openings.verify(root, stranger, siblings)
    assert not openings.verify(keccak(root), leaves[index], siblings)
    if siblings:
        assert not openings.verify(root, leaves[index], siblings[:-1])
        assert not openings.verify(root, leaves[index], [siblings[0][:-1], *siblings[1:]])


def test_refuses_no_leaves_and_bad_index() -> None:
    with pytest.raises(ValueError):
        merkle.root([])
    with pytest.raises(ValueError):
        merkle.proof([b"x" * 32], 1)
