"""Our way into libsecp256k1 against coincurve's: the same keys, the same refusals."""

import hashlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from coincurve import PrivateKey, PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.secp256k1 import recover

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
FIELD = 2**256 - 2**32 - 977
EDGES = [0, 1, 2, ORDER // 2, ORDER // 2 + 1, ORDER - 1, ORDER, ORDER + 1, FIELD - 1, FIELD, 2**256 - 1]
scalars = st.one_of(st.sampled_from(EDGES), st.integers(0, 2**256 - 1))
digests = st.one_of(
    st.binary(min_size=32, max_size=32), st.sampled_from(EDGES).map(lambda one: one.to_bytes(32, "big"))
)


def theirs(digest: bytes, rs: bytes, parity: int) -> bytes | None:
    try:
        key = PublicKey.from_signature_and_message(rs + bytes([parity]), digest, hasher=None)
    except Exception:
        return None
    return key.format(compressed=False)[1:]


def signed(digest: bytes, seed: bytes = b"key") -> tuple[bytes, int, bytes]:
    """r ‖ s, parity and the key that signed."""
    key = PrivateKey(hashlib.sha256(seed).digest())
    signature = key.sign_recoverable(digest, hasher=None)
    return signature[:64], signature[64], key.public_key.format(compressed=False)[1:]


@given(digests, st.binary(max_size=8))
def test_the_signer_is_recovered(digest: bytes, seed: bytes) -> None:
    rs, parity, key = signed(digest, seed)
    assert recover(digest, rs, parity) == key


@given(digests, scalars, scalars, st.integers(0, 1))
def test_any_numbers_are_taken_and_refused_alike(digest: bytes, r: int, s: int, parity: int) -> None:
    rs = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    assert recover(digest, rs, parity) == theirs(digest, rs, parity)


@settings(max_examples=300)
@given(st.binary(min_size=32, max_size=32), st.integers(0, 64 * 8 - 1), st.booleans())
def test_a_flipped_bit_gives_the_same_other_key_or_none(digest: bytes, bit: int, other: bool) -> None:
    rs, parity, key = signed(digest)
    flipped = (int.from_bytes(rs, "big") ^ 1 << bit).to_bytes(64, "big")
    found = recover(digest, flipped, parity ^ other)
    assert found == theirs(digest, flipped, parity ^ other)
    assert found != key


@pytest.mark.parametrize("place", [0, 32])
@pytest.mark.parametrize("value", [0, ORDER, ORDER + 1, 2**256 - 1])
def test_zero_and_numbers_beyond_the_order_fit_no_key(place: int, value: int) -> None:
    rs, parity, _ = signed(bytes(31) + b"\1")
    bad = rs[:place] + value.to_bytes(32, "big") + rs[place + 32 :]
    assert recover(bytes(31) + b"\1", bad, parity) is None


@pytest.mark.parametrize(("digest", "rs", "parity"), [(31, 64, 0), (33, 64, 0), (32, 63, 0), (32, 65, 0), (32, 64, 2)])
def test_nothing_of_another_size_reaches_the_library(digest: int, rs: int, parity: int) -> None:
    with pytest.raises(ValueError):
        recover(bytes(digest), bytes(rs), parity)


def test_threads_do_not_disturb_one_another() -> None:
    digests = [hashlib.sha256(b"%d" % number).digest() for number in range(400)]
    cases = [(digest, *signed(digest, digest[:4])) for digest in digests]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda case: recover(case[0], case[1], case[2]), cases))
    assert found == [key for *_, key in cases]
