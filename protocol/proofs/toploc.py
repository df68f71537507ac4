"""TOPLOC proofs of hidden states, byte-identical with reference toploc 0.1.6 (docs/protocol.md, section 5).

Algorithm: Ong et al., "TOPLOC: a locality sensitive hashing scheme for trustless verifiable inference" (2025);
constants read off the reference library. Many chunks are handled at once on one thread.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from protocol.errors import MusterError
from protocol.proofs.codec import CHUNK, PRIME, TOP_K, Proofs, parse_many, serialise
from protocol.proofs.field import canonical, evaluate, interpolate
from protocol.proofs.select import Bits, Indices, at_least_cut, top_indices

BLOCK = 64
CACHE_BYTES = 1 << 20
_kept = threading.local()
# One more than the largest possible difference of two 7-bit mantissas: nothing matched at all.
NO_MANTISSA = 128.0


@dataclass(frozen=True)
class ChunkErrors:
    """How far a chunk's proof is from the verifier's own activations.

    positions: how many of the verifier's top 128 were compared (those inside a tie at the cut are not: a prover may
    have kept other members of the tie). exponent_mismatches: count over them. mantissa_mean, mantissa_median: absolute
    differences of 7-bit mantissas where the exponent matches, 128 if it matches nowhere, 0 if nothing was compared.
    """

    exponent_mismatches: int
    mantissa_mean: float
    mantissa_median: float
    positions: int = TOP_K


def build(hidden: torch.Tensor) -> list[bytes]:
    """⌈T/32⌉ proofs of one completion. hidden: [T, d] bfloat16, T ≥ 1, 32·d ≥ 128. See `build_many`."""
    return build_many([hidden])[0]


def build_many(hidden: Sequence[torch.Tensor]) -> list[list[bytes]]:
    """Proofs of many completions, each [T_i, d] bfloat16.

    Raises MusterError for another dtype or shape, for NaN, and for a chunk of fewer than 128 values.
    """
    groups, places = _chunks(hidden)
    indices = np.empty((sum(map(len, places)), TOP_K), dtype=np.int64)
    values = np.empty_like(indices)
    order: list[tuple[int, int]] = []
    done = 0
    for group, where in zip(groups, places, strict=True):
        for start, bits in _magnitudes(group):
            top, rows = top_indices(bits), slice(start, start + len(bits))
            _refuse_nan(np.take_along_axis(bits, top, axis=1))
            indices[done : done + len(bits)] = top
            values[done : done + len(bits)] = np.take_along_axis(group[rows].view(np.uint16), top, axis=1)
            done += len(bits)
        order += where
    moduli = _injective_moduli(indices)
    coefficients = np.empty_like(indices)
    for start in range(0, done, BLOCK):
        rows = slice(start, start + BLOCK)
        points = torch.from_numpy((indices[rows] % moduli[rows, None]).astype(np.float64))
        coefficients[rows] = canonical(interpolate(points, torch.from_numpy(values[rows]).double())).numpy()
    out: list[list[bytes]] = [[b""] * -(-len(states) // CHUNK) for states in hidden]
    for (sequence, chunk), proof in zip(order, serialise(Proofs(moduli, coefficients)), strict=True):
        out[sequence][chunk] = proof
    return out


def verify(hidden: torch.Tensor, proofs: Sequence[bytes]) -> list[ChunkErrors]:
    """Errors of each chunk of one completion against the verifier's own hidden [T, d] bfloat16.

    Raises MalformedProof for a wrong number of proofs or bytes that no prover writes.
    """
    return verify_many([hidden], [proofs])[0]


def verify_many(hidden: Sequence[torch.Tensor], proofs: Sequence[Sequence[bytes]]) -> list[list[ChunkErrors]]:
    """`verify` for many completions at once."""
    if len(hidden) != len(proofs):
        raise MusterError(f"{len(proofs)} lists of proofs for {len(hidden)} completions", "give one list for each")
    parsed = [parse_many(own, tokens=len(states)) for states, own in zip(hidden, proofs, strict=True)]
    bits, places = _chunks(hidden)
    out: list[list[ChunkErrors]] = [[ChunkErrors(0, 0.0, 0.0)] * len(own) for own in parsed]
    for group, where in zip(bits, places, strict=True):
        for start in range(0, len(group), BLOCK):
            spots = where[start : start + BLOCK]
            moduli = np.array([parsed[s].moduli[c] for s, c in spots])
            coefficients = np.stack([parsed[s].coefficients[c] for s, c in spots])
            errors = _compare(group[start : start + BLOCK], Proofs(moduli, coefficients))
            for (sequence, chunk), error in zip(spots, errors, strict=True):
                out[sequence][chunk] = error
    return out


def _compare(raw: Bits, proofs: Proofs) -> list[ChunkErrors]:
    """Errors of n chunks of equal length; raw: bf16 patterns [n, w]."""
    parts = [_untied(start, bits) for start, bits in _magnitudes(raw)]
    rows, columns, magnitudes = (np.concatenate(column) for column in zip(*parts, strict=True))
    counts = np.bincount(rows, minlength=len(raw))
    slots = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    points = np.zeros((len(raw), TOP_K))
    points[rows, slots] = columns % proofs.moduli[rows]
    claimed = canonical(evaluate(torch.from_numpy(proofs.coefficients.astype(np.float64)), torch.from_numpy(points)))
    found = claimed.numpy()[rows, slots] & 0x7FFF
    return _statistics(rows, slots, counts, found, magnitudes.astype(np.int64))


def _untied(start: int, bits: Bits) -> tuple[Indices, Indices, Bits]:
    """Row numbers (counted from `start`), columns and magnitudes of each row's top 128, without ties at the cut."""
    rows, columns, cut = at_least_cut(bits)
    magnitudes = bits[rows, columns]
    _refuse_nan(magnitudes)
    counts = np.bincount(rows, minlength=len(bits))
    # More than 128 at or above the cut: a tie straddles it, and its members are left out.
    keep = (counts[rows] == TOP_K) | (magnitudes > cut[rows])
    return rows[keep] + start, columns[keep], magnitudes[keep]


def _statistics(
    rows: npt.NDArray[np.int64],
    slots: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    found: npt.NDArray[np.int64],
    own: npt.NDArray[np.int64],
) -> list[ChunkErrors]:
    same = (found >> 7) == (own >> 7)
    size = len(counts)
    matched = np.bincount(rows[same], minlength=size)
    distance = np.abs((found & 0x7F) - (own & 0x7F))
    difference = np.full((size, TOP_K), 255, dtype=np.uint8)
    difference[rows[same], slots[same]] = distance[same]
    difference.sort(axis=1)
    safe = np.maximum(matched, 1)
    total = np.bincount(rows, weights=np.where(same, distance, 0), minlength=size)
    # The reference's C++ path takes the upper of two middle values.
    median = difference[np.arange(size), np.minimum(safe // 2, TOP_K - 1)]
    out = []
    for row in range(size):
        if matched[row]:
            mean, middle = float(total[row] / matched[row]), float(median[row] if matched[row] > 1 else total[row])
        else:
            mean = middle = NO_MANTISSA if counts[row] else 0.0
        out.append(ChunkErrors(int(counts[row] - matched[row]), mean, middle, int(counts[row])))
    return out


def _chunks(
    hidden: Sequence[torch.Tensor],
) -> tuple[list[npt.NDArray[np.int16]], list[list[tuple[int, int]]]]:
    """Chunks grouped by length: bf16 patterns int16 [n, w] and, for each chunk, (completion, chunk number)."""
    groups: dict[int, list[npt.NDArray[np.int16]]] = {}
    places: dict[int, list[tuple[int, int]]] = {}
    for sequence, states in enumerate(hidden):
        if states.dtype != torch.bfloat16 or states.ndim != 2 or not len(states):
            raise MusterError(f"hidden states of shape {tuple(states.shape)}, {states.dtype}", "give bfloat16 [T, d]")
        flat = states.detach().cpu().contiguous().view(torch.int16).numpy()
        width = flat.shape[1]
        full = len(flat) // CHUNK
        if full:
            groups.setdefault(CHUNK * width, []).append(flat[: full * CHUNK].reshape(full, -1))
            places.setdefault(CHUNK * width, []).extend((sequence, chunk) for chunk in range(full))
        if len(flat) % CHUNK:
            tail = flat[full * CHUNK :].reshape(1, -1)
            groups.setdefault(tail.shape[1], []).append(tail)
            places.setdefault(tail.shape[1], []).append((sequence, full))
    bits = [part[0] if len(part) == 1 else np.concatenate(part) for part in groups.values()]
    for group in bits:
        if group.shape[1] < TOP_K:
            raise MusterError(
                f"a chunk of {group.shape[1]} values, a proof takes {TOP_K}", "use a hidden size of 128 up"
            )
    return bits, list(places.values())


def _magnitudes(group: Bits) -> Iterator[tuple[int, Bits]]:
    """(first row, bf16 patterns without sign) of some rows at a time, in one buffer that stays in the cache."""
    rows = max(1, min(BLOCK, CACHE_BYTES // (2 * group.shape[1])))
    buffer = _buffer(rows * group.shape[1]).reshape(rows, -1)
    for start in range(0, len(group), rows):
        part = group[start : start + rows]
        yield start, np.bitwise_and(part, np.int16(0x7FFF), out=buffer[: len(part)])


def _buffer(size: int) -> Bits:
    """This thread's buffer: fresh memory would have to be faulted in at every call."""
    kept: Bits | None = getattr(_kept, "buffer", None)
    if kept is None or len(kept) < size:
        kept = _kept.buffer = np.empty(size, dtype=np.int16)
    return kept[:size]


def _refuse_nan(largest: Bits) -> None:
    """NaN patterns are larger than all others, so the largest values show them."""
    if int(largest.max()) > 0x7F80:
        raise MusterError("the hidden states contain NaN", "the model's weights are broken; load them again")


def _injective_moduli(indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """For each row, the largest modulus ≤ 65497 that keeps its 128 indices distinct: int64 [n]."""
    moduli = np.full(len(indices), PRIME, dtype=np.int64)
    open_rows = np.flatnonzero(indices.max(axis=1, initial=0) >= PRIME)
    while len(open_rows):
        residues = np.sort(indices[open_rows] % moduli[open_rows, None], axis=1)
        open_rows = open_rows[(residues[:, 1:] == residues[:, :-1]).any(axis=1)]
        moduli[open_rows] -= 1
    return moduli
