"""TOPLOC proofs of hidden states, byte-identical with reference toploc 0.1.6 (docs/reference/protocol.md, section 5).

Algorithm: Ong et al., "TOPLOC: a locality sensitive hashing scheme for trustless verifiable inference" (2025);
constants are read off the reference library. Many chunks are handled at once, on one thread.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from protocol.errors import MusterError
from protocol.toploc.codec import BUCKETS, CHUNK, TOP_K, Drift, check_count, parse_many, proof_count, serialise
from protocol.toploc.kernels import LANES, Words, compare_rows, inverses, prove_rows


class ChunkErrors(NamedTuple):
    """How far a chunk's proof is from the verifier's own activations.

    positions: how many of the verifier's top 128 were compared: not a tie at the cut, of which a prover may have kept
    other members. exponent_mismatches: count over them. mantissa_mean: absolute difference of 7-bit mantissas where the
    exponent matches, 128 if it matches nowhere, 0 if nothing was compared.
    """

    exponent_mismatches: int
    mantissa_mean: float
    positions: int = TOP_K


NOTHING = ChunkErrors(0, 0.0, 0)


def build(hidden: torch.Tensor) -> list[bytes]:
    """Build the ⌈T/32⌉ proofs of one completion. hidden: [T, d] bfloat16, T ≥ 1, 32·d ≥ 128. See `build_many`."""
    return build_many([hidden])[0]


def build_many(hidden: Sequence[torch.Tensor]) -> list[list[bytes]]:
    """Build the proofs of many completions, each [T_i, d] bfloat16.

    Raises MusterError for another dtype or shape, for NaN, and for a chunk of fewer than 128 values.
    """
    out: list[list[bytes]] = [[b""] * proof_count(len(states)) for states in hidden]
    for group in _groups(hidden):
        table = np.empty((len(group.words), 1 + TOP_K), dtype=np.int64)
        _refuse_nan(prove_rows(group.words, group.width, inverses(), table))
        for (sequence, chunk), proof in zip(group.places, serialise(table), strict=True):
            out[sequence][chunk] = proof
    return out


def verify(hidden: torch.Tensor, proofs: Sequence[bytes]) -> list[ChunkErrors]:
    """Return the errors of each chunk of one completion. See `compare_many`."""
    return compare_many([hidden], [proofs])[0].chunks


class Comparison(NamedTuple):
    """One completion's proofs against the verifier's own activations: chunk by chunk, and by features."""

    chunks: list[ChunkErrors]
    drift: Drift


def compare_many(hidden: Sequence[torch.Tensor], proofs: Sequence[Sequence[bytes]]) -> list[Comparison]:
    """Compare many completions' proofs with the verifier's own hidden states, each [T_i, d] bfloat16. Raises
    MalformedProof for a wrong number of proofs or bytes that no prover writes."""
    if len(hidden) != len(proofs):
        raise MusterError(f"{len(proofs)} lists of proofs for {len(hidden)} completions", "give one list for each")
    for states, own in zip(hidden, proofs, strict=True):
        check_count(own, len(states))
    parsed = parse_many([proof for own in proofs for proof in own])
    first = np.cumsum([0, *map(len, proofs)])
    out = [Comparison([NOTHING] * len(own), Drift.none()) for own in proofs]
    for group in _groups(hidden):
        claimed = parsed[[first[sequence] + chunk for sequence, chunk in group.places]]
        moduli, coefficients = claimed[:, 0].copy(), claimed[:, 1:].astype(np.float64)
        counts, means = np.empty((len(claimed), 2), dtype=np.int64), np.empty(len(claimed))
        drift = np.zeros((len(claimed), 2, BUCKETS), dtype=np.int64)
        _refuse_nan(compare_rows(group.words, group.features, moduli, coefficients, counts, means, drift))
        for (sequence, chunk), (mismatches, compared), mean, way in zip(
            group.places, counts.tolist(), means.tolist(), drift, strict=True
        ):
            out[sequence].chunks[chunk] = ChunkErrors(mismatches, mean, compared)
            if group.width > group.features:
                out[sequence].drift.sums[:] += way[0]
                out[sequence].drift.counts[:] += way[1]
    return out


class _Group(NamedTuple):
    """Chunks of `width` values, of hidden states with so many features: words [n, ⌈width / 4⌉], and of each chunk
    (completion, chunk number)."""

    width: int
    features: int
    words: Words
    places: list[tuple[int, int]]


def _groups(hidden: Sequence[torch.Tensor]) -> list[_Group]:
    groups: dict[tuple[int, int], tuple[list[npt.NDArray[np.uint16]], list[tuple[int, int]]]] = {}
    for sequence, states in enumerate(hidden):
        if states.dtype != torch.bfloat16 or states.ndim != 2 or not len(states):
            raise MusterError(f"hidden states of shape {tuple(states.shape)}, {states.dtype}", "give bfloat16 [T, d]")
        flat = states.detach().cpu().contiguous().view(torch.uint16).numpy()
        full, features = len(flat) // CHUNK, flat.shape[1]
        whole, tail = flat[: full * CHUNK].reshape(full, CHUNK * features), flat[full * CHUNK :].reshape(1, -1)
        for part, first in ((whole, 0), (tail, full)):
            if part.size:
                rows, owners = groups.setdefault((part.shape[1], features), ([], []))
                rows.append(part)
                owners += ((sequence, first + number) for number in range(len(part)))
    least = min((width for width, _ in groups), default=TOP_K)
    if least < TOP_K:
        raise MusterError(f"a chunk of {least} values, a proof takes {TOP_K}", "use a hidden size of 128 up")
    return [_Group(*width, _as_words(rows), owners) for width, (rows, owners) in groups.items()]


def _as_words(parts: list[npt.NDArray[np.uint16]]) -> Words:
    rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if rows.shape[1] % LANES:
        rows = np.pad(rows, ((0, 0), (0, -rows.shape[1] % LANES)))
    if rows.ctypes.data % 8:
        rows = rows.copy()
    return rows.view(np.uint64)


def _refuse_nan(broken_row: int) -> None:
    if broken_row >= 0:
        raise MusterError("the hidden states contain NaN", "the model's weights are broken; load them again")
