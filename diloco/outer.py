"""The outer state, the outer optimizer and the admission of contributions, exact to the bit on any machine: what the
coordinator, every worker and any verifier compute alike.

The optimizer is SGD with Nesterov momentum on the mean pseudo-gradient of the admitted contributions. Everything is
elementwise float32, each operation rounded once, in a stated order, so the result does not depend on the machine or on
how tensors are cut. Contributions are decoded one shard at a time, so memory holds one shard of each, never whole
pseudo-gradients, and the weighted sum adds workers in ascending order of their addresses.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from diloco.codec import (
    F32,
    Piece,
    Products,
    TensorLayout,
    Tensors,
    add_products,
    cut,
    decode_shard,
    encode_float32,
    encode_int8,
    encode_shard,
    encode_sparse,
    gram,
    paste,
    select_visible,
)
from diloco.config import AdmissionConfig, OuterConfig
from diloco.messages import MAX_STEP, Contribution, Expected, ShardEntry
from protocol.api.base import Hex64, Rows, SignedBody
from protocol.delta.delta import TensorEntry, WeightIndex
from protocol.encoding import canonical_json, sha256_hex
from protocol.errors import ConfigError, IntegrityError
from protocol.signing import open_canonical

MAX_LIST_BYTES = 1 << 17
ReadShard = Callable[[ShardEntry], bytes]
_TINY = np.float32(1e-40)


class OuterStepError(IntegrityError):
    """An outer step that cannot be made; the state stays as it is."""


class MalformedState(IntegrityError):
    """Bytes that are no outer state of this model, or another one than was asked for."""


@dataclass(frozen=True)
class OuterState:
    """What all workers hold alike after outer step `step`: weights and momentum, tensors of the same shapes. Nobody
    changes the tensors."""

    step: int
    weights: Tensors
    momentum: Tensors

    @classmethod
    def start(cls, weights: Tensors) -> "OuterState":
        return cls(0, weights, {name: np.zeros_like(one) for name, one in weights.items()})

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over the step's number and the hashes of all weights and momentum."""
        hashes = []
        for tensors in (self.weights, self.momentum):
            entries = []
            for name, value in tensors.items():
                data = np.ascontiguousarray(value, "<f4").reshape(-1).view(np.uint8)
                entries.append(TensorEntry.of(name, "F32", value.shape, data))
            hashes.append(WeightIndex.of(entries).digest.hex())
        return hashlib.sha256(canonical_json([self.step, *hashes])).digest()

    @cached_property
    def layout(self) -> TensorLayout:
        return TensorLayout.of(self.weights)


class OuterUpdate:
    """Builds the state after an outer step from the mean pseudo-gradient, piece by piece.

    Raises ConfigError in a process that flushes small floats to zero: its outer steps would differ from the others'."""

    def __init__(self, state: OuterState, config: OuterConfig) -> None:
        if _TINY * np.float32(1) == 0:
            raise ConfigError(
                "this process flushes small floats to zero, so its outer steps would differ from the others'",
                "leave out what sets that, such as torch.set_flush_denormal or a library built with -ffast-math",
            )
        self._state, self._config = state, config
        self._weights, self._momentum = state.layout.empty(), state.layout.empty()

    def apply(self, pieces: Sequence[Piece], gradients: Sequence[F32]) -> None:
        """Update some pieces. Raises OuterStepError where the result is not finite."""
        weights, momentum = cut(self._state.weights, pieces), cut(self._state.momentum, pieces)
        for piece, weight, velocity, gradient in zip(pieces, weights, momentum, gradients, strict=True):
            after, velocity_after = outer_update(weight, velocity, gradient, self._config)
            if not (np.isfinite(after).all() and np.isfinite(velocity_after).all()):
                raise OuterStepError(f"{piece.tensor} would not be finite")
            paste(self._weights, [piece], [after])
            paste(self._momentum, [piece], [velocity_after])

    def finish(self) -> OuterState:
        return OuterState(self._state.step + 1, self._weights, self._momentum)


def outer_update(weights: F32, momentum: F32, gradient: F32, config: OuterConfig) -> tuple[F32, F32]:
    """Return new weights and momentum: m' = μ·m + g; w' = w − η·(g + μ·m')."""
    rate, decay = np.float32(config.learning_rate), np.float32(config.momentum)
    after, change = np.empty_like(momentum), np.empty_like(weights)
    with np.errstate(over="ignore", invalid="ignore"):
        np.add(np.multiply(decay, momentum, out=after), gradient, out=after)
        np.add(np.multiply(decay, after, out=change), gradient, out=change)
        np.subtract(weights, np.multiply(rate, change, out=change), out=change)
    return change, after


# Admission: which contributions count, from what is published alone, the same to the bit for everybody
#
# A contribution counts if its length is within a factor of the median length, and the median of its cosines with the
# others' is not below a bound. Both follow from the inner products of all contributions, and a minority cannot move a
# median beyond the honest values. What counts is scaled down to the median length, so that a worker moves the weights
# no further than half of the others do.


@dataclass(frozen=True)
class Admitted:
    """`weights`: for each admitted worker, the factor of its contribution in the sum; empty if the outer step cannot be
    made of what there is. `excluded`: why another worker's contribution does not count."""

    weights: Mapping[str, Fraction]
    excluded: Mapping[str, str]


def admit(workers: Sequence[str], products: Products | None, config: AdmissionConfig) -> Admitted:
    """Judge contributions by their inner products with one another, in the order of `workers`.

    Where one owner trusts all workers (`cosine` null), there are no products: every contribution that decodes, which
    makes it finite, counts alike."""
    excluded: dict[str, str] = {}
    if config.cosine is None or products is None:
        if len(workers) < config.minimum:
            return _too_few(workers, excluded, config)
        return Admitted({worker: Fraction(1, len(workers)) for worker in workers}, excluded)
    at = {worker: place for place, worker in enumerate(workers)}
    lengths = {worker: math.sqrt(products[place][place]) for worker, place in at.items()}
    for worker, length in lengths.items():
        if not math.isfinite(length):
            excluded[worker] = "infinity or NaN in it"
        elif length == 0:
            excluded[worker] = "it is zero"
    left = [worker for worker in workers if worker not in excluded]
    median = _lower_median([lengths[worker] for worker in left])
    for worker in left:
        if not median / config.norm_factor <= lengths[worker] <= median * config.norm_factor:
            excluded[worker] = f"its length is {lengths[worker] / median:.3g} times the median"
    left = [worker for worker in left if worker not in excluded]
    for worker in left:
        others = [other for other in left if other != worker]
        cosines = sorted(products[at[worker]][at[one]] / (lengths[worker] * lengths[one]) for one in others)
        # The higher of two middle values: of two others, an honest worker needs one that is honest.
        typical = cosines[len(cosines) // 2] if cosines else -1.0
        if typical < config.cosine:
            excluded[worker] = f"its median cosine with the others is {typical:.3f}"
    left = [worker for worker in left if worker not in excluded]
    if len(left) < config.minimum:
        return _too_few(left, excluded, config)
    median = _lower_median([lengths[worker] for worker in left])
    scale = {worker: min(Fraction(1), Fraction(median) / Fraction(lengths[worker])) for worker in left}
    return Admitted({worker: Fraction(1, len(left)) * scale[worker] for worker in left}, excluded)


def _too_few(workers: Sequence[str], excluded: Mapping[str, str], config: AdmissionConfig) -> Admitted:
    why = f"only {len(workers)} are admitted, {config.minimum} are needed"
    return Admitted({}, {**excluded, **dict.fromkeys(workers, why)})


def _lower_median(values: Sequence[float]) -> float:
    """Return the lower of two middle values: never longer than an honest length while fewer than half are hostile."""
    return sorted(values)[(len(values) - 1) // 2] if values else 0.0


# The outer step


def encode_payload(
    state: OuterState, gradient: Tensors, expected: Expected, worker: str, error: Tensors | None = None
) -> tuple[tuple[bytes, ...], Tensors | None]:
    """Encode the pseudo-gradient of a worker, `state.weights` − inner weights; return the payload's shards, and the
    error feedback if it counts (mode `sparse`).

    Raises MalformedContribution, ValueError for what is not finite."""
    settings, shards = expected.run.settings, []
    after: Tensors = {}
    if settings.mode == "sparse":
        after, error = select_visible(state.weights, gradient, error)
    for number, pieces in enumerate(state.layout.shards(settings.shards)):
        if settings.mode == "sparse":
            pairs = zip(cut(state.weights, pieces), cut(after, pieces), strict=True)
            bodies = [encode_sparse(before, sent) for before, sent in pairs]
        else:
            encode = encode_int8 if settings.mode == "int8" else encode_float32
            bodies = [encode(piece) for piece in cut(gradient, pieces)]
        shards.append(encode_shard(expected.origin(worker), number, bodies))
    return tuple(shards), error


@dataclass(frozen=True)
class Payloads:
    """The payloads of one attempt at the outer step that starts from `state`; `read` returns a file of one."""

    state: OuterState
    expected: Expected
    contributions: Mapping[str, Contribution]
    read: ReadShard

    def shard(self, worker: str, number: int) -> list[F32]:
        """Decode a worker's shard into the pieces of its pseudo-gradient (outer − inner weights).

        Raises MalformedContribution, and whatever `read` raises."""
        settings = self.expected.run.settings
        pieces = self.state.layout.shards(settings.shards)[number]
        data = self.read(self.contributions[worker].shards[number])
        base = cut(self.state.weights, pieces)
        return decode_shard(data, self.expected.origin(worker), number, pieces, settings.mode, base)

    def check(self, worker: str) -> None:
        """Decode a worker's payload whole and drop it. Raises as `shard`."""
        for number in range(self.expected.run.settings.shards):
            self.shard(worker, number)


def settle(payloads: Payloads) -> tuple[OuterState | None, Admitted]:
    """Return the state after the outer step, None if too few contributions are admitted, and which are.

    Raises OuterStepError where the state would not be finite, and as `Payloads.shard`."""
    settings, state = payloads.expected.run.settings, payloads.state
    workers = sorted(payloads.contributions)
    products: Products | None = None
    if settings.admission.cosine is not None:
        shards = [gram([payloads.shard(one, number) for one in workers]) for number in range(settings.shards)]
        products = add_products(shards)
    admitted = admit(workers, products, settings.admission)
    if not admitted.weights:
        return None, admitted
    update = OuterUpdate(state, settings.outer)
    factors = {worker: np.float32(float(admitted.weights[worker])) for worker in sorted(admitted.weights)}
    for number, pieces in enumerate(state.layout.shards(settings.shards)):
        sums: list[F32] = [np.zeros(piece.size, np.float32) for piece in pieces]
        for worker, factor in factors.items():
            for total, value in zip(sums, payloads.shard(worker, number), strict=True):
                with np.errstate(over="ignore", invalid="ignore"):
                    total += np.multiply(factor, value)
        update.apply(pieces, sums)
    return update.finish(), admitted


def skip_step(state: OuterState) -> OuterState:
    """Return the state after an outer step with too few files to train on: nothing changes but its number."""
    return replace(state, step=state.step + 1)


def update_norm(before: OuterState, after: OuterState) -> float:
    """Return the length of the change of all weights; 0 unless the states follow one another."""
    if after.step != before.step + 1:
        return 0.0
    return math.hypot(*(float(np.linalg.norm(after.weights[name] - one)) for name, one in before.weights.items()))


# An outer state as files, which a newcomer fetches instead of making all outer steps again. Shard k holds the weights'
# pieces and then the momentum's, in float32. Nobody is trusted: what was read is the state of the digest that the log
# names, or it is refused.


class StateFiles(SignedBody):
    """The files of outer state `step` of `digest`: SHA-256 of each shard. The log names this list by its hash."""

    version: Literal[1] = 1
    step: int = Field(ge=0, lt=MAX_STEP)
    digest: Hex64
    shards: Annotated[Rows[Hex64], Field(min_length=1, max_length=1024)]

    def encode(self) -> bytes:
        return canonical_json(self.model_dump(mode="json"))


def shard_parts(state: OuterState, count: int) -> Iterator[list[memoryview]]:
    """Yield the bytes of each of `count` shards, in parts, without a copy."""
    for pieces in state.layout.shards(count):
        parts = [*cut(state.weights, pieces), *cut(state.momentum, pieces)]
        yield [np.ascontiguousarray(one, "<f4").data for one in parts]


def state_shards(state: OuterState, count: int) -> Iterator[bytes]:
    """Yield the bytes of each of `count` shards."""
    return (b"".join(parts) for parts in shard_parts(state, count))


def list_state(state: OuterState, count: int) -> StateFiles:
    """Return the list of a state's `count` shards."""
    hashes = [sha256_hex(one) for one in state_shards(state, count)]
    return StateFiles(step=state.step, digest=state.digest.hex(), shards=hashes)


def open_list(data: bytes, count: int) -> StateFiles:
    """Decode a stranger's list. Raises MalformedState."""
    files = open_canonical(data, StateFiles, MAX_LIST_BYTES, "a list of a state's files", MalformedState)
    if len(files.shards) != count:
        raise MalformedState(f"{len(files.shards)} shards, not {count}")
    return files


def state_shard_bytes(pieces: Sequence[Piece]) -> int:
    """Return the length of a state's shard."""
    return 8 * sum(one.size for one in pieces)


def read_state(step: int, digest: str, shards: Iterator[bytes], layout: TensorLayout, count: int) -> OuterState:
    """Read the state `step` of `digest` (hex) from its `count` shards, one after the other. Raises MalformedState."""
    state = OuterState(step, layout.empty(), layout.empty())
    for number, (data, pieces) in enumerate(zip(shards, layout.shards(count), strict=True)):
        if len(data) != state_shard_bytes(pieces):
            raise MalformedState(f"shard {number} of the state has {len(data)} bytes, not {state_shard_bytes(pieces)}")
        values, sizes = np.frombuffer(data, "<f4"), [one.size for one in pieces]
        parts = np.split(values, np.cumsum([*sizes, *sizes])[:-1]) if sizes else []
        paste(state.weights, pieces, parts[: len(sizes)])
        paste(state.momentum, pieces, parts[len(sizes) :])
    if state.digest.hex() != digest:
        raise MalformedState(f"the files are outer state {state.digest.hex()[:16]}…, not {digest[:16]}…")
    return state
