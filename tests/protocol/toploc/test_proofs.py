"""Proofs against an independent, slow TOPLOC in plain Python, and the verifier's statistics."""

import importlib
import os
import random
import statistics

import numpy as np
import numpy.typing as npt
import pytest
import torch

from benchmarks.verification.toploc import equality
from protocol.errors import MusterError
from protocol.toploc import kernels
from protocol.toploc import proofs as toploc
from protocol.toploc.codec import BUCKETS, CHUNK, PRIME, TOP_K, MalformedProof, parse_many

PEER = os.environ.get("TOPLOC_PEER", "")


def plain_proof(flat: torch.Tensor) -> bytes:
    """TOPLOC of one chunk with Python's integers: torch.topk, modulus scan, Lagrange by divided differences."""
    index = flat.abs().topk(TOP_K).indices.tolist()
    y = [v & 0xFFFF for v in flat.view(torch.int16)[index].tolist()]
    modulus = next(m for m in range(PRIME, 0, -1) if len({i % m for i in index}) == TOP_K)
    x = [i % modulus for i in index]
    table = [v % PRIME for v in y]
    for k in range(1, TOP_K):
        for i in range(TOP_K - 1, k - 1, -1):
            table[i] = (table[i] - table[i - 1]) * pow(x[i] - x[i - k], -1, PRIME) % PRIME
    coefficients = [0] * TOP_K
    for i in range(TOP_K - 1, -1, -1):
        shifted = [0, *coefficients[:-1]]
        coefficients = [(s - x[i] * c) % PRIME for s, c in zip(shifted, coefficients, strict=True)]
        coefficients[0] = (coefficients[0] + table[i]) % PRIME
    return b"".join(v.to_bytes(2, "big") for v in [modulus, *coefficients])


def states(tokens: int, width: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(tokens, width, generator=generator) * scale).bfloat16()


@pytest.mark.parametrize(
    ("tokens", "width"), [(32, 128), (40, 128), (1, 128), (3, 300), (32, 256), (33, 896), (32, 5120)]
)
def test_equal_to_plain_toploc(tokens: int, width: int) -> None:
    hidden = states(tokens, width)
    expected = [plain_proof(hidden[at : at + CHUNK].flatten()) for at in range(0, tokens, CHUNK)]
    assert toploc.build(hidden) == expected


@pytest.mark.parametrize("width", [128, 256, 896])
def test_equal_with_awkward_values(width: int) -> None:
    """Many ties, zeros of both signs, subnormals, infinities, all equal."""
    source = torch.Generator().manual_seed(1)
    few = torch.tensor([0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40, 3e38, float("inf"), -float("inf"), 0.5])
    for hidden in (
        few[torch.randint(0, 10, (CHUNK, width), generator=source)],
        torch.ones(CHUNK, width),
        torch.zeros(CHUNK, width),
        torch.randn(CHUNK, width, generator=source) * 1e-39,
        torch.randint(-3, 4, (CHUNK, width), generator=source).float(),
    ):
        flat = hidden.bfloat16()
        assert toploc.build(flat) == [plain_proof(flat.flatten())]
        (errors,) = toploc.verify(flat, toploc.build(flat))
        assert (errors.exponent_mismatches, errors.mantissa_mean) == (0, 0.0)


def test_colliding_indices_lower_the_modulus() -> None:
    hidden = torch.zeros(CHUNK, 5120).bfloat16()
    flat = hidden.view(-1)
    spots = [*range(0, 63), *(PRIME + i for i in range(0, 63)), 5, 65496 + 9]
    for number, spot in enumerate(dict.fromkeys(spots)):
        flat[spot] = 2.0 + number
    flat[100000:100010] = 1.0
    (proof,) = toploc.build(hidden)
    assert proof == plain_proof(flat)
    assert int(parse_many([proof])[0, 0]) < PRIME
    assert toploc.verify(hidden, [proof])[0].exponent_mismatches == 0


def test_many_equals_one_by_one() -> None:
    hidden = [states(tokens, 128, seed=tokens) for tokens in (1, 5, 32, 33, 64, 100, 31, 5)]
    assert toploc.build_many(hidden) == [toploc.build(one) for one in hidden]
    with torch.inference_mode():
        proofs = toploc.build_many(hidden)
    found = [one.chunks for one in toploc.compare_many(hidden, proofs)]
    assert found == [toploc.verify(a, b) for a, b in zip(hidden, proofs, strict=True)]


def scratch(width: int = 0) -> tuple[kernels.Spots, kernels.Items]:
    return np.empty((2, kernels.PART), dtype=np.int64), np.empty(max(width, kernels.ROOM), dtype=np.int64)


def check_choice(row: npt.NDArray[np.uint16]) -> None:
    """The prover keeps of a row what torch.topk keeps."""
    spots, items = scratch(len(row))
    kernels.largest(row.view(np.uint64), len(row), spots, items)
    expected = torch.from_numpy(row.view(np.int16)).topk(TOP_K).indices.sort().values.numpy()
    assert np.array_equal(np.sort(items[:TOP_K] & 0xFFFFFFFF), expected)


@pytest.mark.parametrize("width", [128, 132, 1000, 4096, 8188, 8192, 9000, 28672, 163840])
def test_prover_chooses_as_topk(width: int) -> None:
    """Ties among few values, few ties, sorted rows both ways, one value, and two peaks."""
    source = np.random.default_rng(width)
    plain = np.abs(source.standard_normal((6, width)) * 3000)
    bits = np.concatenate([plain, plain // 100, plain // 2000, np.sort(plain), -np.sort(-plain), plain * 0 + 7])
    bits = np.concatenate([bits, np.where(plain > 3000, 32000, plain)]).astype(np.uint16) & 0x7FFF
    for row in bits:
        check_choice(row)


def test_prover_chooses_as_topk_after_bad_pivots() -> None:
    """A row on which medians of three split off two values at a time: introselect gives up and builds a heap."""
    values: dict[int, int] = {}
    width, places, last = 1000, list(range(1000)), 1000
    for _ in range(30):
        for place in (1, last // 2):
            values.setdefault(places[place], len(values))
        value = [values.get(place, width) for place in places]
        middle = last // 2
        places[0], places[middle] = places[middle], places[0]
        value[0], value[middle] = value[middle], value[0]
        left, right = 1, last
        while True:
            while value[left] > value[0]:
                left += 1
            right -= 1
            while value[0] > value[right]:
                right -= 1
            if left >= right:
                break
            for swapped in (value, places):
                swapped[left], swapped[right] = swapped[right], swapped[left]
            left += 1
        last = left
    check_choice(np.array([values.get(place, 1000 + place) for place in range(width)], dtype=np.uint16))


@pytest.mark.parametrize("width", [128, 256, 260, 4096, 28672, 163840])
def test_verifier_leaves_out_ties_at_the_cut(width: int) -> None:
    source = np.random.default_rng(width)
    plain = np.abs(source.standard_normal((6, width)) * 3000)
    bits = np.concatenate([plain, plain // 100, plain // 2000, np.sort(plain), plain * 0 + 7]).astype(np.uint16)
    spots, items = scratch()
    for row in bits:
        cut = int(np.sort(row)[-TOP_K])
        expected = np.flatnonzero(row >= cut) if (row >= cut).sum() == TOP_K else np.flatnonzero(row > cut)
        for guess in (0, max(0, cut - 4), cut, cut + 1, 0x7FFF):
            count, found = kernels.untied(row.view(np.uint64), guess, spots, items)
            assert found == cut
            assert np.array_equal(np.sort(items[:count] & 0xFFFFFFFF), expected)


def plain_errors(hidden: torch.Tensor, proof: bytes) -> tuple[int, float]:
    """The reference's comparison over the verifier's whole top 128."""
    index = hidden.flatten().abs().topk(TOP_K).indices.tolist()
    own = [v & 0x7FFF for v in hidden.flatten().view(torch.int16)[index].tolist()]
    modulus, *coefficients = parse_many([proof])[0].tolist()
    found = [sum(c * pow(i % modulus, k, PRIME) for k, c in enumerate(coefficients)) % PRIME & 0x7FFF for i in index]
    mantissas = [abs((a & 127) - (b & 127)) for a, b in zip(own, found, strict=True) if a >> 7 == b >> 7]
    return TOP_K - len(mantissas), statistics.fmean(mantissas or [128.0])


@pytest.mark.parametrize("noise", [0.0, 0.003, 0.05, 1.0])
def test_errors_equal_the_plain_comparison(noise: float) -> None:
    hidden = list(torch.split(states(64 * CHUNK, 128, seed=3), CHUNK))
    proofs = [toploc.build(chunk)[0] for chunk in hidden]
    compared = 0
    for number, (chunk, proof) in enumerate(zip(hidden, proofs, strict=True)):
        mine = (chunk.float() + noise * states(CHUNK, 128, seed=1000 + number).float()).bfloat16()
        (errors,) = toploc.verify(mine, [proof])
        if errors.positions == TOP_K:
            compared += 1
            assert (errors.exponent_mismatches, errors.mantissa_mean) == pytest.approx(plain_errors(mine, proof))
        assert (errors.exponent_mismatches > 60) == (noise == 1.0)
    assert compared >= 3


def test_ties_at_the_cut_are_no_errors() -> None:
    """The prover keeps other members of a tie than the verifier's topk would."""
    hidden = torch.zeros(CHUNK, 128).bfloat16()
    flat = hidden.view(-1)
    flat[:120] = torch.arange(120).bfloat16() + 10
    flat[200:260] = 5.0
    kept = np.concatenate([np.arange(120), np.arange(252, 260)])[None]
    values = flat.view(torch.int16).numpy().view(np.uint16)[kept[0]][None]
    coefficients = polynomial(kept[0], values[0])
    proof = b"".join(int(v).to_bytes(2, "big") for v in [PRIME, *coefficients])
    (errors,) = toploc.verify(hidden, [proof])
    assert (errors.exponent_mismatches, errors.mantissa_mean, errors.positions) == (0, 0.0, 120)
    assert plain_errors(hidden, proof)[0] > 0


def polynomial(points: npt.NDArray[np.int64], values: npt.NDArray[np.int64]) -> list[int]:
    """Coefficients 0 … 65496 of the polynomial through 128 points."""
    powers, room = np.empty((kernels.STEP + 1, TOP_K)), np.empty((6, TOP_K + kernels.QUAD + 1))
    out = np.empty(TOP_K)
    kernels.powers_of(np.where(points > PRIME // 2, points - PRIME, points).astype(np.float64), powers)
    kernels.interpolate(values.astype(np.float64), powers, kernels.inverses(), room, out)
    again = np.empty(TOP_K)
    kernels.evaluate(out, powers, again)
    assert np.array_equal(again.astype(np.int64) % PRIME, values.astype(np.int64) % PRIME)
    return [int(value) % PRIME for value in out]


@pytest.mark.parametrize("seed", range(40))
def test_field(seed: int) -> None:
    source = random.Random(seed)
    x = source.sample(range(PRIME), TOP_K) if seed else [*range(64), *range(PRIME - 64, PRIME)]
    y = [source.randrange(1 << 16) if seed % 4 else 65535 * (seed % 8 == 0) for _ in range(TOP_K)]
    coefficients = polynomial(np.array(x), np.array(y))
    for at, value in zip(x, y, strict=True):
        horner = 0
        for coefficient in reversed(coefficients):
            horner = (horner * at + coefficient) % PRIME
        assert horner == value % PRIME


def test_inverses() -> None:
    table = kernels.inverses()
    assert all(int(table[a]) * a % PRIME == 1 for a in range(1, PRIME))
    assert abs(table).max() <= PRIME // 2


def test_forgeries_are_far_off() -> None:
    hidden = states(320, 128)
    source = random.Random(0)
    forged = [b"\xff\xd9" + bytes(256)] * 5
    forged += [b"\xff\xd9" + b"".join(source.randrange(PRIME).to_bytes(2, "big") for _ in range(128)) for _ in range(5)]
    assert min(e.exponent_mismatches for e in toploc.verify(hidden, forged)) > 80
    swapped = toploc.build(states(320, 128, seed=9))
    assert min(e.exponent_mismatches for e in toploc.verify(hidden, swapped)) > 80


def test_bad_input_is_named() -> None:
    hidden = states(40, 128)
    proofs = toploc.build(hidden)
    for wrong in (proofs[:1], proofs + proofs[:1], []):
        with pytest.raises(MalformedProof, match="proofs for 40 tokens"):
            toploc.verify(hidden, wrong)
    with pytest.raises(MusterError, match="bfloat16"):
        toploc.build(hidden.float())
    with pytest.raises(MusterError, match="bfloat16"):
        toploc.build(hidden[:0])
    with pytest.raises(MusterError, match="128"):
        toploc.build(hidden[:1, :64])
    broken = hidden.clone()
    broken[3, 3] = float("nan")
    for kind in (broken, torch.full_like(hidden, float("nan"))):
        with pytest.raises(MusterError, match="NaN"):
            toploc.build(kind)
        with pytest.raises(MusterError, match="NaN"):
            toploc.verify(kind, proofs)


@pytest.mark.slow
@pytest.mark.skipif(not PEER, reason="make test-all builds the reference and names its folder in TOPLOC_PEER")
@pytest.mark.parametrize(("width", "chunks"), [(128, 6000), (896, 3000), (5120, 1000)])
def test_equal_to_the_reference_library(width: int, chunks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of 10,000 chunks; each side verifies the other's."""
    monkeypatch.syspath_prepend(PEER)
    assert equality(importlib.import_module("toploc"), width, chunks) == (chunks, chunks)


def test_drift_says_which_way_a_feature_is_off() -> None:
    """One feature is a step of bfloat16 larger in what is claimed, whatever its sign; the others are as they were."""
    generator = torch.Generator().manual_seed(5)
    own = torch.randn(70, 200, generator=generator)
    own[:, 150] *= 64  # always among the largest, so that the same values are compared
    own = own.bfloat16()
    bits = own.view(torch.int16).to(torch.int32)
    bits[:, 150] += torch.where(own[:, 150] > 0, 1, -1).to(torch.int32)
    claimed = bits.to(torch.int16).view(torch.bfloat16)
    (found,) = toploc.compare_many([own], [toploc.build(claimed)])
    assert found.chunks == toploc.verify(own, toploc.build(claimed))
    assert found.drift.counts.sum() == sum(one.positions for one in found.chunks)
    moved = 150 % BUCKETS
    assert found.drift.sums[moved] >= 60
    assert not np.delete(found.drift.sums, moved).any()
    (same,) = toploc.compare_many([own[:1]], [toploc.build(own[:1])])
    assert not same.drift.counts.any(), "a chunk of one token is left out"
