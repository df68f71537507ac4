"""Pieces and shards as bytes: what comes back, how far it is off, how long it is, and what is refused."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from diloco import codec
from diloco.config import Mode
from diloco.outer import encode_payload
from tests.diloco.samples import EXPECTED, KEYS, LAYOUT, RUN, SHARDS, STATE, payload_of, random_tensors

FINITE = st.floats(-(2.0**99), 2.0**99, width=32)
PIECES = nps.arrays(np.float32, st.integers(0, 600), elements=FINITE)
NORMAL = np.random.default_rng(0).standard_normal(1 << 16).astype(np.float32)
ME, OTHER = str(KEYS[0].address), str(KEYS[1].address)


@given(values=PIECES)
def test_int8_comes_back_within_its_bins(values: codec.F32) -> None:
    codes, book = codec.quantise(values)
    assert (np.diff(book) >= 0).all()
    found = book[codes]
    for code in np.unique(codes):
        inside = values[codes == code]
        assert inside.min() <= np.nextafter(found[codes == code][0], np.float32(np.inf))
        assert np.nextafter(found[codes == code][0], np.float32(-np.inf)) <= inside.max()
    if values.size:
        wide = values.astype(np.float64)
        within = np.abs(wide - wide.mean()) < 2.97 * wide.std()  # the outermost bins hold what lies outside, too
        slack, width = 1e-6 * float(np.abs(wide).max()), 6 * codec.moments(values)[1] / codec.BINS
        assert (np.abs(found - wide)[within] <= width * 1.01 + slack).all()
        assert abs(found.mean(dtype=np.float64) - wide.mean()) <= slack


@given(values=PIECES)
def test_every_piece_is_read_again(values: codec.F32) -> None:
    code = codec.encode_int8(values)
    assert len(code) <= codec._max_piece(values.size)
    found = codec.decode_int8(memoryview(code), values.size)
    assert found.dtype == np.float32
    if 3 * values.size <= 4 * codec.BINS:
        assert found.tobytes() == values.tobytes(), "too short for a codebook: as it is"
    plain = codec.encode_float32(values)
    assert codec.decode_float32(memoryview(plain), values.size).tobytes() == values.tobytes()


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-40, 0.1, -3e38])
def test_a_constant_is_exact(value: float) -> None:
    values = np.full(5000, value, np.float32)
    code = codec.encode_int8(values)
    assert (codec.decode_int8(memoryview(code), 5000) == values).all()
    assert len(code) < 1200, "packed"


def test_less_than_a_byte_per_element_and_a_small_error() -> None:
    """Of a normal distribution: σ/148 root mean square is a bin's 6σ/256/√12; 7.5 of 8 bits is the codes' entropy."""
    code = codec.encode_int8(NORMAL)
    assert len(code) < 0.96 * NORMAL.size + 1025
    error = codec.decode_int8(memoryview(code), NORMAL.size) - NORMAL
    assert np.sqrt((error**2).mean()) < 0.03
    assert np.sqrt((error[np.abs(NORMAL) < 2.9] ** 2).mean()) < 1 / 140


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(bad: float) -> None:
    values = NORMAL[:2000].copy()
    values[77] = bad
    with pytest.raises(ValueError, match="cannot be quantised"):
        codec.encode_int8(values)
    with pytest.raises(codec.MalformedContribution, match="infinity or NaN"):
        codec.decode_float32(memoryview(codec.encode_float32(values)), 2000)
    with pytest.raises(codec.MalformedContribution, match="infinity or NaN"):
        codec.decode_sparse(memoryview(codec.encode_sparse(NORMAL[:2000], values)), NORMAL[:2000])


BOOK = np.linspace(-1, 1, codec.BINS, dtype=np.float32)
PACKED = codec.encode_int8(NORMAL)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "form -1"),
        (b"\3" + bytes(1024 + 600), "form 3"),
        (b"\1" + bytes(1023), "form 1"),
        (b"\0" + bytes(4 * 600 - 1), "not 2400"),
        (b"\1" + BOOK.tobytes() + bytes(599), "599 codes"),
        (b"\1" + BOOK[::-1].tobytes() + bytes(600), "ascend"),
        (b"\1" + np.full(codec.BINS, np.nan, np.float32).tobytes() + bytes(600), "NaN"),
        (b"\2" + BOOK.tobytes() + bytes(600), "zstd"),
        (PACKED, "zstd|codes"),
        (PACKED[:-5], "zstd"),
    ],
)
def test_hostile_codes_are_refused(data: bytes, word: str) -> None:
    with pytest.raises(codec.MalformedContribution, match=word):
        codec.decode_int8(memoryview(data), 600)


@given(data=st.binary(max_size=60), size=st.integers(0, 20))
def test_any_bytes_are_read_or_refused(data: bytes, size: int) -> None:
    base = NORMAL[:size]
    for read in (codec.decode_int8, codec.decode_float32):
        with contextlib.suppress(codec.MalformedContribution):
            assert read(memoryview(data), size).size == size
    with contextlib.suppress(codec.MalformedContribution):
        assert codec.decode_sparse(memoryview(data), base).size == size


GRADIENT = random_tensors(5, 0.01)
PAYLOAD = payload_of(ME, GRADIENT)


def decoded(data: bytes, shard: int = 0, worker: str = ME) -> list[codec.F32]:
    pieces = SHARDS[shard]
    return codec.decode_shard(data, EXPECTED.binding(worker, shard), pieces, "int8", codec.cut(STATE.weights, pieces))


def test_a_payload_is_its_workers_alone() -> None:
    joined = LAYOUT.empty()
    for at, one in enumerate(PAYLOAD):
        codec.paste(joined, SHARDS[at], decoded(one, at))
    assert max(float(np.abs(joined[name] - GRADIENT[name]).max(initial=0)) for name in joined) < 0.02
    with pytest.raises(codec.MalformedContribution, match="was not made by"):
        decoded(PAYLOAD[0], 0, OTHER)
    with pytest.raises(codec.MalformedContribution, match="was not made by"):
        decoded(PAYLOAD[1], 0)
    assert not {*PAYLOAD} & {*payload_of(OTHER, GRADIENT)}, "the same values have other hashes elsewhere"


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "too early"),
        (b"MUSTERD0" + PAYLOAD[0][8:], "is no shard"),
        (PAYLOAD[0][:-1], "too early"),
        (PAYLOAD[0] + b"\0", "too many"),
        (PAYLOAD[0][:40] + b"\xff\xff\xff\xff\x7f" + PAYLOAD[0][45:], "above"),
        (bytes(codec.max_shard_bytes(SHARDS[0]) + 1), "at most are honest"),
    ],
)
def test_a_damaged_shard_is_refused(data: bytes, word: str) -> None:
    with pytest.raises(codec.MalformedContribution, match=word):
        decoded(data)


@pytest.mark.parametrize("mode", ["float32", "sparse"])
def test_other_modes_come_back_and_fit_their_limit(mode: Mode) -> None:
    run = RUN.model_copy(update={"settings": RUN.settings.model_copy(update={"mode": mode})})
    expected = replace(EXPECTED, run=run)
    payload, error = encode_payload(STATE, GRADIENT, expected, ME)
    for at, (data, pieces) in enumerate(zip(payload, SHARDS, strict=True)):
        assert len(data) <= codec.max_shard_bytes(pieces)
        sent = codec.decode_shard(data, expected.binding(ME, at), pieces, mode, codec.cut(STATE.weights, pieces))
        left = codec.cut(random_tensors(0, 0.0) if error is None else error, pieces)
        for one, rest, value in zip(sent, left, codec.cut(GRADIENT, pieces), strict=True):
            np.testing.assert_allclose(one + rest, value, rtol=0, atol=1e-6)


# Error feedback: what is sent and what is left out are together exactly what was found.

WEIGHTS = nps.arrays(np.float32, 200, elements=st.floats(-4, 4, width=32))
EPSILON = 2.0**-24


def weights_of(seed: int, size: int = 20_000) -> dict[str, codec.F32]:
    return {"w": (0.05 * np.random.default_rng(seed).standard_normal(size)).astype(np.float32)}


@given(values=nps.arrays(np.float32, 50, elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_bfloat16_is_torchs(values: codec.F32) -> None:
    theirs = (torch.tensor(values) + 0.0).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    assert (codec.bfloat16_bits(values) == theirs).all()


@given(values=WEIGHTS, found=WEIGHTS, scale=st.sampled_from([1.0, 2.0**-7, 2.0**-12]))
def test_sent_and_left_out_are_what_was_found(values: codec.F32, found: codec.F32, scale: float) -> None:
    gradient = (found * np.float32(scale)).astype(np.float32)
    after, left = codec.select_visible({"w": values}, {"w": gradient})
    sent, error = values - after["w"], left["w"]
    off = sent.astype(np.float64) + error.astype(np.float64) - gradient
    size = np.abs(values.astype(np.float64)) + np.abs(gradient)
    assert (np.abs(off) <= EPSILON * EPSILON * 4 * size).all(), "no more than the rounding of a rounding"
    hidden = codec.bfloat16_bits(values) == codec.bfloat16_bits(values - gradient)
    assert (sent[hidden] == 0).all()
    assert error[hidden].tobytes() == gradient[hidden].tobytes()
    assert (np.abs(error[~hidden]) <= 2 * EPSILON * size[~hidden]).all(), "only rounding is left of what is sent"


def test_nothing_is_lost_over_many_steps() -> None:
    """Steps far below a bfloat16's: hardly any is visible alone, all arrive."""
    weights, dice = weights_of(0), np.random.default_rng(1)
    drift = (1e-5 * dice.standard_normal(20_000)).astype(np.float32)
    total, arrived, shares, error = np.zeros(20_000), np.zeros(20_000), [], None
    for _ in range(40):
        gradient = {"w": drift + (1e-5 * dice.standard_normal(20_000)).astype(np.float32)}
        after, error = codec.select_visible(weights, gradient, error)
        sent = weights["w"] - after["w"]
        total += gradient["w"]
        arrived += sent
        weights = {"w": weights["w"] - sent}
        shares.append(np.count_nonzero(sent) / sent.size)
    assert max(shares) < 0.2
    assert error is not None
    assert np.abs(total - arrived - error["w"]).max() <= 40 * EPSILON * float(np.abs(total).max() * 4)
    assert (np.abs(arrived - total) <= np.abs(weights["w"]) * 2.0**-7 + 1e-6).all(), "below one bfloat16"


def test_readers_take_exactly_what_the_worker_counts_as_sent() -> None:
    weights = weights_of(2)["w"]
    after, _ = codec.select_visible({"w": weights}, {"w": weights_of(3)["w"] * np.float32(1e-3)})
    code, sent = codec.encode_sparse(weights, after["w"]), weights - after["w"]
    assert codec.decode_sparse(memoryview(code), weights).tobytes() == sent.tobytes()
    assert len(code) < np.count_nonzero(sent) * 5, "a gap and a short step for each"


def test_overflow_is_refused() -> None:
    huge = np.full(3, 3e38, np.float32)
    with pytest.raises(codec.MalformedContribution, match="infinity"):
        codec.select_visible({"w": huge}, {"w": -huge})
