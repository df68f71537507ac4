"""Pieces as bytes: what comes back, how far it is off, how long it is, and what is refused."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from protocol.sites.codebook import BINS, Kind, bin_width, quantise
from protocol.sites.forms import (
    MalformedContribution,
    decode_float32,
    decode_int8,
    decode_sparse,
    encode_float32,
    encode_int8,
    encode_sparse,
    longest_piece,
)
from protocol.sites.layout import F32

KINDS: tuple[Kind, ...] = ("uniform", "quantile")
FINITE = st.floats(-(2.0**99), 2.0**99, width=32)
PIECES = nps.arrays(np.float32, st.integers(0, 600), elements=FINITE)
NORMAL = np.random.default_rng(0).standard_normal(1 << 16).astype(np.float32)


@given(values=PIECES, kind=st.sampled_from(KINDS))
def test_int8_comes_back_within_its_bins(values: F32, kind: Kind) -> None:
    codes, book = quantise(values, kind)
    assert (np.diff(book) >= 0).all()
    found = book[codes]
    for code in np.unique(codes):
        inside = values[codes == code]
        assert inside.min() <= np.nextafter(found[codes == code][0], np.float32(np.inf))
        assert np.nextafter(found[codes == code][0], np.float32(-np.inf)) <= inside.max()
    if kind == "uniform" and values.size:
        wide = values.astype(np.float64)
        within = np.abs(wide - wide.mean()) < 2.97 * wide.std()  # the outermost bins hold what lies outside, too
        slack = 1e-6 * float(np.abs(wide).max())
        assert (np.abs(found - wide)[within] <= bin_width(values) * 1.01 + slack).all()
        assert abs(found.mean(dtype=np.float64) - wide.mean()) <= slack


@given(values=PIECES, kind=st.sampled_from(KINDS))
def test_every_piece_is_read_again(values: F32, kind: Kind) -> None:
    code = encode_int8(values, kind)
    assert len(code) <= longest_piece(values.size)
    found = decode_int8(memoryview(code), values.size)
    assert found.dtype == np.float32
    if 3 * values.size <= 4 * BINS:
        assert found.tobytes() == values.tobytes(), "too short for a codebook: as it is"
    assert decode_float32(memoryview(encode_float32(values)), values.size).tobytes() == values.tobytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [0.0, -0.0, 1e-40, 0.1, -3e38])
def test_a_constant_is_exact(kind: Kind, value: float) -> None:
    values = np.full(5000, value, np.float32)
    code = encode_int8(values, kind)
    assert (decode_int8(memoryview(code), 5000) == values).all()
    assert len(code) < 1200, "packed"


@pytest.mark.parametrize("kind", KINDS)
def test_a_byte_per_element_and_a_small_error(kind: Kind) -> None:
    """Of a normal distribution: σ/148 root mean square is a uniform bin's 6σ/256/√12."""
    code = encode_int8(NORMAL, kind)
    assert len(code) <= NORMAL.size + 1025
    error = decode_int8(memoryview(code), NORMAL.size) - NORMAL
    assert np.sqrt((error**2).mean()) < {"uniform": 0.03, "quantile": 0.05}[kind]
    within = np.abs(NORMAL) < 2.9
    assert np.sqrt((error[within] ** 2).mean()) < {"uniform": 1 / 140, "quantile": 1 / 40}[kind]


def test_a_uniform_code_packs() -> None:
    """7.5 of 8 bits is the entropy of a normal distribution's codes."""
    assert len(encode_int8(NORMAL, "uniform")) < 0.96 * NORMAL.size + 1025


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(bad: float) -> None:
    values = NORMAL[:2000].copy()
    values[77] = bad
    for kind in KINDS:
        with pytest.raises(ValueError, match="cannot be quantised"):
            encode_int8(values, kind)
    with pytest.raises(MalformedContribution, match="infinity or NaN"):
        decode_float32(memoryview(encode_float32(values)), 2000)
    with pytest.raises(MalformedContribution, match="infinity or NaN"):
        decode_sparse(memoryview(encode_sparse(NORMAL[:2000], values)), NORMAL[:2000])


BOOK = np.linspace(-1, 1, BINS, dtype=np.float32)
PACKED = encode_int8(NORMAL, "uniform")


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "form -1"),
        (b"\3" + bytes(1024 + 600), "form 3"),
        (b"\1" + bytes(1023), "form 1"),
        (b"\0" + bytes(4 * 600 - 1), "not 2400"),
        (b"\1" + BOOK.tobytes() + bytes(599), "599 codes"),
        (b"\1" + BOOK[::-1].tobytes() + bytes(600), "ascend"),
        (b"\1" + np.full(BINS, np.nan, np.float32).tobytes() + bytes(600), "NaN"),
        (b"\2" + BOOK.tobytes() + bytes(600), "zstd"),
        (PACKED, "zstd|codes"),
        (PACKED[:-5], "zstd"),
    ],
)
def test_hostile_codes_are_refused(data: bytes, word: str) -> None:
    with pytest.raises(MalformedContribution, match=word):
        decode_int8(memoryview(data), 600)


@given(data=st.binary(max_size=60), size=st.integers(0, 20))
def test_any_bytes_are_read_or_refused(data: bytes, size: int) -> None:
    base = NORMAL[:size]
    for read in (decode_int8, decode_float32):
        with contextlib.suppress(MalformedContribution):
            assert read(memoryview(data), size).size == size
    with contextlib.suppress(MalformedContribution):
        assert decode_sparse(memoryview(data), base).size == size
